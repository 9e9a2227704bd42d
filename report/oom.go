package report

import (
	"fmt"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/summary"
	"github.com/memprof/memprof/report/terms"
)

// oomSections say why the first request failed and what would have served it, list the requests that failed, and
// what was live when the first of them did.
func oomSections(d *analysis.DeviceResult) []layout.Section {
	if len(d.OOMs) == 0 {
		return nil
	}
	s := layout.Section{
		Title:  "Out of memory",
		Listed: true,
		Before: layout.Toned(layout.Failed, layout.Note(fmt.Sprintf("%s failed", plain.Counted(int64(len(d.OOMs)), "request")))),
		Columns: []layout.Column{
			layout.Numbers("time"), layout.Numbers("request"), layout.Numbers("free"), layout.Numbers("largest free"), layout.Numbers("reserved"), layout.Words("verdict"), layout.Words("context"),
		},
	}
	for _, o := range d.OOMs {
		line := layout.Row(plain.FormatDuration(o.Time), plain.FormatKnown(o.Request), plain.FormatKnown(o.Free), plain.FormatKnown(o.LargestFree),
			plain.FormatSize(o.At.R), terms.Verdict(o.Verdict), terms.Context(o.Origin, 24))
		line[5].Tone = layout.Failed
		s.Rows = append(s.Rows, line)
	}
	s.Elide(8, 4)
	s.After = verdictNotes(d.OOMs)
	return append([]layout.Section{whySection(d, &d.OOMs[0]), s}, oomTables(d)...)
}

// verdictNotes explain the verdicts that occur.
func verdictNotes(ooms []analysis.OOM) []layout.Cell {
	has := make(map[analysis.Verdict]bool)
	for _, o := range ooms {
		has[o.Verdict] = true
	}
	var notes []layout.Cell
	if has[analysis.Fragmentation] {
		notes = append(notes, layout.Note(terms.FragmentationMeans)...)
	}
	if has[analysis.Capacity] {
		notes = append(notes, layout.Note("capacity: fewer bytes were free than requested")...)
	}
	return notes
}

// How many failed requests have a table of live allocations, and how many lines it has.
const (
	oomTablesShown  = 3
	oomModulesShown = 6
	oomStacksShown  = 3
	oomFramesShown  = 3
)

// oomNameWidth is the most columns of a name in such a table.
const oomNameWidth = 44

// oomTables list the live allocations when a request failed, for the first of them.
func oomTables(d *analysis.DeviceResult) []layout.Section {
	var sections []layout.Section
	for i := range d.OOMs {
		if o := &d.OOMs[i]; o.Held != nil && o.At.Live > 0 && len(sections) < oomTablesShown {
			sections = append(sections, oomTable(d, o))
		}
	}
	return sections
}

