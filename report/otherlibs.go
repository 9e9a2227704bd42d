package report

import (
	"fmt"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/units"
)

// otherLibrarySections say what other libraries took beside the arenas.
func otherLibrarySections(d *analysis.DeviceResult) []layout.Section {
	s := layout.Section{Title: "Other libraries"}
	e := d.External
	switch {
	case e.Calls > 0 || e.Peak > 0:
	case d.Allocs == 0 && d.MaxR == 0: // nothing happened on the device
		return nil
	default:
		s.Before = layout.Toned(layout.Faint, layout.Note("no memory taken through the CUDA API beside the arenas"))
		return []layout.Section{s}
	}
	s.Before = layout.Note(fmt.Sprintf("%s at most, %s at the end, through the CUDA API (%s)",
		units.FormatSize(e.Peak), units.FormatSize(e.Live), units.Counted(e.Calls, "call")))
	return []layout.Section{s}
}

type jsonExternal struct {
	Live  int64 `json:"live"`
	Peak  int64 `json:"peak"`
	Calls int64 `json:"calls"`
}

// jsonOtherLibraries is what libraries took through the CUDA API.
type jsonOtherLibraries struct {
	External jsonExternal `json:"external"`
}

func newJSONOtherLibraries(d *analysis.DeviceResult) jsonOtherLibraries {
	return jsonOtherLibraries{jsonExternal{d.External.Live, d.External.Peak, d.External.Calls}}
}
