package report

import (
	"fmt"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
)

// nativeSections say which numbers are known of torch's own allocator, which memprof observes. A number
// that is not known is -1 in the results and "–" in every table.
func nativeSections(d *analysis.DeviceResult) []layout.Section {
	w := d.Native
	if w == nil {
		return nil
	}
	if m := w.Followed; m != nil {
		return []layout.Section{{
			Title: "Native allocator",
			Before: append(
				layout.Note(fmt.Sprintf("memprof observed torch's own allocator: its model came to the same address in %s and the same %s", plain.Counted(m.Allocs, "allocation"), plain.Counted(m.Segments, "segment"))),
				layout.Note(fmt.Sprintf("the sizes of chunks are the model's; of torch's own sums of them %s agreed, %s did not (a reading may lie between two events)", plain.Counted(m.Readings, "reading"), plain.FormatCount(m.Odd)))...),
			After: layout.Toned(layout.Faint, layout.Note("free memory of torch's pools of small and of large blocks counts as one arena")),
		}}
	}
	s := layout.Section{
		Title: "Native allocator",
		Before: append(
			layout.Note(fmt.Sprintf("memprof observed torch's own allocator (%s): requested, reserved and pending are exact", plain.Shorten(w.Allocator, 24))),
			layout.Note("provided is the allocator's own sum, read "+plain.Counted(w.Samples, "time")+": at peaks of requested, new segments and marks")...),
		After: layout.Toned(layout.Faint, layout.Note("not known, shown as "+plain.Absent+": rounding, slack, the parts of free memory, the largest free chunk, chunks of single allocations")),
	}
	if w.NotFollowed != "" {
		s.After = append(s.After, layout.Toned(layout.Warned, layout.Note("the model of torch's allocator does not follow it: "+plain.Text(w.NotFollowed)))...)
	}
	if w.Odd > 0 {
		s.After = append(s.After, layout.Toned(layout.Warned, layout.Note(plain.Counted(w.Odd, "reading")+" contradicted the events around it and is left out"))...)
	}
	return []layout.Section{s}
}

// jsonNative says how often the sums of the native allocator were read, and how many readings
// contradicted the events.
type jsonNative struct {
	Allocator string `json:"allocator"`
	Samples   int64  `json:"samples"`
	Odd       int64  `json:"odd"`
	Modeled   bool   `json:"modeled"` // chunks have the sizes of a model that came to the same addresses and segments
}

func newJSONNative(d *analysis.DeviceResult) *jsonNative {
	w := d.Native
	switch {
	case w == nil:
		return nil
	case w.Followed != nil:
		return &jsonNative{"native", w.Followed.Readings, w.Followed.Odd, true}
	}
	return &jsonNative{w.Allocator, w.Samples, w.Odd, false}
}
