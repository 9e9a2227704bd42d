package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/report/layout"
)

// terminalWidth is what the text report must fit.
const terminalWidth = 100

func renderText(t *testing.T, results []*analysis.Result, o layout.Options) string {
	t.Helper()
	var out bytes.Buffer
	if err := Text(&out, results, Scope{All: true}, o); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

var escapes = regexp.MustCompile("\x1b\\[[0-9;]*m")

func TestTextColor(t *testing.T) {
	for _, f := range fixtures() {
		colored := renderText(t, f.results, layout.Options{Color: true})
		if len(f.results) > 0 && !escapes.MatchString(colored) {
			t.Errorf("%s: no colour although asked for", f.name)
		}
		if diff := cmp.Diff(renderText(t, f.results, layout.Options{}), escapes.ReplaceAllString(colored, "")); diff != "" {
			t.Errorf("%s: colour changes more than colour (-without +with):\n%s", f.name, diff)
		}
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
		if columns != 0 && n != columns {
			t.Errorf("%d bars where the table has %d: %s", n, columns, line)
		}
		columns = n
	}
}

func TestJSON(t *testing.T) {
	for _, f := range fixtures() {
		t.Run(f.name, func(t *testing.T) {
			var out bytes.Buffer
			if err := JSON(&out, f.results); err != nil {
				t.Fatal(err)
			}
			var back struct {
				Processes []map[string]any
			}
			if err := json.Unmarshal(out.Bytes(), &back); err != nil {
				t.Fatal(err)
			}
			if len(back.Processes) != len(f.results) {
				t.Errorf("%d processes, want %d", len(back.Processes), len(f.results))
			}
			if f.name != "hostile" && regexp.MustCompile(`[0-9]e[+-]?[0-9]|: -[0-9]+,`).Match(out.Bytes()) {
				t.Errorf("a number is not a plain one:\n%s", out.String())
			}
		})
	}
}

func TestJSONNotFinite(t *testing.T) {
	r := oneEvent()
	r.Devices[0].Paper = iterations.Paper{Valid: true, T1: math.NaN(), C1: math.Inf(1)}
	r.Devices[0].Leak = iterations.Leak{Iterations: iterations.Trend{Valid: true, Slope: math.NaN()}}
	if err := JSON(&bytes.Buffer{}, []*analysis.Result{r}); err != nil {
		t.Error(err)
	}
}

// (F - L)/F takes L from the analysis, and is left out without a map.
func TestPeakFragmentation(t *testing.T) {
	m := ledger.AddressMap{Arenas: []ledger.ArenaMap{{}}}
	d := &analysis.DeviceResult{Map: m, Chunks: &analysis.Chunks{LargestFree: 40}, Peak: ledger.Instant{Reserve: 30, External: 94}}
	if got, want := peakFragmentation(d), 84.0/124; got != want {
		t.Errorf("fragmentation %v, want %v", got, want)
	}
	if got := peakFragmentation(&analysis.DeviceResult{Chunks: &analysis.Chunks{}, Peak: d.Peak}); !math.IsNaN(got) {
		t.Errorf("fragmentation without a map %v, want NaN", got)
	}
	if got := peakFragmentation(&analysis.DeviceResult{Chunks: &analysis.Chunks{}}); got != 0 {
		t.Errorf("fragmentation of nothing %v, want 0", got)
	}
}

// failing refuses every write.
type failing struct{}

var ErrFull = errors.New("disk full")

func (failing) Write([]byte) (int, error) { return 0, ErrFull }

func TestWriteErrors(t *testing.T) {
	results := []*analysis.Result{oneEvent()}
	for name, err := range map[string]error{
		"text": Text(failing{}, results, Scope{All: true}, layout.Options{}), "markdown": Markdown(failing{}, results, Scope{All: true}), "json": JSON(failing{}, results),
		"png": Plots(results[0])[0].PNG(failing{}), "svg": Plots(results[0])[0].SVG(failing{}),
	} {
		if !errors.Is(err, ErrFull) {
			t.Errorf("%s: %v, want %v", name, err, ErrFull)
		}
	}
}
