package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// terminalWidth is what the text report must fit.
const terminalWidth = 100

func renderText(t *testing.T, results []*analysis.Result, o layout.Options) string {
	t.Helper()
	var out bytes.Buffer
	assert.NoError(t, Text(&out, results, Scope{All: true}, o))
	return out.String()
}

var escapes = regexp.MustCompile("\x1b\\[[0-9;]*m")

func TestTextColor(t *testing.T) {
	for _, f := range fixtures() {
		colored := renderText(t, f.results, layout.Options{Color: true})
		assert.That(t, len(f.results) <= 0 || escapes.MatchString(colored), "%s: no colour although asked for", f.name)
		assert.Diff(t, renderText(t, f.results, layout.Options{}), escapes.ReplaceAllString(colored, ""), "%s: colour changes more than colour (-without +with)", f.name)
	}
}

// checkColumns fails if the rows of a Markdown table differ in their number of cells.
func checkColumns(t *testing.T, markdown string) {
	t.Helper()
	bar := regexp.MustCompile(`(^|[^\\])\|`)
	columns := 0
	for _, line := range strings.Split(markdown, "\n") {
		if !strings.HasPrefix(line, "|") {
			columns = 0
			continue
		}
		n := len(bar.FindAllString(line, -1))
		assert.That(t, columns == 0 || n == columns, "%d bars where the table has %d: %s", n, columns, line)
		columns = n
	}
}

func TestJSON(t *testing.T) {
	for _, f := range fixtures() {
		t.Run(f.name, func(t *testing.T) {
			var out bytes.Buffer
			assert.NoError(t, JSON(&out, f.results, Scope{}))
			var back struct {
				Processes []map[string]any
			}
			assert.NoError(t, json.Unmarshal(out.Bytes(), &back))
			assert.That(t, len(back.Processes) == len(f.results), "%d processes, want %d", len(back.Processes), len(f.results))
			// What a finding saves may be less than nothing of the one, for more of the other.
			plain := regexp.MustCompile(`"saves_[a-z_]+": -[0-9]+,`).ReplaceAllString(out.String(), "")
			if f.name != "hostile" && regexp.MustCompile(`[0-9]e[+-]?[0-9]|: -[0-9]+,`).MatchString(plain) {
				t.Errorf("a number is not a plain one:\n%s", out.String())
			}
		})
	}
}

func TestJSONNotFinite(t *testing.T) {
	r := oneEvent()
	r.Devices[0].Paper = &iterations.Paper{T1: math.NaN(), C1: math.Inf(1)}
	r.Devices[0].Leak = &iterations.Leak{Verdict: iterations.Leaks, Slope: math.NaN()}
	if err := JSON(&bytes.Buffer{}, []*analysis.Result{r}, Scope{}); err != nil {
		t.Error(err)
	}
}

// (F - L)/F takes L from the analysis, and is left out without a map.
func TestPeakFragmentation(t *testing.T) {
	m := ledger.AddressMap{Arenas: []ledger.ArenaMap{{}}}
	d := &analysis.DeviceResult{Memory: &analysis.Memory{Chunks: &analysis.Chunks{LargestFree: 40}, Peak: ledger.Instant{R: 124, Reserve: 30, External: 94}}, Map: m}
	got, want := peakFragmentation(d), 84.0/124
	assert.That(t, got == want, "fragmentation %v, want %v", got, want)
	if got := peakFragmentation(&analysis.DeviceResult{Memory: &analysis.Memory{Chunks: &analysis.Chunks{}, Peak: d.Peak}}); !math.IsNaN(got) {
		t.Errorf("fragmentation without a map %v, want NaN", got)
	}
	assert.Equal(t, peakFragmentation(&analysis.DeviceResult{Memory: &analysis.Memory{Chunks: &analysis.Chunks{}}}), 0, "fragmentation of nothing")
}

// failing refuses every write.
type failing struct{}

var ErrFull = errors.New("disk full")

func (failing) Write([]byte) (int, error) { return 0, ErrFull }

func TestWriteErrors(t *testing.T) {
	results := []*analysis.Result{oneEvent()}
	for name, err := range map[string]error{
		"text": Text(failing{}, results, Scope{All: true}, layout.Options{}), "markdown": Markdown(failing{}, results, Scope{All: true}), "json": JSON(failing{}, results, Scope{}),
		"png": Plots(results[0])[0].PNG(failing{}), "svg": Plots(results[0])[0].SVG(failing{}),
	} {
		assert.That(t, errors.Is(err, ErrFull), "%s: %v, want %v", name, err, ErrFull)
	}
}
