package summary

import (
	"cmp"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
)

const page = 2 << 20 // of the GPU's memory, in bytes

// Screen is what a first screen says of a device. Sizes are bytes; null is what is not known.
type Screen struct {
	Requested  int64       `json:"requested"`      // at the peak
	Band       *plain.Band `json:"requested_band"` // of a dry run that does not know all sizes
	Categories []Category  `json:"categories"`
	Beside     []Beside    `json:"beside"`
	Allocators []Allocator `json:"allocators"`
	Findings   []Finding   `json:"findings"`
	Leak       Leak        `json:"leak"`

	result *analysis.Result
	device *analysis.DeviceResult
}

// Of is the first screen on a device.
func Of(r *analysis.Result, d *analysis.DeviceResult) *Screen {
	beside := []Beside{}
	if r.Job == nil || r.Job.Imported == nil { // a snapshot tells nothing of it
		beside = besideOf(d)
	}
	return &Screen{
		Requested: d.Peak.T, Band: wide(d.Requested), Categories: categoriesOf(d.Held), Beside: beside, Allocators: allocatorsOf(r, d),
		Findings: findingsOf(r, d), Leak: leakOf(d), result: r, device: d,
	}
}

// wide is a band that a dry run leaves open; nil where the number is known.
func wide(b plain.Band) *plain.Band {
	if !b.Wide() {
		return nil
	}
	return &b
}

// size is a number of bytes, or the band that a dry run leaves open.
func size(bytes int64, band *plain.Band) string {
	if band != nil {
		return band.String()
	}
	return plain.FormatSize(bytes)
}

// Sections are the parts of the screen, for a terminal of so many columns; 0 means any number.
func (s *Screen) Sections(width int) []layout.Section {
	sections := []layout.Section{s.peakSection(width)}
	if len(s.Allocators) > 0 {
		sections = append(sections, s.allocatorSection(width))
	}
	if len(s.Findings) > 0 {
		sections = append(sections, s.FindingSection(width))
	}
	return append(sections, s.endSection(width))
}

// balance is the device accounting at the peak, if it is of this process alone; nil if it is not known.
func balance(d *analysis.DeviceResult) *accounting.Balance {
	a := d.Account
	if a == nil || a.Missing != "" || len(a.Processes) != 1 || a.Peak.At.Time != d.Peak.Time {
		return nil
	}
	return &a.Peak
}

// place is the module or, where none is known, the line that something comes from, in at most so many columns; "" for neither. A path
// keeps its last folders.
func place(module, line string, columns int) string {
	text := plain.Text(cmp.Or(module, line))
	for rest, ok := text, plain.Width(text) > columns; ok; {
		if _, rest, ok = strings.Cut(rest, "/"); ok && plain.Width(rest)+2 <= columns {
			return "…/" + rest
		}
	}
	return plain.Shorten(text, columns)
}