// oomTable is a table of live allocations by category, phase, module and stack: each of these has all.
func oomTable(d *analysis.DeviceResult, o *analysis.OOM) layout.Section {
	s := layout.Section{
		Title:   "Live allocations when the request at event " + plain.FormatCount(o.Seq) + " failed",
		Before:  append(layout.Note(plain.FormatKnown(o.Request)+" requested by "+terms.Context(o.Origin, oomNameWidth)), layout.Note(terms.Instant(d, o.At))...),
		Columns: []layout.Column{layout.Words("by"), layout.Words("name"), layout.Numbers("allocations"), layout.Numbers("requested"), layout.Numbers("share of T")},
	}
	line := func(by, who string, g *attribution.Group) {
		s.Rows = append(s.Rows, layout.Row(by, who, plain.FormatCount(g.Blocks), plain.FormatSize(g.Requested), plain.FormatPercent(plain.Ratio(g.Requested, o.At.T))))
	}
	list := func(by string, b *attribution.Breakdown, shown int, text func(*attribution.Group) string) {
		first, rest, more := firstGroups(b, shown)
		for i := range first {
			g := &first[i]
			line(by, text(g), g)
			for _, caller := range callers(g, oomFramesShown, 1) {
				s.Rows = append(s.Rows, layout.Toned(layout.Faint, layout.Row("", plain.Shorten(caller[0].Text, oomNameWidth), "", "", "")))
			}
			by = ""
		}
		if more > 0 {
			line("", "… "+plain.FormatCount(more)+" more", &rest)
			layout.Toned(layout.Faint, s.Rows[len(s.Rows)-1])
		}
	}
	held := o.Held
	if held.Known {
		list("category", &held.Categories, len(held.Categories.Groups), func(g *attribution.Group) string { return g.Name })
	}
	if len(d.Phases) > 0 {
		list("phase", &held.Phases, phasesShown, func(g *attribution.Group) string { return plain.Shorten(terms.Phase(g.Name), oomNameWidth) })
	}
	if len(held.Kinds.Groups) > 1 || held.Kinds.Groups[0].Name != "" {
		list("module", &held.Kinds, oomModulesShown, func(g *attribution.Group) string { return plain.Shorten(terms.Module(g.Name), oomNameWidth) })
	}
	if hasFrames(&held.Stacks) {
		list("stack", &held.Stacks, oomStacksShown, func(g *attribution.Group) string { return plain.Shorten(innermost(g), oomNameWidth) })
	}
	all := held.Categories.Sum()
	s.Total = layout.Toned(layout.Strong, layout.Row("", "= requested", plain.FormatCount(all.Blocks), plain.FormatSize(all.Requested), plain.FormatPercent(plain.Ratio(all.Requested, o.At.T))))
	return s
}

// whySection divides the card when a request failed: who held what, what was free, and why that could not serve
// the request. Below is the smallest change that would have let it through.
func whySection(d *analysis.DeviceResult, o *analysis.OOM) layout.Section {
	s := layout.Section{
		Title:   fmt.Sprintf("Why %s failed", plain.FormatKnown(o.Request)),
		Before:  layout.Note("event " + plain.FormatCount(o.Seq) + ", requested by " + terms.Context(o.Origin, oomNameWidth)),
		Columns: []layout.Column{layout.Words("memory"), layout.Numbers("bytes"), layout.Words("why it could not serve the request")},
	}
	line := func(memory string, bytes int64, why string) {
		if bytes > 0 {
			s.Rows = append(s.Rows, layout.Row(memory, plain.FormatSize(bytes), why))
		}
	}
	line("requested", o.At.T, "by live allocations")
	divided := o.LargestFree >= 0 // chunks are known
	if !divided {
		line("not requested", o.At.R-o.At.T-o.At.Pending, "PyTorch's allocator reserved it; its free blocks are not known")
	} else {
		line("rounding, slack", o.At.Internal(), "in chunks of live allocations")
	}
	line("pending", o.At.Pending, "freed; another stream may still use it")
	if divided {
		own := o.Free - o.Stranded
		line("largest free chunk", o.LargestFree, largestWhy(o))
		line("other free chunks", own-o.LargestFree, "each is smaller than the largest")
		stranded := "of other streams, pools, tags or size classes"
		if o.Capturing {
			stranded = "cannot be unmapped while a CUDA graph is captured"
		}
		line("free in other arenas", o.Stranded, stranded)
	}
	if o.Used >= 0 {
		line("other libraries", o.OtherLibraries, "allocated outside of PyTorch, as by NCCL")
		line("driver, other processes", o.Used-o.At.R-o.OtherLibraries, "CUDA contexts, kernels, other programs on the GPU")
		line("free on the GPU", d.Total-o.Used, cardWhy(d, o))
	}
	if d.Total > 0 && o.Used >= 0 {
		s.Total = layout.Toned(layout.Strong, layout.Row("= memory of the GPU", plain.FormatSize(d.Total), ""))
	} else {
		s.Total = layout.Toned(layout.Strong, layout.Row("= reserved", plain.FormatSize(o.At.R), ""))
		if d.Total > 0 {
			note := "GPU of " + plain.FormatSize(d.Total) + "; what it had in use then was not read"
			if o.OtherLibraries > 0 {
				note += "; other libraries had " + plain.FormatSize(o.OtherLibraries)
			}
			s.After = layout.Note(note)
		}
	}
	if before := d.Account; before != nil && before.UsedBeforeJob > 0 {
		s.After = append(s.After, layout.Note("in use on the GPU before the job began: "+plain.FormatSize(before.UsedBeforeJob))...)
	}
	s.After = append(s.After, layout.Cell{Text: "Smallest change: " + summary.Change(d, o), Tone: layout.Strong})
	return s
}

