package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/terms"
)

// MomentsSections are the state of processes right after one event: a heading and its sections for each device of each process.
func MomentsSections(moments []*analysis.Moment) []layout.Section {
	var sections []layout.Section
	for _, m := range moments {
		if len(m.Devices) == 0 {
			sections = append(sections,
				layout.Section{Title: plain.Shorten(m.Process, 60), Before: layout.Note(momentLine(m)), Heading: true},
				layout.Section{Before: layout.Note("no memory of any device was used until then")})
		}
		for i := range m.Devices {
			title := fmt.Sprintf("%s · GPU %d", plain.Shorten(m.Process, 60), m.Devices[i].Device)
			sections = append(sections, layout.Section{Title: title, Before: layout.Note(momentLine(m)), Heading: true})
			sections = append(sections, momentSections(m, &m.Devices[i])...)
		}
	}
	return sections
}

func momentLine(m *analysis.Moment) string {
	return fmt.Sprintf("right after event %s (%s), %s after the start · phase %s", plain.FormatCount(m.Seq), m.Kind, plain.FormatDuration(m.Time), terms.Phase(m.Phase))
}

// momentSections are the sections about the peak, for another instant.
func momentSections(m *analysis.Moment, dm *analysis.DeviceMoment) []layout.Section {
	split := splitSection(dm)
	split.Title = "Memory"
	split.Before = layout.Note(fmt.Sprintf("%s live, after %s", plain.Counted(dm.At.Live, "allocation"), plain.Counted(int64(dm.At.Iteration), "marked iteration")))
	sections := slices.Concat([]layout.Section{split, arenasSection(dm)}, heldSections(dm, len(dm.Held.Phases.Groups) > 1), sizeSections(dm))
	for i := range sections {
		sections[i].Title = strings.Replace(sections[i].Title, "at the peak", "then", 1)
	}
	return sections
}

// arenasSection says how each arena is divided.
func arenasSection(dm *analysis.DeviceMoment) layout.Section {
	s := layout.Section{Title: "Arenas", Columns: []layout.Column{
		layout.Numbers("arena"), layout.Numbers("reserved"), layout.Numbers("requested"), layout.Numbers("provided"), layout.Numbers("reserve"), layout.Numbers("reusable"), layout.Numbers("external"), layout.Numbers("allocations"),
	}}
	for i := range dm.Map.Arenas {
		a := &dm.Map.Arenas[i]
		s.Rows = append(s.Rows, layout.Row(plain.FormatCount(int64(a.Arena)), plain.FormatSize(a.At.R), plain.FormatSize(a.At.T), plain.FormatKnown(a.At.C),
			plain.FormatSize(a.At.Reserve), plain.FormatSize(a.At.Reusable), plain.FormatSize(a.At.External), plain.FormatCount(a.At.Live)))
	}
	if len(s.Rows) == 0 {
		s.Columns, s.Before = nil, layout.Toned(layout.Faint, layout.Note("no memory is mapped"))
	}
	if largest := dm.Chunks.Largest(); largest >= 0 {
		s.After = layout.Note("largest free chunk: " + plain.FormatSize(largest))
	}
	return s
}

type jsonMoment struct {
	Process string             `json:"process"`
	Seq     int64              `json:"seq"`
	Event   string             `json:"event"`
	TimeNS  int64              `json:"time_ns"`
	Phase   string             `json:"phase"`
	Devices []jsonDeviceMoment `json:"devices"`
}

type jsonDeviceMoment struct {
	Iterations  int                   `json:"iterations_before"` // marked ones; the instant's own has no number yet
	Device      int32                 `json:"device"`
	At          jsonInstant           `json:"at"`
	LargestFree *int64                `json:"largest_free"`
	Arenas      []jsonArenaAt         `json:"arenas"`
	Held        *jsonLive             `json:"held"`
	TopSizes    []jsonAllocationGroup `json:"top_sizes"`
}

type jsonArenaAt struct {
	Arena  int32       `json:"arena"`
	At     jsonInstant `json:"at"`
	Base   int64       `json:"base"`
	Extent int64       `json:"extent"`
	// Spans tile the extent: start from the base, bytes, and what they are.
	Spans []ledger.Span `json:"spans"`
}

// MomentsJSON writes one JSON object, {"moments": [...]}, indented, under the rules of [JSON]. It has every
// span of every arena. It fails only if w does.
func MomentsJSON(w io.Writer, moments []*analysis.Moment) error {
	out := struct {
		Moments []jsonMoment `json:"moments"`
	}{Moments: []jsonMoment{}}
	for _, m := range moments {
		jm := jsonMoment{m.Process, m.Seq, m.Kind.String(), m.Time, m.Phase, []jsonDeviceMoment{}}
		for i := range m.Devices {
			jm.Devices = append(jm.Devices, newJSONDeviceMoment(&m.Devices[i]))
		}
		out.Moments = append(out.Moments, jm)
	}
	return plain.WriteJSON(w, out)
}

func newJSONDeviceMoment(dm *analysis.DeviceMoment) jsonDeviceMoment {
	out := jsonDeviceMoment{
		Iterations: dm.At.Iteration, Device: dm.Device, At: newJSONInstant(dm.Chunks, dm.At, nil), LargestFree: plain.Known(dm.Chunks.Largest()), Arenas: []jsonArenaAt{},
		Held: newJSONLive(dm.Chunks, dm.Held), TopSizes: newJSONAllocationGroups(dm.Chunks, dm.TopSizes),
	}
	for i := range dm.Map.Arenas {
		a := &dm.Map.Arenas[i]
		out.Arenas = append(out.Arenas, jsonArenaAt{a.Arena, newJSONInstant(dm.Chunks, a.At, nil), a.Base, a.Extent, append([]ledger.Span{}, a.Spans...)})
	}
	return out
}
