package report

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/compare"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/reporttest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// compared is two sets of three runs with every outcome, and names that are not trusted.
func compared() Compared {
	const gib, mib = 1 << 30, 1 << 20 // of any type
	spread := func(median, noise float64) compare.Spread {
		return compare.Spread{Runs: 3, Min: median - noise, Median: median, Max: median}
	}
	change := func(name string, unit analysis.Unit, base, with compare.Spread) compare.Change {
		c := compare.Change{Name: name, Unit: unit, Base: base, New: with, Effect: 1}
		delta, ok := c.Delta()
		noise, _ := c.Noise()
		c.Beyond = ok && math.Abs(delta) > noise
		return c
	}
	d := &compare.Diff{Base: 3, New: 3, Metrics: []compare.Change{
		change("reserved.peak", analysis.Bytes, spread(40*gib, 100*mib), spread(42*gib, 60*mib)),
		change("reserved.final", analysis.Bytes, spread(40*gib, 100*mib), spread(40*gib+100*mib, 0)),
		change("waste.external", analysis.Share, spread(0.25, 0.01), spread(0.125, 0.02)),
		change("leak.slope", analysis.Bytes, spread(0, 0), spread(1536.5, 0)),
		change("oom.count", analysis.Count, spread(1200, 0), spread(2400, 0)),
		change("growth.count", analysis.Count, spread(7, 0), spread(7, 0)),
		change("used.peak", analysis.Bytes, compare.Spread{}, spread(41*gib, 0)),
	}}
	for i := range 14 {
		d.Modules = append(d.Modules, change(fmt.Sprintf("model.layers.%d.attn", i), analysis.Bytes, spread(gib, 0), spread(float64(gib+(20-i)*mib), 0)))
	}
	d.Modules[1].Name, d.Modules[2].Name = reporttest.HostileName, ""
	d.Categories = []compare.Change{change("weights", analysis.Bytes, spread(gib, 0), spread(gib, 0))}
	d.Sizes = []compare.Change{
		change("2097152", analysis.Bytes, spread(0, 0), spread(64*mib, 0)),
		change("1000", analysis.Bytes, spread(64*mib, 0), compare.Spread{}),
	}
	return Compared{Diff: d, BaseNames: []string{"main1", "main2", "main3"}, NewNames: []string{"a", reporttest.HostileName, "c", "d", "e"}, Top: 10}
}

func TestDiffGolden(t *testing.T) {
	for _, test := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{"diff.txt", func(w io.Writer) error { return layout.WriteText(w, layout.Options{}, DiffSections(compared())...) }},
		{"diff.md", func(w io.Writer) error { return layout.WriteMarkdown(w, DiffSections(compared())...) }},
		{"diff.json", func(w io.Writer) error { return DiffJSON(w, compared()) }},
		{"diff_nothing.json", func(w io.Writer) error { return DiffJSON(w, Compared{Diff: &compare.Diff{}, Top: 1}) }},
	} {
		var out bytes.Buffer
		assert.NoError(t, test.write(&out))
		reporttest.Golden(t, test.name, out.Bytes())
	}
}

// TestDiffFits: no line of a terminal is wider than 100 columns, and without colour none has
// an escape sequence.
func TestDiffFits(t *testing.T) {
	var out bytes.Buffer
	assert.NoError(t, layout.WriteText(&out, layout.Options{}, DiffSections(compared())...))
	for line := range strings.Lines(out.String()) {
		width := plain.Width(strings.TrimSuffix(line, "\n"))
		assert.That(t, width <= 100 && !strings.Contains(line, "\x1b"), "%d columns: %q", width, line)
	}
}

// At 80 columns a comparison of metrics is one table with whole names: what change a share of the
// base is gives way.
func TestDiffNarrow(t *testing.T) {
	d := &compare.Diff{Base: 3, New: 3}
	for _, m := range analysis.Metrics() {
		if strings.HasPrefix(m.Name, "category.") || strings.HasPrefix(m.Name, "phase.") {
			continue
		}
		value := map[analysis.Unit]float64{analysis.Share: 0.195, analysis.Bytes: 8.05 * (1 << 30), analysis.Count: 12}[m.Unit]
		d.Metrics = append(d.Metrics, compare.Change{
			Name: m.Name, Unit: m.Unit, Base: compare.Spread{Runs: 3, Min: 0, Median: value, Max: value}, New: compare.Spread{Runs: 3, Median: value / 2, Max: value}, Beyond: true,
		})
	}
	var out bytes.Buffer
	assert.NoError(t, layout.WriteText(&out, layout.Options{Width: 80}, DiffSections(Compared{Diff: d, Top: 10, BaseNames: []string{"a"}, NewNames: []string{"b"}})...))
	for line := range strings.Lines(out.String()) {
		width := plain.Width(strings.TrimSuffix(line, "\n"))
		assert.That(t, width <= 80, "%d columns: %q", width, line)
	}
	for _, m := range d.Metrics {
		assert.That(t, strings.Count(out.String(), "\n"+m.Name+" ") == 1, "%s is not the name of one line", m.Name)
	}
	assert.That(t, strings.Contains(out.String(), "within noise"), "no outcome is shown")
}

// A change too small for its unit's digits is no zero.
func TestSmallChanges(t *testing.T) {
	for _, test := range []struct {
		unit  analysis.Unit
		delta float64
		want  string
	}{
		{analysis.Share, 0.125, "+12.5 pt"}, {analysis.Share, -0.001, "-0.1 pt"}, {analysis.Share, 0.0001, "+<0.1 pt"}, {analysis.Share, -0.0001, "-<0.1 pt"},
		{analysis.Share, 0, "+0.0 pt"}, {analysis.Bytes, -1536, "-1.50 KiB"}, {analysis.Bytes, 2048, "+2 KiB"}, {analysis.Count, 1200, "+1,200"}, {analysis.Count, -3, "-3"},
	} {
		assert.Equal(t, changeText(test.unit, test.delta), test.want, "%v of %v", test.delta, test.unit)
	}
}

func TestDiffOneRunEach(t *testing.T) {
	for _, test := range []struct {
		base, new int
		warned    bool
	}{{1, 1, true}, {2, 1, false}, {1, 2, false}} {
		var out bytes.Buffer
		assert.NoError(t, layout.WriteText(&out, layout.Options{}, DiffSections(Compared{Diff: &compare.Diff{Base: test.base, New: test.new}, Top: 1})...))
		assert.Equal(t, strings.Contains(out.String(), "no noise known"), test.warned, "%d and %d runs: warned", test.base, test.new)
	}
}

// TestSigned: a change that is shown as 0 has no sign.
func TestSigned(t *testing.T) {
	for text, want := range map[string]string{"0.0%": "0.0%", "-0.0%": "0.0%", "0.1%": "+0.1%", "-10.0%": "-10.0%", plain.Absent: plain.Absent} {
		assert.Equal(t, signed(text), want, "%s", text)
	}
}
