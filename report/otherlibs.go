package report

import (
	"fmt"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/units"
)

// externalSection tells of memory other libraries took beside the arenas.
func externalSection(d *analysis.DeviceResult) layout.Section {
	s := layout.Section{Title: "Other libraries"}
	e := d.External
	if e.Calls == 0 && e.Peak == 0 {
		s.Before = layout.Toned(layout.Faint, layout.Note("no memory taken through the CUDA API beside the arenas"))
		return s
	}
	s.Before = layout.Note(fmt.Sprintf("%s at most, %s at the end, through the CUDA API (%s)",
		units.FormatSize(e.Peak), units.FormatSize(e.Live), units.Counted(e.Calls, "call")))
	return s
}

type jsonExternal struct {
	Live  int64 `json:"live"`
	Peak  int64 `json:"peak"`
	Calls int64 `json:"calls"`
}
