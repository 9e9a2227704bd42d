package report

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis"
)

// compared is two sets of three runs with every outcome, and names that are not trusted.
func compared() Compared {
	const gib, mib = 1 << 30, 1 << 20 // of any type
	spread := func(median, noise float64) analysis.Spread {
		return analysis.Spread{Runs: 3, Min: median - noise, Median: median, Max: median}
	}
	change := func(name string, unit analysis.Unit, base, with analysis.Spread) analysis.Change {
		return analysis.Change{Name: name, Unit: unit, Base: base, New: with}
	}
	d := &analysis.Diff{Base: 3, New: 3, Metrics: []analysis.Change{
		change("reserved.peak", analysis.Bytes, spread(40*gib, 100*mib), spread(42*gib, 60*mib)),
		change("reserved.final", analysis.Bytes, spread(40*gib, 100*mib), spread(40*gib+100*mib, 0)),
		change("waste.external", analysis.Share, spread(0.25, 0.01), spread(0.125, 0.02)),
		change("leak.slope", analysis.Bytes, spread(0, 0), spread(1536.5, 0)),
		change("oom.count", analysis.Count, spread(1200, 0), spread(2400, 0)),
		change("growth.count", analysis.Count, spread(7, 0), spread(7, 0)),
		change("used.peak", analysis.Bytes, analysis.Spread{}, spread(41*gib, 0)),
	}}
	for i := range 14 {
		d.Modules = append(d.Modules, change(fmt.Sprintf("model.layers.%d.attn", i), analysis.Bytes, spread(gib, 0), spread(float64(gib+(20-i)*mib), 0)))
	}
	d.Modules[1].Name, d.Modules[2].Name = hostileName, ""
	d.Categories = []analysis.Change{change("weights", analysis.Bytes, spread(gib, 0), spread(gib, 0))}
	d.Sizes = []analysis.Change{
		change("2097152", analysis.Bytes, spread(0, 0), spread(64*mib, 0)),
		change("1000", analysis.Bytes, spread(64*mib, 0), analysis.Spread{}),
	}
	return Compared{Diff: d, BaseNames: []string{"main1", "main2", "main3"}, NewNames: []string{"a", hostileName, "c", "d", "e"}, Top: 10}
}

func TestDiffGolden(t *testing.T) {
	for _, test := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{"diff.txt", func(w io.Writer) error { return DiffText(w, compared(), Options{}) }},
		{"diff.md", func(w io.Writer) error { return DiffMarkdown(w, compared()) }},
		{"diff.json", func(w io.Writer) error { return DiffJSON(w, compared()) }},
		{"diff_nothing.json", func(w io.Writer) error { return DiffJSON(w, Compared{Diff: &analysis.Diff{}, Top: 1}) }},
	} {
		var out bytes.Buffer
		if err := test.write(&out); err != nil {
			t.Fatal(err)
		}
		golden(t, test.name, out.Bytes())
	}
}

// TestDiffFits: no line of a terminal is wider than 100 columns, and without colour none has
// an escape sequence.
func TestDiffFits(t *testing.T) {
	var out bytes.Buffer
	if err := DiffText(&out, compared(), Options{}); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if width := displayWidth(strings.TrimSuffix(line, "\n")); width > 100 || strings.Contains(line, "\x1b") {
			t.Errorf("%d columns: %q", width, line)
		}
	}
}

func TestDiffOneRunEach(t *testing.T) {
	for _, test := range []struct {
		base, new int
		warned    bool
	}{{1, 1, true}, {2, 1, false}, {1, 2, false}} {
		var out bytes.Buffer
		if err := DiffText(&out, Compared{Diff: &analysis.Diff{Base: test.base, New: test.new}, Top: 1}, Options{}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(out.String(), "how much repetitions differ is not known"); got != test.warned {
			t.Errorf("%d and %d runs: warned %v, want %v", test.base, test.new, got, test.warned)
		}
	}
}
