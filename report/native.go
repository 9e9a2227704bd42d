package report

import (
	"fmt"
	"math"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/plain"
	"github.com/memprof/memprof/report/units"
)

// What of a device with a watched allocator is told, and what is not, has one place: here. A
// number that is not known is -1 in the results and absent in every table.

// nativeSections say first which columns to look at.
func nativeSections(d *analysis.DeviceResult) []layout.Section {
	w := d.Sampled
	if w == nil {
		return nil
	}
	s := layout.Section{
		Title: "Watched, not served",
		Before: append(
			layout.Note(fmt.Sprintf("torch's own allocator (%s) served the tensors: T, R and what is pending are exact", plain.Shorten(w.Allocator, 24))),
			layout.Note("C is its own sum, read "+units.Counted(w.Samples, "time")+": where T peaks, at each segment and each mark")...),
		After: layout.Toned(layout.Faint, layout.Note("not known, and shown as "+units.Absent+": rounding and slack, the parts of free memory, the largest free chunk, C of single blocks")),
	}
	if w.Odd > 0 {
		s.After = append(s.After, layout.Toned(layout.Warned, layout.Note(units.Counted(w.Odd, "reading")+" did not fit the events around it and was left out"))...)
	}
	return []layout.Section{s}
}

// knownRatio is ratio for a part of which -1 says that it is not known.
func knownRatio(part, whole int64) float64 {
	if part < 0 {
		return math.NaN()
	}
	return units.Ratio(part, whole)
}

type jsonWatched struct {
	Allocator string `json:"allocator"`
	Samples   int64  `json:"samples"`
	Odd       int64  `json:"odd"`
}

// jsonNative is there only where torch's own allocator was observed: its chunks are null everywhere.
type jsonNative struct {
	Watched *jsonWatched `json:"watched,omitempty"`
}

func newJSONNative(d *analysis.DeviceResult) jsonNative {
	w := d.Sampled
	if w == nil {
		return jsonNative{}
	}
	return jsonNative{&jsonWatched{w.Allocator, w.Samples, w.Odd}}
}