// largestWhy says why the largest free chunk of the arena could not serve a request.
func largestWhy(o *analysis.OOM) string {
	if o.LargestFree < o.Request {
		return "smaller than the request"
	}
	return "its unmapped pages could not be mapped"
}

// cardWhy says why free memory of the GPU could not serve a request.
func cardWhy(d *analysis.DeviceResult, o *analysis.OOM) string {
	free := d.Total - o.Used
	switch {
	case o.Limit >= 0 && o.Limit < d.Total && o.At.R+o.Request > o.Limit:
		return "the arena may reserve " + plain.FormatSize(o.Limit) + " (--limit)"
	case free < o.Request:
		return "less than the request"
	}
	return "the driver refused it, or it was freed since"
}

// jsonOOMs are the requests that failed, and what would have served them.
type jsonOOMs struct {
	OOMs   []jsonOOM   `json:"ooms"`
	Remedy *jsonRemedy `json:"remedy"` // null where nothing failed, and where nothing was replayed
}

// jsonRemedy is the smallest change under which all requests are served, by replays.
type jsonRemedy struct {
	Allocator *string  `json:"allocator"`     // "torch" or "memprof"; null if none suffices
	Setting   *string  `json:"setting"`       // flags of memprof record, or of torch "native" or the text of its variable; null if none suffices
	Reserved  *int64   `json:"peak_reserved"` // under setting
	Missing   int64    `json:"missing"`       // without setting: what the card lacks at least
	Tried     []string `json:"tried"`         // settings that do not suffice
}

// jsonOOM is a failed request: free bytes and chunks of its arena, and what was live.
type jsonOOM struct {
	Seq         int64       `json:"seq"`
	TimeNS      int64       `json:"time_ns"`
	Arena       int32       `json:"arena"`
	Request     int64       `json:"request"`
	Free        *int64      `json:"free"`
	LargestFree *int64      `json:"largest_free"`
	TooSmall    *int64      `json:"too_small"`
	Stranded    *int64      `json:"stranded"`
	Limit       *int64      `json:"limit"`           // of the arena
	DeviceUsed  *int64      `json:"device_used"`     // by all processes
	Libraries   int64       `json:"other_libraries"` // of device_used
	Verdict     string      `json:"verdict"`
	Context     string      `json:"context"`
	At          jsonInstant `json:"at"`
	Held        *jsonLive   `json:"held"`
}

func newJSONOOMs(d *analysis.DeviceResult) jsonOOMs {
	j := jsonOOMs{OOMs: []jsonOOM{}}
	if r := d.Remedy; r != nil {
		j.Remedy = &jsonRemedy{Allocator: plain.NotEmpty(r.Allocator), Setting: plain.NotEmpty(r.Setting), Missing: r.Missing, Tried: append([]string{}, r.Tried...)}
		if r.Setting != "" {
			j.Remedy.Reserved = &r.Reserved
		}
	}
	for _, o := range d.OOMs {
		j.OOMs = append(j.OOMs, jsonOOM{
			Seq: o.Seq, TimeNS: o.Time, Arena: o.Arena, Request: o.Request, Free: plain.Known(o.Free), LargestFree: plain.Known(o.LargestFree),
			TooSmall: plain.Known(o.TooSmall), Stranded: plain.Known(o.Stranded),
			Limit: plain.Known(o.Limit), DeviceUsed: plain.Known(o.Used), Libraries: o.OtherLibraries,
			Verdict: string(o.Verdict), Context: o.Context, At: newJSONInstant(d.Chunks, o.At, jsonIterationNumber(d, o.At.Iteration)), Held: newJSONLive(d.Chunks, o.Held),
		})
	}
	return j
}
