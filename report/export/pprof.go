package export

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/attribution"
)

// The instants that [Pprof] can describe.
const (
	AtPeak = "peak" // the peak of each device
	AtOOM  = "oom"  // the first failed request of each device that has one
	AtEnd  = "end"  // after the last event of each process
)

// ErrNoOOM is the error of [Pprof] at AtOOM for a recording without a failed request.
var ErrNoOOM = errors.New("no request failed in the recording: there is no instant \"oom\", want peak or end")

// The kinds of frames of a profile.
const (
	ByStack  = "stack"  // call stacks, as record --stacks has them
	ByModule = "module" // components of the dotted path of the allocation's module
)

// PprofOptions select the instant and the frames of a profile.
type PprofOptions struct {
	At        string // AtPeak, AtOOM, AtEnd, or the number of the event that [Recording.CutAt] made the last
	By        string // ByStack or ByModule; "" means ByStack if the recording has stacks, otherwise ByModule
	AllFrames bool   // keep frames of installed packages and of what lies under Python, too
}

// Pprof writes a gzipped profile; see the package comment. Allocations without a stack or a named module have one
// frame, "(no stack)" or "(no module)".
func Pprof(w io.Writer, r *Recording, opt PprofOptions) error {
	var results []*analysis.Result
	for _, process := range r.Run.Processes {
		result, err := r.analyze(process, analysis.Options{LiveGroups: true, AllFrames: opt.AllFrames})
		if err != nil {
			return err
		}
		results = append(results, result)
	}
	if opt.At == AtOOM && !anyOOM(results) {
		return ErrNoOOM
	}
	if opt.By == "" {
		opt.By = ByModule
		if anyStack(results, opt.At) {
			opt.By = ByStack
		}
	}
	p := newProfile(r, opt)
	for _, result := range results {
		for i := range result.Devices {
			d := &result.Devices[i]
			for _, group := range groupsAt(d, opt.At) {
				p.add(result.Process, d.Device, &group)
			}
		}
	}
	if err := p.CheckValid(); err != nil {
		return fmt.Errorf("the profile: %w", err)
	}
	return p.Write(w)
}

func groupsAt(d *analysis.DeviceResult, at string) []attribution.LiveGroup {
	switch at {
	case AtPeak:
		return d.PeakLive
	case AtOOM:
		return d.OOMLive
	}
	return d.FinalLive
}

func anyOOM(results []*analysis.Result) bool {
	return slices.ContainsFunc(results, func(r *analysis.Result) bool {
		return slices.ContainsFunc(r.Devices, func(d analysis.DeviceResult) bool { return d.OOMCount > 0 })
	})
}

func anyStack(results []*analysis.Result, at string) bool {
	return slices.ContainsFunc(results, func(r *analysis.Result) bool {
		return slices.ContainsFunc(r.Devices, func(d analysis.DeviceResult) bool {
			return slices.ContainsFunc(groupsAt(&d, at), func(g attribution.LiveGroup) bool { return len(g.Frames) > 0 })
		})
	})
}

// profiler builds a profile in which each function and line occurs once.
type profiler struct {
	profile.Profile
	by        string
	functions map[[2]string]*profile.Function // by name and file
	locations map[frame]*profile.Location
}

func newProfile(r *Recording, opt PprofOptions) *profiler {
	p := &profiler{by: opt.By, functions: map[[2]string]*profile.Function{}, locations: map[frame]*profile.Location{}}
	p.SampleType = []*profile.ValueType{
		{Type: "inuse_objects", Unit: "count"}, {Type: "inuse_space", Unit: "bytes"}, {Type: "provided_space", Unit: "bytes"},
	}
	p.DefaultSampleType = "inuse_space"
	p.PeriodType, p.Period = &profile.ValueType{Type: "space", Unit: "bytes"}, 1
	info := &r.Run.Info
	if !info.Start.IsZero() {
		p.TimeNanos = info.Start.UnixNano()
	}
	p.DurationNanos = info.DurationNS
	instant := "after event " + opt.At
	switch opt.At {
	case AtPeak:
		instant = "at the peak of each device"
	case AtOOM:
		instant = "at the first request of each device that failed"
	case AtEnd:
		instant = "after the last event"
	}
	p.Comments = []string{"memprof: GPU memory " + instant + ", by " + opt.By, strings.Join(info.Command, " ")}
	return p
}

func (p *profiler) add(process string, device int32, group *attribution.LiveGroup) {
	sample := &profile.Sample{
		Value: []int64{group.Blocks, group.Requested, group.Provided},
		Label: map[string][]string{"device": {strconv.Itoa(int(device))}}, // as text: pprof drops a numeric label of 0
	}
	for key, value := range map[string]string{
		"process": process, "module": group.Module, "category": group.Category, "phase": group.Phase, "tag": group.Tag,
	} {
		if value != "" {
			sample.Label[key] = []string{value}
		}
	}
	for _, f := range p.framesOf(group) {
		sample.Location = append(sample.Location, p.location(f))
	}
	p.Sample = append(p.Sample, sample)
}

// framesOf returns the frames of a sample, innermost first.
func (p *profiler) framesOf(group *attribution.LiveGroup) []frame {
	var frames []frame
	if p.by == ByStack {
		for _, text := range group.Frames {
			frames = append(frames, parseFrame(text))
		}
		if frames == nil {
			return []frame{{function: "(no stack)"}}
		}
		return frames
	}
	if !group.Dotted {
		return []frame{{function: cmp.Or(group.Module, "(no module)")}}
	}
	for name := group.Module; ; {
		frames = append(frames, frame{function: name})
		end := strings.LastIndexByte(name, '.')
		if end < 0 {
			return frames
		}
		name = name[:end]
	}
}

func (p *profiler) location(f frame) *profile.Location {
	if l, known := p.locations[f]; known {
		return l
	}
	key := [2]string{f.function, f.file}
	function := p.functions[key]
	if function == nil {
		function = &profile.Function{ID: uint64(len(p.Function) + 1), Name: f.function, SystemName: f.function, Filename: f.file}
		p.functions[key] = function
		p.Function = append(p.Function, function)
	}
	l := &profile.Location{ID: uint64(len(p.Location) + 1), Line: []profile.Line{{Function: function, Line: f.line}}}
	p.locations[f] = l
	p.Location = append(p.Location, l)
	return l
}
