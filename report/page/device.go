package page

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/keyframes"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/terms"
)

// builder makes the data of a page, again with fewer keyframes if the page is too long.
type builder struct {
	page   *Page
	frames map[*analysis.DeviceResult][]keyframes.Frame // the kept keyframes
}

func newBuilder(p *Page) *builder {
	b := &builder{page: p, frames: map[*analysis.DeviceResult][]keyframes.Frame{}}
	for _, r := range p.Results {
		for i := range r.Devices {
			if d := &r.Devices[i]; d.Keyframes != nil {
				b.frames[d] = d.Keyframes.Frames
			}
		}
	}
	return b
}

// thin drops every second of the keyframes that are not essential, on each device with more than
// fewestFrames, and reports whether it dropped any.
func (b *builder) thin() bool {
	thinned := false
	for _, r := range b.page.Results {
		for i := range r.Devices {
			d := &r.Devices[i]
			if len(b.frames[d]) <= fewestFrames {
				continue
			}
			kept := keyframes.EverySecond(b.frames[d])
			thinned = thinned || len(kept) < len(b.frames[d])
			b.frames[d] = kept
		}
	}
	return thinned
}

// The data of the page. Sizes are bytes, times nanoseconds; names are cleaned and shortened.
type (
	reportData struct {
		Path      string       `json:"path"`
		Ranks     *sectionData `json:"ranks"`
		Processes [0]bool      `json:"processes"` // stands for the texts of all processData, of which there may be thousands
		Server    *Server      `json:"server"`    // null if none answers the page
	}
	processData struct {
		Name    string       `json:"name"`
		Path    string       `json:"path"`    // of its recording
		Warning string       `json:"warning"` // "" for none
		Events  int64        `json:"events"`
		Devices []deviceData `json:"devices"`
	}
	deviceData struct {
		Device     int32          `json:"device"`
		Line       string         `json:"line"`
		Empty      bool           `json:"empty"` // nothing was allocated
		Native     bool           `json:"native"`
		Period     int64          `json:"period"`
		Levels     []columns      `json:"levels"` // of detail, the finest first
		Used       *usedData      `json:"used"`   // null if it was not read
		Bands      columns        `json:"bands"`
		Iterations columns        `json:"iterations"`
		Growths    columns        `json:"growths"`
		OOMs       []oomData      `json:"ooms"`
		OOMCount   int64          `json:"oomCount"` // ooms may list fewer
		Subjects   map[string]any `json:"subjects"`
		Arenas     []arenaData    `json:"arenas"`
		Keyframes  columns        `json:"keyframes"`  // null if there are none
		Categories columns        `json:"categories"` // likewise
		Stripes    columns        `json:"stripes"`    // likewise; null without keyframes
		Sections   []sectionData  `json:"sections"`
		First      []sectionData  `json:"first"` // where the recording comes from; findings
	}
	oomData struct {
		Seq         int64  `json:"seq"`
		Time        int64  `json:"time"`
		Request     int64  `json:"request"`
		Free        int64  `json:"free"`
		LargestFree int64  `json:"largest"`
		Arena       int32  `json:"arena"`
		Verdict     string `json:"verdict"`
		Origin      string `json:"origin"`
	}
	arenaData struct {
		ID     int32  `json:"id"`
		Name   string `json:"name"`
		Tag    string `json:"tag"`
		Base   string `json:"base"` // hexadecimal
		Native bool   `json:"native"`
	}
)

// build makes the data with the kept keyframes. The text of a process takes a quarter of the memory of its data.
func (b *builder) build() []byte {
	out := reportData{Path: plain.Shorten(b.page.Path, 200), Server: b.page.Server}
	if b.page.Ranks != nil {
		ranks := newSection(*b.page.Ranks)
		out.Ranks = &ranks
	}
	list := []byte(`"processes":[`) // in a string it would have backslashes
	before, after, _ := bytes.Cut(mustJSON(out), list)
	var p pack
	text := [][]byte{before, list}
	for i, r := range b.page.Results {
		if i > 0 {
			text = append(text, []byte(","))
		}
		text = append(text, mustJSON(b.process(&p, r)))
	}
	return p.finish(append(text, after)...)
}

func (b *builder) process(p *pack, r *analysis.Result) processData {
	process := processData{Name: plain.Shorten(r.Process, 60), Path: plain.Shorten(cmp.Or(b.page.Paths[r], b.page.Path), 200), Events: r.Events, Devices: []deviceData{}}
	process.Warning = terms.EndNote(r)
	for i := range r.Devices {
		process.Devices = append(process.Devices, b.device(p, r, &r.Devices[i]))
	}
	return process
}

func (b *builder) device(p *pack, r *analysis.Result, d *analysis.DeviceResult) deviceData {
	out := deviceData{
		Device: d.Device, Line: terms.DeviceLine(r, d), Empty: d.Allocs == 0 && d.MaxR == 0,
		Native: d.Chunks == nil, Period: d.Period,
		Levels: newLevels(p, d.Series.Points), Used: newUsed(p, b.page.Used[d]),
		Bands: newBands(p, r.Bands), Iterations: newIterations(p, d), Growths: newGrowths(p, d), Categories: newCategories(p, d.ByCategory),
		OOMs: []oomData{}, Subjects: b.page.Subjects(d), Arenas: newArenas(r), Sections: []sectionData{}, First: []sectionData{},
	}
	if d.Failures != nil {
		out.OOMCount = d.OOMCount
		for i := range d.OOMs[:min(len(d.OOMs), oomsShown)] {
			o := &d.OOMs[i]
			out.OOMs = append(out.OOMs, oomData{
				o.Seq, o.Time, o.Request, o.Free, o.LargestFree, o.Arena, plain.Shorten(terms.Verdict(o.Verdict), 40), terms.Context(o.Origin, terms.NameWidth),
			})
		}
	}
	if d.Keyframes != nil && len(d.Keyframes.Frames) > 0 {
		out.Keyframes = newKeyframes(p, d.Keyframes, r, b.frames[d])
		out.Stripes = newStripes(p, d.Keyframes.Largest)
	}
	for _, s := range b.page.First(r, d) {
		out.First = append(out.First, newSection(s))
	}
	if d.Held == nil { // the recording is still read
		return out
	}
	for _, s := range b.page.Sections(d) {
		if s.AtPins && out.Keyframes != nil || s.Listed {
			continue
		}
		out.Sections = append(out.Sections, newSection(s))
	}
	return out
}

// oomsShown is the most failed requests that the page lists.
const oomsShown = 64

func newArenas(r *analysis.Result) []arenaData {
	arenas := []arenaData{}
	for i := range r.Arenas {
		a := &r.Arenas[i]
		arenas = append(arenas, arenaData{
			ID: a.ID, Name: arenaName(a), Tag: plain.Shorten(a.Options["tag"], 40), Base: fmt.Sprintf("%#x", a.Base),
			Native: a.Options["provided"] == "unknown",
		})
	}
	return arenas
}

// arenaName distinguishes an arena from the others of its device.
func arenaName(a *ledger.Info) string {
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
