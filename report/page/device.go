package page

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/report/plain"
	"github.com/memprof/memprof/report/terms"
	"github.com/memprof/memprof/report/units"
)

// pageBuilder makes the data of a page, again with fewer keyframes if it came out too long.
type pageBuilder struct {
	page   *Page
	frames map[*analysis.DeviceResult][]int // kept keyframes, indices
}

func newPageBuilder(p *Page) *pageBuilder {
	b := &pageBuilder{page: p, frames: map[*analysis.DeviceResult][]int{}}
	for _, r := range p.Results {
		for i := range r.Devices {
			d := &r.Devices[i]
			if d.Keyframes == nil {
				continue
			}
			for at := range d.Keyframes.Frames {
				b.frames[d] = append(b.frames[d], at)
			}
		}
	}
	return b
}

// thin gives up every second keyframe of those that may go, on each device that has more than
// the fewest. It says whether there were any.
func (b *pageBuilder) thin() bool {
	thinned := false
	for _, r := range b.page.Results {
		for i := range r.Devices {
			d := &r.Devices[i]
			if len(b.frames[d]) <= fewestFrames {
				continue
			}
			kept := everySecond(d.Keyframes.Frames, b.frames[d])
			thinned = thinned || len(kept) < len(b.frames[d])
			b.frames[d] = kept
		}
	}
	return thinned
}

// everySecond leaves out half of the frames at some places, but none that is essential.
func everySecond(frames []analysis.Keyframe, places []int) []int {
	var kept []int
	spare := 0
	for _, at := range places {
		if !frames[at].Essential() {
			if spare++; spare%2 != 0 {
				continue
			}
		}
		kept = append(kept, at)
	}
	return kept
}

// The data of the page. Sizes are bytes, times nanoseconds; names are clean and short.
type (
	pageReport struct {
		Path      string        `json:"path"`
		Ranks     *pageSection  `json:"ranks"`
		Processes []pageProcess `json:"processes"`
	}
	pageProcess struct {
		Name    string       `json:"name"`
		Path    string       `json:"path"` // of its recording
		Line    string       `json:"line"`
		Warning string       `json:"warning"` // "" for none
		Devices []pageDevice `json:"devices"`
	}
	pageDevice struct {
		Device     int32          `json:"device"`
		Line       string         `json:"line"`
		Total      int64          `json:"total"` // memory of the card, 0 if not known
		Empty      bool           `json:"empty"` // nothing was allocated
		Sampled    bool           `json:"sampled"`
		Period     int64          `json:"period"`
		Tiles      []pageTile     `json:"tiles"`
		Levels     []pageLevel    `json:"levels"` // of detail, the finest first
		Used       *pageUsed      `json:"used"`   // null where it was not read
		Bands      pageBands      `json:"bands"`
		Iterations pageIterations `json:"iterations"`
		Growths    pageGrowths    `json:"growths"`
		OOMs       []pageOOM      `json:"ooms"`
		OOMCount   int64          `json:"oomCount"` // more than are listed
		Subjects   map[string]any `json:"subjects"`
		Arenas     []pageArena    `json:"arenas"`
		Keyframes  *pageKeyframes `json:"keyframes"` // null without any
		Sections   []pageSection  `json:"sections"`
	}
	// pageTile is a number to see first.
	pageTile struct {
		Name  string `json:"name"`
		Value string `json:"value"`
		Note  string `json:"note"`
		Tone  string `json:"tone"`
	}
	pageOOM struct {
		Seq         int64  `json:"seq"`
		Time        int64  `json:"time"`
		Request     int64  `json:"request"`
		Free        int64  `json:"free"`
		LargestFree int64  `json:"largest"`
		Arena       int32  `json:"arena"`
		Verdict     string `json:"verdict"`
		Requester   string `json:"requester"`
	}
	pageArena struct {
		ID        int32  `json:"id"`
		Name      string `json:"name"`
		Tag       string `json:"tag"`
		Base      string `json:"base"` // hexadecimal
		Coalesces bool   `json:"coalesces"`
		Sampled   bool   `json:"sampled"`
	}
)

// build makes the data with the keyframes that are kept.
func (b *pageBuilder) build() []byte {
	var p pack
	return p.finish(b.describe(&p))
}

func (b *pageBuilder) describe(p *pack) pageReport {
	out := pageReport{Path: plain.Shorten(b.page.Path, 200), Processes: []pageProcess{}}
	if b.page.Ranks != nil {
		ranks := newPageSection(*b.page.Ranks)
		out.Ranks = &ranks
	}
	for _, r := range b.page.Results {
		process := pageProcess{Name: plain.Shorten(r.Process, 60), Path: plain.Shorten(cmp.Or(b.page.Paths[r], b.page.Path), 200), Line: terms.ProcessLine(r), Devices: []pageDevice{}}
		process.Warning = terms.EndNote(r)
		for i := range r.Devices {
			process.Devices = append(process.Devices, b.device(p, r, &r.Devices[i]))
		}
		out.Processes = append(out.Processes, process)
	}
	return out
}

