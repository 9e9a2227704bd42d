package report

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/pause"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/figure"
	"github.com/memprof/memprof/report/kv"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/summary"
	"github.com/memprof/memprof/report/terms"
)

type jsonReport struct {
	Processes []jsonProcess `json:"processes"`
	Ranks     jsonRanks     `json:"ranks"`
}

type jsonProcess struct {
	Process    string       `json:"process"`
	Job        *jsonJob     `json:"job"`
	Events     int64        `json:"events"`
	DurationNS int64        `json:"duration_ns"`
	Recovered  bool         `json:"recovered"`
	InProgress bool         `json:"in_progress"`  // there will be more events
	Calls      *jsonCalls   `json:"driver_calls"` // of memprof's allocator; null where they were not counted
	Devices    []jsonDevice `json:"devices"`
	Arenas     []jsonArena  `json:"arenas"`
}

// jsonCalls are driver calls of the steady iterations: those from number 4 on, or the last one. Without marked iterations they are those of the whole process,
// and "iterations" is 0. Time that was waited for the GPU is not in their time.
type jsonCalls struct {
	Iterations int64 `json:"iterations"`
	Calls      int64 `json:"calls"`
	TimeNS     int64 `json:"time_ns"`
	WaitedNS   int64 `json:"waited_ns"`
}

func newJSONCalls(log *iterations.CallLog) *jsonCalls {
	if !log.Known {
		return nil
	}
	calls, n := log.Steady()
	if n == 0 {
		calls = log.Total
	}
	return &jsonCalls{n, calls.Count, int64(calls.Time), int64(calls.Waited)}
}

// jsonDevice has the fields of all subjects: JSON shows those of an embedded struct as its own.
type jsonDevice struct {
	Device  int32           `json:"device"`
	GPU     *string         `json:"gpu"`
	Driver  *string         `json:"driver"`
	Alloc   *string         `json:"allocator"` // whose, and its policy in words; null where it is not known
	Total   int64           `json:"memory"`    // bytes; 0 where it is not known
	Allocs  int64           `json:"allocs"`
	Frees   int64           `json:"frees"`
	Summary *summary.Screen `json:"summary"`
	jsonPeaks
	jsonIterations
	Phases []jsonPhase `json:"phases"`
	Held   *jsonLive   `json:"held_at_peak"`
	jsonGrowths
	TopContexts []jsonAllocationGroup `json:"top_contexts"` // at the peak, as are the next
	TopSizes    []jsonAllocationGroup `json:"top_sizes"`
	Leak        *jsonLeak             `json:"leak"`
	jsonOOMs
	OtherLibraries *accounting.OtherLibraries `json:"other_libraries"` // what they allocated through the CUDA API
	Account        *jsonDeviceAccounting      `json:"accounting"`      // null if used memory was not asked for
	// The following are there only if an engine reported its KV cache, the job paused memory, memory has tags,
	// CUDA graphs were captured, memprof observed torch's own allocator.
	KV          []kv.JSONRecorded  `json:"kv_caches,omitempty"`
	Transitions []pause.Transition `json:"transitions,omitempty"`
	Pause       *jsonResumePlans   `json:"pause,omitempty"`
	Graphs      *jsonGraphs        `json:"graphs,omitempty"`
	Native      *jsonNative        `json:"native,omitempty"`
}

// jsonJob is what the recording says of the job; null for results that no recording describes.
type jsonJob struct {
	Recording  string   `json:"recording"`
	Command    []string `json:"command"`
	Host       string   `json:"host"`
	Start      *string  `json:"start"` // RFC 3339
	Exit       *int     `json:"exit_status"`
	Frameworks []string `json:"frameworks"`
	Memprof    string   `json:"memprof_version"`
	Snapshot   *string  `json:"snapshot"`       // of a recording written while its job ran: why
	Dropped    int64    `json:"dropped_events"` // before the first, by a ring
}

func newJSONJob(j *analysis.Job) *jsonJob {
	if j == nil {
		return nil
	}
	out := &jsonJob{
		Recording: j.Path, Command: append([]string{}, j.Command...), Host: j.Host, Exit: j.Exit,
		Frameworks: append([]string{}, j.Frameworks...), Memprof: j.Version,
	}
	out.Dropped = j.Dropped
	if j.Snapshot != nil {
		out.Snapshot = &j.Snapshot.Why
	}
	if !j.Start.IsZero() {
		start := j.Start.UTC().Format(time.RFC3339Nano)
		out.Start = &start
	}
	return out
}

// newJSONDevice asks each subject for its fields.
func newJSONDevice(r *analysis.Result, d *analysis.DeviceResult) jsonDevice {
	return jsonDevice{
		Device: d.Device, GPU: plain.NotEmpty(d.GPU), Driver: plain.NotEmpty(d.Driver), Alloc: plain.NotEmpty(strings.TrimPrefix(allocatorLine(r, d), "Allocator: ")), Total: d.Total, Allocs: d.Allocs, Frees: d.Frees, Summary: summary.Of(r, d),
		jsonPeaks: newJSONPeaks(d), jsonIterations: newJSONIterations(d), Phases: newJSONPhases(d), Held: newJSONLive(d.Chunks, d.Held), jsonGrowths: newJSONGrowths(d),
		TopContexts: newJSONAllocationGroups(d.Chunks, d.TopContexts), TopSizes: newJSONAllocationGroups(d.Chunks, d.TopSizes),
		Leak:     newJSONLeak(d),
		jsonOOMs: newJSONOOMs(d), OtherLibraries: d.OtherLibraries, Account: newJSONDeviceAccounting(d.Account), KV: kv.RecordedJSON(d), Transitions: d.Transitions,
		Pause: newJSONResumePlans(d), Graphs: newJSONGraphs(d.Graphs), Native: newJSONNative(d),
	}
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
			f.Footer = summary.Footer(r, d, allocatorLine(r, d))
			f.Title = terms.DeviceTitle(r, d) + " · " + f.Title
			figures = append(figures, f)
		}
	}
	return figures
}

