// Package recording analyzes whole recordings. [Analyze] runs one pass over each process, reads what the
// devices had in use, and closes the device accounting between the two; [Jobs] joins the recordings of
// the nodes of one job.
package recording

import (
	"fmt"
	"slices"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/trace"
)

// Recording is a recording and what one pass over each of its processes found.
type Recording struct {
	Path    string // as the user named it
	Run     *trace.Run
	Results []*analysis.Result // of Run.Processes

	Readings *analysis.Readings // of used memory; nil without any
}

// Analyze runs over each process of run, which was opened at path. The recording itself says what of opt
// is about a process.
func Analyze(path string, run *trace.Run, opt analysis.Options) (Recording, error) {
	r := Recording{Path: path, Run: run}
	readings, missing := readReadings(path, run)
	r.Readings, opt.Moments = readings, readings.Moments()
	opt.ExactEvents = exactEvents(run, opt.ExactEvents)
	for _, process := range run.Processes {
		result, err := analyzeProcess(process, &run.Info, opt)
		if err != nil {
			return r, err
		}
		nameCards(result, &run.Info)
		result.Job = jobOf(path, run)
		result.Job.Imported = run.Info.ImportOf(process.Name)
		result.Job.Snapshot, result.Job.Dropped = run.Info.Snapshot, process.Dropped()
		r.Results = append(r.Results, result)
	}
	closeAccounting(run, r.Results, readings, missing)
	r.failureReadings()
	return r, nil
}

// Choose leaves out the processes that wanted returns false for. Their memory stays in the accounting of the
// devices.
func (r *Recording) Choose(wanted func(*trace.Process) bool) {
	var results []*analysis.Result
	for i, process := range r.Run.Processes {
		if wanted(process) {
			results = append(results, r.Results[i])
		}
	}
	r.Results = results
	r.Run.Choose(wanted)
}

func jobOf(path string, run *trace.Run) *analysis.Job {
	info := &run.Info
	return &analysis.Job{
		Path: path, Command: info.Command, Host: info.Host, Start: info.Start, Exit: info.ExitStatus,
		Frameworks: info.Frameworks, Version: info.Version,
		Running: info.ExitStatus == nil && (run.Live || info.Snapshot != nil),
	}
}

func analyzeProcess(process *trace.Process, info *trace.Info, opt analysis.Options) (*analysis.Result, error) {
	of := OptionsOf(process)
	opt.Process, opt.Text, opt.FirstSeq, opt.Recovered, opt.Live = of.Process, of.Text, of.FirstSeq, of.Recovered, of.Live
	exactly := opt.Explore && opt.ExactEvents > 0
	if exactly && process.Events <= opt.ExactEvents {
		opt.Exact, exactly = everyEvent(), false
	}
	result, err := runOver(process, opt)
	if err == nil && exactly { // which iterations are kept exactly is known only now
		opt.Exact = exactSpans(result, opt.FirstSeq, opt.ExactEvents)
		result, err = runOver(process, opt)
	}
	if err == nil && slices.ContainsFunc(result.Devices, func(d analysis.DeviceResult) bool { return d.Native != nil }) {
		result, err = modelObserved(process, info, opt, result)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", process.Name, err)
	}
	return result, nil
}

func runOver(process *trace.Process, opt analysis.Options) (*analysis.Result, error) {
	reader, err := process.NewReader()
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	return analysis.Run(reader, opt)
}

// OptionsOf are what a recording says of a process.
func OptionsOf(process *trace.Process) analysis.Options {
	return analysis.Options{
		Process:   process.Name,
		Text:      process.Strings().Text,
		FirstSeq:  process.Parts[0].FirstSeq,
		Recovered: process.Ending.State != trace.StateClosed,
		Live:      process.Live,
	}
}
