package report

import (
	"fmt"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
)

// otherLibrarySections sum the CUDA memory that is not from memprof's arenas.
func otherLibrarySections(d *analysis.DeviceResult) []layout.Section {
	s := layout.Section{Title: "Other libraries"}
	e := d.OtherLibraries
	switch {
	case e.Calls > 0 || e.Peak > 0:
	case d.Allocs == 0 && d.MaxR == 0: // nothing happened on the device
		return nil
	default:
		s.Before = layout.Toned(layout.Faint, layout.Note("no other library allocated memory through the CUDA API"))
		return []layout.Section{s}
	}
	s.Before = layout.Note(fmt.Sprintf("maximum %s, at the end %s, allocated through the CUDA API (%s)",
		plain.FormatSize(e.Peak), plain.FormatSize(e.Live), plain.Counted(e.Calls, "call")))
	return []layout.Section{s}
}