// WritePlots draws the figures of a result as PNG and SVG into a directory, which must exist:
// DIR/PREFIX-gpu0-timeline.png and so on. An empty prefix stands for the name of the process. Existing files
// and links are replaced; no link is followed. Figures are drawn side by side, one on each core. It returns the
// paths in the order of the figures, after an error those of the files that are complete.
func WritePlots(dir, prefix string, r *analysis.Result) ([]string, error) {
	if prefix == "" {
		prefix = r.Process
	}
	figures := Plots(r)
	written := make([][]string, len(figures))
	failures := make([]error, len(figures))
	cores := make(chan struct{}, runtime.GOMAXPROCS(0))
	var drawing sync.WaitGroup
	for i, f := range figures {
		cores <- struct{}{}
		drawing.Go(func() {
			written[i], failures[i] = f.Write(dir, fmt.Sprintf("%s-gpu%d-%s", figure.FileName(prefix), f.Device, f.Name))
			<-cores
		})
	}
	drawing.Wait()
	return slices.Concat(written...), cmp.Or(failures...)
}

func newJSONProcess(r *analysis.Result) jsonProcess {
	p := jsonProcess{
		Process: r.Process, Job: newJSONJob(r.Job), Events: r.Events, DurationNS: r.Duration, Recovered: r.Recovered, InProgress: r.Live, Calls: newJSONCalls(&r.Calls),
		Devices: []jsonDevice{}, Arenas: []jsonArena{},
	}
	for i := range r.Devices {
		p.Devices = append(p.Devices, newJSONDevice(r, &r.Devices[i]))
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
	name     string                                        // as --section takes it
	about    string                                        // what the sections show; "" for a subject that is only drawn
	sections func(*analysis.DeviceResult) []layout.Section // nil for one that is only drawn
	figures  func(*analysis.Result, *analysis.DeviceResult) []figure.Figure
	unused   bool // has sections also for a device on which nothing was allocated

	page func(*analysis.DeviceResult) any // data for the scripts of a page; nil if the sections are enough
}

// findings is the name of the section of the first screen that can be asked for by itself.
const findings = "findings"

// subjects are all, in reading order.
var subjects = []subject{
	{name: findings, about: "changes that need less memory, by replays of the recording with each"},
	{name: "failures", about: "requests that failed", sections: oomSections, unused: true},
	{name: "native", about: "PyTorch's own allocator, observed", sections: nativeSections},
	{name: "timeline", figures: timelineFigures},
	{name: "split", about: "what each reserved byte was used for at the peak", sections: splitSections},
	{name: "peaks", about: "greatest requested, provided and reserved bytes", sections: peakSections},
	{name: "accounting", about: "the device's used memory, term by term", sections: accountingSections, unused: true},
	{name: "live", about: "live allocations at the peak by category, phase, module and stack", sections: attributionSections},
	{name: "iterations", about: "memory of each iteration", sections: iterationSections},
	{name: "phases", about: "memory of each phase", sections: phaseSections},
	{name: "pauses", about: "pauses and resumes of tagged memory", sections: pauseSections, page: pagePauses},
	{name: "resume", about: "the order in which to resume tagged memory", sections: resumeSections},
	{name: "graphs", about: "memory of CUDA graphs", sections: graphSections},
	{name: "growths", about: "requests that made an arena grow", sections: growthSections},
	{name: "allocations", about: "largest live allocations at the peak", sections: allocationSections},
	{name: "leaks", about: "live bytes that keep rising", sections: leakSections},
	{name: "libraries", about: "memory that other libraries allocated", sections: otherLibrarySections, unused: true},
	{name: "kv", about: "KV caches", sections: kv.RecordedSections, page: kv.PageData, unused: true},
}

// SectionNames returns the names of all sections with what they show, in reading order.
func SectionNames() (names, about []string) {
	for _, s := range subjects {
		if s.about != "" {
			names, about = append(names, s.name), append(about, s.about)
		}
	}
	return names, about
}

// empty says whether nothing was allocated on a device.
func empty(d *analysis.DeviceResult) bool { return d.Allocs == 0 && d.MaxR == 0 }

// deviceSections is the whole report on one device.
func deviceSections(d *analysis.DeviceResult) []layout.Section {
	return namedSections(d, func(string) bool { return true })
}

// namedSections are the sections of the subjects that wanted returns true for.
func namedSections(d *analysis.DeviceResult, wanted func(name string) bool) []layout.Section {
	var sections []layout.Section
	if empty(d) {
		sections = []layout.Section{{Title: "No memory was allocated on this device"}}
	}
	for _, s := range subjects {
		if s.sections != nil && (s.unused || !empty(d)) && wanted(s.name) {
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
