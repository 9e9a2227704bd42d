// Package recording analyzes whole recordings. [Analyze] runs one pass over each process, reads what the
// devices had in use, and closes the device accounting between the two; [Jobs] joins the recordings of
// the nodes of one job.
package recording

import (
	"cmp"
	"fmt"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/torchalloc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
)

// Recording is a recording and what one pass over each of its processes found.
type Recording struct {
	Path    string // as the user named it
	Run     *dataset.Run
	Results []*analysis.Result // of Run.Processes

	Readings *accounting.Readings // of used memory; nil without any
}

// All processes share mostPoints intervals of time of a series, and each has at least fewestPoints.
const (
	mostPoints   = 1 << 19
	fewestPoints = 32
)

// Analyze runs over each process of run, which was opened at path. The recording itself says what of opt
// is about a process.
func Analyze(path string, run *dataset.Run, opt analysis.Options) (Recording, error) {
	r := Recording{Path: path, Run: run}
	readings, missing := readReadings(path, run)
	r.Readings, opt.Moments = readings, readings.Moments()
	opt.ExactEvents = exactEvents(run, opt.ExactEvents)
	opt.Lives = opt.Lives && eventsOf(run) <= MostReplayed
	opt.MaxPoints = pointsOf(cmp.Or(opt.MaxPoints, analysis.MaxPoints), len(run.Processes))
	for _, process := range run.Processes {
		imported := run.Info.ImportOf(process.Name)
		if imported != nil {
			opt.Opening = imported.Opening
		}
		result, err := analyzeProcess(process, &run.Info, opt)
		if err != nil {
			return r, err
		}
		nameCards(result, &run.Info)
		result.Job = jobOf(path, run)
		result.Job.Imported = imported
		result.Job.Snapshot, result.Job.Dropped = run.Info.Snapshot, process.Dropped()
		r.Results = append(r.Results, result)
	}
	closeAccounting(run, r.Results, readings, missing)
	r.failureReadings()
	return r, nil
}

// Choose leaves out the processes that wanted returns false for. Their memory stays in the accounting of the
// devices.
func (r *Recording) Choose(wanted func(*dataset.Process) bool) {
	var results []*analysis.Result
	for i, process := range r.Run.Processes {
		if wanted(process) {
			results = append(results, r.Results[i])
		}
	}
	r.Results = results
	r.Run.Choose(wanted)
}

// pointsOf returns how many points a series has: as many as wanted, or fewer in a run of many processes.
func pointsOf(wanted, processes int) int {
	return min(wanted, max(fewestPoints, mostPoints/max(processes, 1)))
}

func jobOf(path string, run *dataset.Run) *analysis.Job {
	info := &run.Info
	return &analysis.Job{
		Path: path, Command: info.Command, Host: info.Host, Start: info.Start, Exit: info.ExitStatus,
		Frameworks: info.Frameworks, Version: info.Version,
		DryRun: info.Source == dataset.DryRun, Assumptions: info.Assumptions,
		Running: info.ExitStatus == nil && (run.Live || info.Snapshot != nil),
	}
}

func analyzeProcess(process *dataset.Process, info *dataset.Info, opt analysis.Options) (*analysis.Result, error) {
	of := OptionsOf(process)
	opt.Process, opt.Text, opt.FirstSeq, opt.Recovered, opt.Live = of.Process, of.Text, of.FirstSeq, of.Recovered, of.Live
	in := input{process: process}
	result, err := in.run(opt)
	if err == nil {
		result, err = in.model(info, opt, result)
	}
	if err == nil && opt.Explore {
		err = in.pass(opt, func(src trace.Source, opt analysis.Options) error {
			return result.Explore(src, opt, exactSpans(result, opt.FirstSeq, opt.ExactEvents))
		})
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", process.Name, err)
	}
	return result, nil
}

// input is a process that passes are made over.
type input struct {
	process *dataset.Process
	// follower, unless nil, makes a model of an observed allocator, which gives the sizes of its blocks.
	follower func() *torchalloc.Follower
}

func (in *input) run(opt analysis.Options) (result *analysis.Result, err error) {
	err = in.pass(opt, func(src trace.Source, opt analysis.Options) (err error) {
		result, err = analysis.Run(src, opt)
		return err
	})
	return result, err
}

// pass makes a pass.
func (in *input) pass(opt analysis.Options, make func(trace.Source, analysis.Options) error) error {
	reader, err := in.process.NewReader()
	if err != nil {
		return err
	}
	defer reader.Close()
	if in.follower == nil {
		return make(reader, opt)
	}
	source := torchalloc.NewSized(reader, in.follower())
	opt.Text = source.Text
	return make(source, opt)
}

// OptionsOf are what a recording says of a process.
func OptionsOf(process *dataset.Process) analysis.Options {
	return analysis.Options{
		Process:   process.Name,
		Text:      process.Strings().Text,
		FirstSeq:  process.Parts[0].FirstSeq,
		Recovered: process.Ending.State != dataset.StateClosed,
		Live:      process.Live,
	}
}
