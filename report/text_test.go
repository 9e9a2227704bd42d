package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/analysis"
)

// terminalWidth is what the text report must fit.
const terminalWidth = 100

func renderText(t *testing.T, results []*analysis.Result, o Options) string {
	t.Helper()
	var out bytes.Buffer
	if err := Text(&out, results, o); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestText(t *testing.T) {
	for _, f := range fixtures() {
		t.Run(f.name, func(t *testing.T) {
			got := renderText(t, f.results, Options{})
			golden(t, f.name+".txt", []byte(got))
			checkSafe(t, got)
			for number, line := range strings.Split(got, "\n") {
				if width := displayWidth(line); width > terminalWidth {
					t.Errorf("line %d has %d columns:\n%s", number+1, width, line)
				}
			}
		})
	}
}

// checkSafe fails on what may not reach a terminal or a page: control characters other than the
// newline, marks that reorder text, invalid UTF-8, and numbers that are none.
func checkSafe(t *testing.T, text string) {
	t.Helper()
	for i, r := range text {
		if r == unicode.ReplacementChar || r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
			t.Fatalf("unsafe %U at %d: %q", r, i, text[max(0, i-20):min(i+20, len(text))])
		}
	}
	if bad := regexp.MustCompile(`NaN|[+-]?Inf|%!|<nil>`).FindString(text); bad != "" {
		t.Errorf("the text has %q", bad)
	}
}

var escapes = regexp.MustCompile("\x1b\\[[0-9;]*m")

func TestTextColor(t *testing.T) {
	for _, f := range fixtures() {
		colored := renderText(t, f.results, Options{Color: true})
		if len(f.results) > 0 && !escapes.MatchString(colored) {
			t.Errorf("%s: no colour although asked for", f.name)
		}
		if diff := cmp.Diff(renderText(t, f.results, Options{}), escapes.ReplaceAllString(colored, "")); diff != "" {
			t.Errorf("%s: colour changes more than colour (-without +with):\n%s", f.name, diff)
		}
	}
}

