package report

import (
	"fmt"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/report/figure"
	"github.com/memprof/memprof/report/kv"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/plain"
	"github.com/memprof/memprof/report/terms"
)

type jsonReport struct {
	Processes []jsonProcess `json:"processes"`
	Ranks     jsonRanks     `json:"ranks"`
}

type jsonProcess struct {
	Process    string       `json:"process"`
	Events     int64        `json:"events"`
	DurationNS int64        `json:"duration_ns"`
	Recovered  bool         `json:"recovered"`
	InProgress bool         `json:"in_progress"` // there will be more events
	Devices    []jsonDevice `json:"devices"`
	Arenas     []jsonArena  `json:"arenas"`
}

type jsonDevice struct {
	Device       int32           `json:"device"`
	Allocs       int64           `json:"allocs"`
	Frees        int64           `json:"frees"`
	Peak         jsonInstant     `json:"peak"`
	Final        jsonInstant     `json:"final"`
	MaxRequested int64           `json:"max_requested"`
	MaxProvided  *int64          `json:"max_provided"`
	MaxReserved  int64           `json:"max_reserved"`
	Waste        jsonWaste       `json:"waste"`
	Iterations   []jsonIteration `json:"iterations"`
	Paper        *jsonPaper      `json:"paper"`
	Phases       []jsonPhase     `json:"phases"`
	ByPhase      []jsonByPhase   `json:"phase_iterations"`
	Held         *jsonHeld       `json:"held_at_peak"`
	GrowthCount  int64           `json:"growth_count"`
	Growths      []jsonGrowth    `json:"growths"`
	TopContexts  []jsonHolder    `json:"top_contexts"`
	TopSizes     []jsonHolder    `json:"top_sizes"`
	Leak         *jsonLeak       `json:"leak"`
	OOMs         []jsonOOM       `json:"ooms"`
	External     jsonExternal    `json:"external"`
	Books        *jsonBooks      `json:"books"`
	// KV is there only where an engine told of its memory for keys and values.
	KV []kv.JSONRecorded `json:"keys_and_values,omitempty"`
	// Transitions are there only where something was paused.
	Transitions []jsonTransition `json:"transitions,omitempty"`
	Sleep       *jsonSleep       `json:"sleep,omitempty"`
	// Graphs is there only where CUDA graphs were captured.
	Graphs *jsonGraphs `json:"graphs,omitempty"`
	// Watched is there only where an allocator was watched: its chunks are null everywhere.
	Watched *jsonWatched `json:"watched,omitempty"`
}

type jsonArena struct {
	ID          int32             `json:"id"`
	Device      int32             `json:"device"`
	Stream      int64             `json:"stream"`
	Base        int64             `json:"base"`
	Reservation int64             `json:"reservation"`
	Limit       *int64            `json:"limit"`
	Options     map[string]string `json:"options"`
}

// Plots returns the figures of each device of a result, in order. A device on which nothing
// happened has the same figures, each saying what is missing.
func Plots(r *analysis.Result) []figure.Figure {
	var figures []figure.Figure
	for i := range r.Devices {
		d := &r.Devices[i]
		drawn := []figure.Figure{timelineFigure(d), iterationsFigure(d), splitFigure(d), mapFigure(r, d)}
		if d.Sleep != nil {
			drawn = append(drawn, sleepFigure(d))
		}
		drawn = append(drawn, kv.RecordedFigures(d)...)
		for _, f := range drawn {
			f.Device = d.Device
			f.Title = terms.DeviceTitle(r, d) + " · " + f.Title
			figures = append(figures, f)
		}
	}
	return figures
}

// WritePlots draws the figures of a result as PNG and SVG into a directory, which must exist, and
// returns the paths in the order they were written: DIR/PREFIX-gpu0-timeline.png and so on. With
// an empty prefix the name of the process takes its place. Existing files and links are replaced; no
// link is followed. After an error the paths are those of the files that are complete.
func WritePlots(dir, prefix string, r *analysis.Result) ([]string, error) {
	if prefix == "" {
		prefix = r.Process
	}
	var paths []string
	for _, f := range Plots(r) {
		written, err := f.Write(dir, fmt.Sprintf("%s-gpu%d-%s", figure.FileName(prefix), f.Device, f.Name))
		paths = append(paths, written...)
		if err != nil {
			return paths, err
		}
	}
	return paths, nil
}

func newJSONProcess(r *analysis.Result) jsonProcess {
	p := jsonProcess{
		Process: r.Process, Events: r.Events, DurationNS: r.Duration, Recovered: r.Recovered, InProgress: r.Live,
		Devices: []jsonDevice{}, Arenas: []jsonArena{},
	}
	for i := range r.Devices {
		p.Devices = append(p.Devices, newJSONDevice(&r.Devices[i]))
	}
	for _, a := range r.Arenas {
		options := a.Options
		if options == nil {
			options = map[string]string{}
		}
		p.Arenas = append(p.Arenas, jsonArena{a.ID, a.Device, a.Stream, a.Base, a.Reservation, plain.Known(a.Limit), options})
	}
	return p
}