func (b *pageBuilder) device(p *pack, r *analysis.Result, d *analysis.DeviceResult) pageDevice {
	out := pageDevice{
		Device: d.Device, Line: terms.DeviceLine(r, d), Total: d.Total, Empty: d.Allocs == 0 && d.MaxR == 0,
		Sampled: d.Sampled != nil, Period: d.Period, Tiles: pageTiles(d),
		Levels: newPageLevels(p, d.Series.Points), Used: newPageUsed(p, b.page.Used[d]),
		Bands: newPageBands(p, r.Bands), Iterations: newPageIterations(p, d), Growths: newPageGrowths(p, d),
		OOMs: []pageOOM{}, OOMCount: d.OOMCount, Subjects: b.page.Subjects(d), Arenas: newPageArenas(r), Sections: []pageSection{},
	}
	for i := range d.OOMs[:min(len(d.OOMs), storyOOMs)] {
		o := &d.OOMs[i]
		out.OOMs = append(out.OOMs, pageOOM{
			o.Seq, o.Time, o.Request, o.Free, o.LargestFree, o.Arena, plain.Shorten(terms.Verdict(o.Verdict), 40), terms.Context(o.Requester, terms.NameWidth),
		})
	}
	if d.Keyframes != nil && len(d.Keyframes.Frames) > 0 {
		out.Keyframes = newPageKeyframes(p, d.Keyframes, r, b.frames[d])
	}
	for _, s := range b.page.Sections(d) {
		if s.AtPins && out.Keyframes != nil || s.Listed {
			continue
		}
		out.Sections = append(out.Sections, newPageSection(s))
	}
	return out
}

// storyOOMs is how many failed requests the page lists.
const storyOOMs = 64

// pageTiles are the numbers to see first.
func pageTiles(d *analysis.DeviceResult) []pageTile {
	share := func(bytes int64) string {
		return units.FormatPercent(units.Ratio(bytes, d.Peak.R)) + " of reserved"
	}
	tiles := []pageTile{
		{Name: "Reserved at the peak", Value: units.FormatSize(d.Peak.R), Note: "physical memory"},
		{Name: "Requested at the peak", Value: units.FormatSize(d.Peak.T), Note: share(d.Peak.T)},
	}
	if d.Sampled != nil {
		tiles = append(tiles, pageTile{Name: "Not requested", Value: units.FormatSize(d.Peak.R - d.Peak.T - d.Peak.Pending), Note: "the allocator was only watched"})
	} else {
		tiles = append(tiles,
			pageTile{Name: "External", Value: units.FormatSize(d.Peak.External), Note: share(d.Peak.External), Tone: toneOf(units.Ratio(d.Peak.External, d.Peak.R))},
			pageTile{Name: "Internal", Value: units.FormatSize(d.Peak.Internal()), Note: share(d.Peak.Internal()), Tone: toneOf(units.Ratio(d.Peak.Internal(), d.Peak.R))},
			pageTile{Name: "Reusable", Value: units.FormatSize(d.Peak.Reusable), Note: share(d.Peak.Reusable)},
			pageTile{Name: "Reserve", Value: units.FormatSize(d.Peak.Reserve), Note: share(d.Peak.Reserve)},
		)
	}
	if b := d.Books; b != nil && b.UsedPeak >= 0 {
		note := "greatest reading of the job"
		if d.Total > 0 {
			note = "greatest reading, of " + units.FormatSize(d.Total)
		}
		tiles = append(tiles, pageTile{Name: "Device used", Value: units.FormatSize(b.UsedPeak), Note: note})
	}
	growth := pageTile{Name: "Growths", Value: units.FormatCount(d.GrowthCount), Note: "none for fragmentation"}
	if d.FragmentationGrowths > 0 {
		growth.Note, growth.Tone = units.FormatCount(d.FragmentationGrowths)+" for fragmentation", "warned"
	}
	tiles = append(tiles, growth)
	if d.OOMCount > 0 {
		tiles = append(tiles, pageTile{Name: "Failed requests", Value: units.FormatCount(d.OOMCount), Note: "out of memory", Tone: "failed"})
	}
	return tiles
}

// toneOf marks a share of waste that is worth a look.
func toneOf(share float64) string {
	if share >= 0.1 {
		return "warned"
	}
	return ""
}

func newPageArenas(r *analysis.Result) []pageArena {
	arenas := []pageArena{}
	for i := range r.Arenas {
		a := &r.Arenas[i]
		arenas = append(arenas, pageArena{
			ID: a.ID, Name: arenaName(a), Tag: plain.Shorten(a.Options["tag"], 40), Base: fmt.Sprintf("%#x", a.Base),
			Coalesces: a.Options["coalesces"] == "1", Sampled: a.Options["provided"] == "unknown",
		})
	}
	return arenas
}

// arenaName tells an arena from the others of its device.
func arenaName(a *analysis.ArenaInfo) string {
	parts := []string{fmt.Sprintf("arena %d", a.ID)}
	if a.Stream != 0 {
		parts = append(parts, fmt.Sprintf("stream %#x", a.Stream))
	}
	for _, key := range []string{"pool", "tag", "graph_memory", "shape"} {
		if value := a.Options[key]; value != "" && value != "0" && value != "0.0" {
			parts = append(parts, strings.ReplaceAll(key, "_", " ")+" "+plain.Shorten(value, 24))
		}
	}
	if a.Options["store"] != "" {
		parts = append(parts, "store")
	}
	if allocator := a.Options["allocator"]; allocator != "" {
		parts = append(parts, plain.Shorten(allocator, 16)+" allocator")
	}
	return strings.Join(parts, " · ")
}