func TestMarkdown(t *testing.T) {
	for _, f := range fixtures() {
		t.Run(f.name, func(t *testing.T) {
			var out bytes.Buffer
			if err := Markdown(&out, f.results); err != nil {
				t.Fatal(err)
			}
			golden(t, f.name+".md", out.Bytes())
			checkSafe(t, out.String())
			if strings.Contains(out.String(), "<script") || strings.Contains(out.String(), "@all") {
				t.Error("markup of the job got through")
			}
			checkColumns(t, out.String())
		})
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
			if out.Len() < 20<<10 {
				golden(t, f.name+".json", out.Bytes())
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

// The four terms of the split in the JSON add up, and bytes are exact.
func TestJSONExact(t *testing.T) {
	var out bytes.Buffer
	results := []*analysis.Result{training(24, 20, 4)}
	if err := JSON(&out, results); err != nil {
		t.Fatal(err)
	}
	var back struct {
		Processes []struct {
			Devices []struct {
				Peak struct {
					Requested, Rounding, Slack, Pending, Reserve, External, Reserved int64
				}
			}
		}
	}
	if err := json.Unmarshal(out.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	got, want := back.Processes[0].Devices[0].Peak, results[0].Devices[0].Peak
	if got.Reserved != want.R || got.Requested != want.T || got.External != want.External {
		t.Errorf("peak %+v, want %+v", got, want)
	}
	if sum := got.Requested + got.Rounding + got.Slack + got.Pending + got.Reserve + got.External; sum != got.Reserved {
		t.Errorf("the terms add up to %d of %d", sum, got.Reserved)
	}
}

func TestJSONNotFinite(t *testing.T) {
	r := oneEvent()
	r.Devices[0].Paper = analysis.Paper{Valid: true, T1: math.NaN(), C1: math.Inf(1)}
	r.Devices[0].Leak = analysis.Leak{Iterations: analysis.Trend{Valid: true, Slope: math.NaN()}}
	if err := JSON(&bytes.Buffer{}, []*analysis.Result{r}); err != nil {
		t.Error(err)
	}
}

func TestElide(t *testing.T) {
	for _, test := range []struct {
		rows, head, tail int
		want             string
	}{
		{0, 2, 1, ""}, {3, 2, 1, "0 1 2"},
		{4, 2, 1, "0 1 2 3"}, // a line for one row would save nothing
		{5, 2, 1, "0 1 … 2 more 4"}, {1000, 1, 2, "0 … 997 more 998 999"}, {9, 3, 0, "0 1 2 … 6 more"},
	} {
		table := section{columns: []column{numbers("n"), words("")}}
		for i := range test.rows {
			table.rows = append(table.rows, row(formatCount(int64(i)), ""))
		}
		table.elide(test.head, test.tail)
		var got []string
		for _, r := range table.rows {
			if len(r) != 2 {
				t.Errorf("a row of %d cells", len(r))
			}
			got = append(got, r[0].text+r[1].text)
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%d rows: %q, want %q", test.rows, strings.Join(got, " "), test.want)
		}
	}
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"model.fc1": "model.fc1", "層 é": "層 é", "": "",
		"a\x1b[31mb": `a\x1b[31mb`, "a\r\n\tb": `a\x0d\n\tb`, "\x00\x7f": `\x00\x7f`, "\u0085": `\u0085`,
		"\u202egnp": `\u202egnp`, "\u2028": `\u2028`, "\u200b": `\u200b`, "\U000e0001": `\U000e0001`, "\ufeff": `\ufeff`,
		"\xff\xc3": `\xff\xc3`, "\ufffd": "\ufffd",
	} {
		if got := clean(in); got != want {
			t.Errorf("clean(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestShorten(t *testing.T) {
	for _, test := range []struct {
		in    string
		width int
		want  string
	}{
		{"short", 5, "short"}, {"abcdefgh", 5, "ab…gh"}, {"abcdefgh", 6, "ab…fgh"}, {"abcdefgh", 8, "abcdefgh"},
		{"層層層層", 5, "層…層"}, {"\x1b\x1b\x1b", 7, `\x1…x1b`},
	} {
		if got := shorten(test.in, test.width); got != test.want {
			t.Errorf("shorten(%q, %d) = %q, want %q", test.in, test.width, got, test.want)
		}
	}
	if got := shorten(strings.Repeat("長", 1<<20), 20); displayWidth(got) > 20 || !strings.Contains(got, "…") {
		t.Errorf("a megabyte became %q", got)
	}
}

// (F - L)/F takes L from the analysis, and is not told without a map.
func TestPeakFragmentation(t *testing.T) {
	m := analysis.AddressMap{Arenas: []analysis.ArenaMap{{}}}
	d := &analysis.DeviceResult{Map: m, LargestFree: 40, Peak: analysis.Instant{Reserve: 30, External: 94}}
	if got, want := peakFragmentation(d), 84.0/124; got != want {
		t.Errorf("fragmentation %v, want %v", got, want)
	}
	if got := peakFragmentation(&analysis.DeviceResult{Peak: d.Peak}); !math.IsNaN(got) {
		t.Errorf("fragmentation without a map %v, want NaN", got)
	}
	if got := peakFragmentation(&analysis.DeviceResult{}); got != 0 {
		t.Errorf("fragmentation of nothing %v, want 0", got)
	}
}

// failing refuses every write.
type failing struct{}

var errFull = errors.New("disk full")

func (failing) Write([]byte) (int, error) { return 0, errFull }

func TestWriteErrors(t *testing.T) {
	results := []*analysis.Result{oneEvent()}
	for name, err := range map[string]error{
		"text": Text(failing{}, results, Options{}), "markdown": Markdown(failing{}, results), "json": JSON(failing{}, results),
		"png": Plots(results[0])[0].PNG(failing{}), "svg": Plots(results[0])[0].SVG(failing{}),
	} {
		if !errors.Is(err, errFull) {
			t.Errorf("%s: %v, want %v", name, err, errFull)
		}
	}
}
