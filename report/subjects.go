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

// jsonDevice has the fields of all subjects: JSON shows those of an embedded struct as its own.
type jsonDevice struct {
	Device int32 `json:"device"`
	Allocs int64 `json:"allocs"`
	Frees  int64 `json:"frees"`
	jsonPeaks
	jsonIterations
	jsonPhases
	jsonAttribution
	jsonGrowths
	jsonAllocations
	jsonLeaks
	jsonOOMs
	jsonOtherLibraries
	jsonAccounting
	jsonKV
	jsonPauses
	jsonResume
	jsonGraphMemory
	jsonNative
}

// newJSONDevice asks each subject for its fields.
func newJSONDevice(d *analysis.DeviceResult) jsonDevice {
	return jsonDevice{
		Device: d.Device, Allocs: d.Allocs, Frees: d.Frees,
		jsonPeaks: newJSONPeaks(d), jsonIterations: newJSONIterations(d), jsonPhases: newJSONPhases(d),
		jsonAttribution: newJSONAttribution(d), jsonGrowths: newJSONGrowths(d), jsonAllocations: newJSONAllocations(d),
		jsonLeaks: newJSONLeaks(d), jsonOOMs: newJSONOOMs(d), jsonOtherLibraries: newJSONOtherLibraries(d),
		jsonAccounting: newJSONAccounting(d), jsonKV: jsonKV{kv.RecordedJSON(d)}, jsonPauses: newJSONPauses(d),
		jsonResume: newJSONResume(d), jsonGraphMemory: newJSONGraphMemory(d), jsonNative: newJSONNative(d),
	}
}

// jsonKV is there only if an engine reported its KV cache.
type jsonKV struct {
	KV []kv.JSONRecorded `json:"keys_and_values,omitempty"`
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

// Plots returns the figures of each device of a result. Figures of a device on which nothing happened say
// so.
func Plots(r *analysis.Result) []figure.Figure {
	var figures []figure.Figure
	for i := range r.Devices {
		d := &r.Devices[i]
		var drawn []figure.Figure
		for _, s := range subjects {
			if s.figures != nil {
				drawn = append(drawn, s.figures(r, d)...)
			}
		}
		for _, f := range drawn {
			f.Device = d.Device
			f.Title = terms.DeviceTitle(r, d) + " · " + f.Title
			figures = append(figures, f)
		}
	}
	return figures
}

// WritePlots draws the figures of a result as PNG and SVG into a directory, which must exist:
// DIR/PREFIX-gpu0-timeline.png and so on. An empty prefix stands for the name of the process. Existing files
// and links are replaced; no link is followed. It returns the paths in the order they were written, after an
// error those of the files that are complete.
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

// subject is one topic of the report on a device. Its file has its sections, its figures and its part
// of the JSON; a page shows the sections.
type subject struct {
	sections func(*analysis.DeviceResult) []layout.Section // nil for one that is only drawn
	figures  func(*analysis.Result, *analysis.DeviceResult) []figure.Figure
	unused   bool // has sections also for a device on which nothing was allocated

	// Data for the scripts of a page, by a name of the subject; nil if its sections are enough.
	name string
	page func(*analysis.DeviceResult) any
}

// subjects are all, in reading order.
var subjects = []subject{
	{sections: oomSections, unused: true},
	{sections: nativeSections},
	{figures: timelineFigures},
	{sections: splitSections, figures: splitFigures},
	{sections: peakSections},
	{sections: accountingSections, unused: true},
	{sections: attributionSections},
	{sections: iterationSections, figures: iterationFigures},
	{sections: phaseSections},
	{sections: pauseSections, figures: pauseFigures, name: "pauses", page: pagePauses},
	{sections: resumeSections},
	{sections: graphSections},
	{sections: growthSections},
	{sections: allocationSections},
	{sections: leakSections},
	{sections: otherLibrarySections, unused: true},
	{figures: addressFigures},
	{sections: kv.RecordedSections, figures: kv.RecordedFigures, unused: true},
}

// deviceSections is the report on one device.
func deviceSections(d *analysis.DeviceResult) []layout.Section {
	var sections []layout.Section
	empty := d.Allocs == 0 && d.MaxR == 0
	if empty {
		sections = []layout.Section{{Title: "No memory was allocated on this device"}}
	}
	for _, s := range subjects {
		if s.sections != nil && (s.unused || !empty) {
			sections = append(sections, s.sections(d)...)
		}
	}
	return sections
}

// pageData is what the scripts of a page read of each subject.
func pageData(d *analysis.DeviceResult) map[string]any {
	data := map[string]any{}
	for _, s := range subjects {
		if s.page != nil {
			data[s.name] = s.page(d)
		}
	}
	return data
}