func newJSONDevice(d *analysis.DeviceResult) jsonDevice {
	j := jsonDevice{
		Device: d.Device, Allocs: d.Allocs, Frees: d.Frees,
		Peak: newJSONInstant(d, d.Peak), Final: newJSONInstant(d, d.Final),
		MaxRequested: d.MaxT, MaxProvided: plain.Known(d.MaxC), MaxReserved: d.MaxR,
		Waste:      newJSONWaste(d),
		Iterations: []jsonIteration{},
		Phases:     newJSONPhases(d.Phases), ByPhase: newJSONByPhase(d), Held: newJSONHeld(&d.Held),
		GrowthCount: d.GrowthCount, Growths: []jsonGrowth{},
		TopContexts: newJSONHolders(d, d.TopContexts), TopSizes: newJSONHolders(d, d.TopSizes),
		OOMs:     []jsonOOM{},
		External: jsonExternal{d.External.Live, d.External.Peak, d.External.Calls},
		Books:    newJSONBooks(d.Books),
		KV:       kv.RecordedJSON(d),
		Graphs:   newJSONGraphs(d.Graphs),
	}
	for _, it := range d.Iterations {
		j.Iterations = append(j.Iterations, jsonIteration{
			Number: it.Number, StartSeq: it.StartSeq, EndSeq: it.EndSeq, StartNS: it.Start, EndNS: it.End,
			PeakRequested: it.PeakT, PeakProvided: plain.Known(it.PeakC), PeakReserved: it.PeakR,
			EndRequested: it.EndT, EndProvided: plain.Known(it.EndC), EndPaused: it.EndPaused, Allocs: it.Allocs, AllocBytes: it.AllocBytes,
			More: it.More,
		})
	}
	if p := d.Paper; p.Valid {
		j.Paper = &jsonPaper{
			p.Of, plain.Finite(p.T1), plain.Finite(p.C1), plain.Finite(p.T2), plain.Finite(p.C2), plain.Finite(p.FirstExcess), plain.Finite(p.SteadyIdle),
			plain.Finite(p.OwnT1), plain.Finite(p.OwnC1), plain.Finite(p.OwnT2), plain.Finite(p.OwnC2),
		}
	}
	j.Leak = newJSONLeak(d)
	for _, g := range d.Growths {
		j.Growths = append(j.Growths, jsonGrowth{
			Seq: g.Seq, TimeNS: g.Time, Arena: g.Arena, Iteration: jsonIterationNumber(d, g.Iteration), Request: plain.Known(g.Request),
			Grown: g.Grown, Reserved: g.Reserved, Free: plain.Known(g.Free), LargestFree: plain.Known(g.LargestFree), Stranded: plain.Known(g.Stranded), Verdict: string(g.Verdict),
		})
	}
	for _, o := range d.OOMs {
		j.OOMs = append(j.OOMs, jsonOOM{
			Seq: o.Seq, TimeNS: o.Time, Arena: o.Arena, Request: o.Request, Free: plain.Known(o.Free), LargestFree: plain.Known(o.LargestFree),
			Verdict: string(o.Verdict), Context: o.Context, At: newJSONInstant(d, o.At), Held: newJSONHeld(o.Held),
		})
	}
	for _, t := range d.Transitions {
		j.Transitions = append(j.Transitions, jsonTransition{t.Seq, t.Time, t.Duration, t.Arena, t.Tag, t.Resume, t.Bytes, t.Copied, t.Reserved, t.Failed})
	}
	j.Sleep = newJSONSleep(d)
	if w := d.Sampled; w != nil {
		j.Watched = &jsonWatched{w.Allocator, w.Samples, w.Odd}
	}
	return j
}

// deviceSections is the report on one device, in reading order.
func deviceSections(d *analysis.DeviceResult) []layout.Section {
	if d.Allocs == 0 && d.MaxR == 0 {
		sections := []layout.Section{{Title: "No memory was allocated on this device"}}
		if d.External.Calls > 0 {
			sections = append(sections, externalSection(d))
		}
		sections = append(sections, booksSections(d)...)
		sections = append(sections, kv.RecordedSections(d)...)
		return append(sections, oomSections(d)...)
	}
	sections := append(layout.ShownWhole(oomSections(d)...), oomStories(d)...)
	sections = append(sections, watchedSections(d)...)
	sections = append(sections, layout.ShownAtPins(splitSection(d))...)
	sections = append(sections, peaksSection(d))
	sections = append(sections, booksSections(d)...)
	sections = append(sections, layout.ShownAtPins(heldSections(d)...)...)
	sections = append(sections, iterationSections(d)...)
	sections = append(sections, phaseSections(d)...)
	sections = append(sections, sleepSections(d)...)
	sections = append(sections, graphSections(d)...)
	sections = append(sections, layout.ShownWhole(growthSection(d))...)
	holders := append(layout.ShownAtPins(holderSections(d)...), leakSection(d))
	if d.Sampled != nil {
		holders = layout.Without("provided", holders)
	}
	sections = append(append(sections, holders...), leakStacks(d)...)
	return append(append(sections, externalSection(d)), kv.RecordedSections(d)...)
}
