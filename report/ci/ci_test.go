package ci

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis/gate"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// resultsOf judges one value by each gate; the value was found in a recording of that name.
func resultsOf(t *testing.T, path string, value float64, texts ...string) *gate.Results {
	t.Helper()
	results := &gate.Results{}
	for _, text := range texts {
		g, err := gate.Parse(text)
		assert.NoError(t, err)
		written, margin := g, g.Margin(value)
		results.Verdicts = append(results.Verdicts, gate.Verdict{
			Gate: &g, Written: &written, Found: gate.Measured{Value: value, Where: gate.Location{Path: path, Process: "rank0", Device: 0, Seq: -1}},
			Runs: 1, Aggregate: "median", Holds: margin > 0 || margin == 0 && strings.Contains(g.Op, "="),
		})
	}
	return results
}

// A recording's name cannot end an annotation, a table cell or an XML element, nor begin
// something else.
func TestHostileNamesInResults(t *testing.T) {
	hostile := "a\n::error::x\r|<b>&\x1b[31m\x00]]>%0A@me"
	results := resultsOf(t, hostile, 2, "oom.count < 1")
	results.Verdicts[0].Grown = []gate.Part{{By: "module", Name: "h|", Bytes: 2048}, {By: "line", Name: "a.py:7", Bytes: 1024}}
	const shown = `a\n\x3a:error::x\x0d|<b>&\x1b[31m\x00]]>%250A@me: rank0, device 0; at the peak grew most: module h| +2 KiB, line a.py:7 +1 KiB`
	want := "::error title=memprof%3A oom.count < 1::expected < 1, found 2, margin -1, in " + shown + "\n"
	assert.Diff(t, want, string(Annotations(results)), "annotations")
	rows := strings.Split(string(Markdown(results)), "\n")
	const row = `| **VIOLATED** | oom.count &lt; 1 | 2 | -1 |  | a\\n\\x3a:error::x\\x0d\|&lt;b&gt;&amp;\\x1b\[31m\\x00\]\]&gt;%0A&#64;me: rank0, device 0; at the peak grew most: module h\| +2 KiB, line a.py:7 +1 KiB |`
	assert.Diff(t, row, rows[4], "Markdown")
	text, err := JUnit(results)
	assert.NoError(t, err)
	var back junitSuites
	if err := xml.Unmarshal(text, &back); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	const failure = `expected < 1, found 2, margin -1, in a\n\x3a:error::x\x0d|<b>&\x1b[31m\x00]]>%0A@me: rank0, device 0; at the peak grew most: module h| +2 KiB, line a.py:7 +1 KiB`
	var text80 bytes.Buffer
	assert.NoError(t, Text(&text80, results, layout.Options{}))
	assert.That(t, strings.HasSuffix(text80.String(), "\noom.count < 1: at the peak grew most: module h| +2 KiB, line a.py:7 +1 KiB\n"), "text:\n%s", &text80)
	c := back.Suite.Cases[0]
	assert.That(t, c.Failure != nil && c.Failure.Text == failure && c.Name == "oom.count < 1", "JUnit: %+v, want the failure %s", c, failure)
}

// TestResultLimits: what is beyond GitHub's limits is left out from the harmless end.
func TestResultLimits(t *testing.T) {
	var gates []string
	for limit := range 30 {
		gates = append(gates, fmt.Sprintf("oom.count <= %d", limit+1))
	}
	results := resultsOf(t, "run", 21, gates...) // 20 violated, the first by the most
	results.Verdicts[1].Gate.Severity, results.Verdicts[1].Written.Severity = gate.SeverityWarn, gate.SeverityWarn
	lines := strings.Split(strings.TrimSpace(string(Annotations(results))), "\n")
	if len(lines) != 10 || !strings.HasPrefix(lines[0], "::error title=memprof%3A oom.count <= 1::") || !strings.HasPrefix(lines[1], "::error title=memprof%3A oom.count <= 3::") {
		t.Errorf("%d annotations:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	results = resultsOf(t, strings.Repeat("x", 100_000), 21, gates...)
	text := string(Markdown(results))
	if len(text) > 1<<20 || !strings.Contains(text, "\n20 verdicts left out, none worse than the last above\n") || strings.Count(text, "VIOLATED") != 10 {
		t.Errorf("%d bytes of Markdown with %d violations", len(text), strings.Count(text, "VIOLATED"))
	}
}

// TestSaturated: a limit beyond all integers is not printed as a negative one.
func TestSaturated(t *testing.T) {
	g, err := gate.Parse("reserved.peak < baseline + 900%")
	assert.NoError(t, err)
	g.Limit = 10 * (1 << 62)
	if got := expected(&g); got != "< 8.00 EiB (baseline + 900%)" {
		t.Error(got)
	}
	if got := number(&g, g.Limit); got != int64(math.MaxInt64) {
		t.Error(got)
	}
	if got := format(&g, -g.Limit); got != "-8 EiB" {
		t.Error(got)
	}
}
