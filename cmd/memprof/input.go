package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/report/plain"
	"github.com/memprof/memprof/report/spell"
	"github.com/memprof/memprof/trace"
)

// openRun opens the recording at path, a directory or one of its parts. What reads it for more than
// a second shows on a terminal how far it is.
//
// A recording in progress is opened as it is now, and stderr says so.
func openRun(path string) (*trace.Run, error) {
	run, err := openAny(path)
	if err != nil {
		return nil, exit.Input(err)
	}
	if run.Live {
		screen.Complain(os.Stderr, path+" is being recorded: this is what there is so far")
	}
	screen.NewProgress(os.Stderr, "reading "+plain.Text(path), eventsOf(run)).Follow(run)
	return run, nil
}

func openAny(path string) (*trace.Run, error) {
	if stat, err := os.Stat(path); err != nil || !stat.IsDir() {
		return trace.Open(path)
	}
	busy, err := trace.InProgress(path)
	if err != nil {
		return nil, err
	}
	if busy != "" {
		run, err := trace.OpenLive(path)
		if still, _ := trace.InProgress(path); err == nil || still != "" {
			return run, err
		}
		// It ended meanwhile.
	}
	return trace.Open(path)
}

// analyzedRun is a recording and what one pass over each of its processes found.
type analyzedRun struct {
	path    string
	run     *trace.Run
	results []*analysis.Result

	readings *analysis.Readings // of used memory; nil without any
}

// analyze runs over each process; of opt all but what the recording says is taken.
func analyze(path string, opt analysis.Options) (analyzedRun, error) {
	analyzed := analyzedRun{path: path}
	run, err := openRun(path)
	if err != nil {
		return analyzed, err
	}
	analyzed.run = run
	readings, missing := readReadings(path, run)
	analyzed.readings, opt.Moments = readings, readings.Moments()
	for _, process := range run.Processes {
		result, err := analyzeProcess(process, opt)
		if err != nil {
			return analyzed, exit.Input(err)
		}
		nameCards(result, &run.Info)
		analyzed.results = append(analyzed.results, result)
	}
	closeBooks(run, analyzed.results, readings, missing)
	return analyzed, nil
}

// nameCards says of each device of a process which card of the run it was. A simulated card
// has no UUID, as every process has one of its own.
func nameCards(result *analysis.Result, info *trace.Info) {
	for i := range result.Devices {
		device := &result.Devices[i]
		card := cardOf(result, device.Device, info)
		if card < 0 {
			continue
		}
		gpu := &info.GPUs[card]
		device.Total = gpu.Memory
		if device.Sleep != nil {
			device.Sleep.Card = gpu.Memory
		}
		if gpu.UUID != "" {
			device.Card = info.ID + "/" + gpu.UUID
		}
	}
}

// optionsOf are what a recording says of a process.
func optionsOf(process *trace.Process) analysis.Options {
	return analysis.Options{
		Process:   process.Name,
		Text:      process.Strings().Text,
		FirstSeq:  process.Parts[0].FirstSeq,
		Recovered: process.Ending.State != trace.StateClosed,
		Live:      process.Live,
	}
}

func analyzeProcess(process *trace.Process, opt analysis.Options) (*analysis.Result, error) {
	reader, err := process.NewReader()
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	told := optionsOf(process)
	opt.Process, opt.Text, opt.FirstSeq, opt.Recovered, opt.Live = told.Process, told.Text, told.FirstSeq, told.Recovered, told.Live
	result, err := analysis.Run(reader, opt)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", process.Name, err)
	}
	return result, nil
}

func analyzeAll(paths []string) ([]analyzedRun, error) {
	return analyzeWith(paths, analysis.Options{})
}

func analyzeWith(paths []string, opt analysis.Options) ([]analyzedRun, error) {
	var runs []analyzedRun
	for _, path := range paths {
		run, err := analyze(path, opt)
		if err != nil {
			return nil, err
		}
		runs = append(runs, run)
	}
	return runs, nil
}

func eventsOf(run *trace.Run) int64 {
	events := int64(0)
	for _, process := range run.Processes {
		events += process.Events
	}
	return events
}

func processNames(run *trace.Run) string {
	var names []string
	for _, process := range run.Processes {
		names = append(names, process.Name)
	}
	return strings.Join(names, ", ")
}

func pickProcess(run *trace.Run, name string) (*trace.Process, error) {
	for _, process := range run.Processes {
		if name == "" || process.Name == name {
			return process, nil
		}
	}
	if name == "" {
		return nil, exit.Usagef("%s: no process in it", run.Dir)
	}
	var names []string
	for _, process := range run.Processes {
		names = append(names, plain.Text(process.Name))
	}
	return nil, exit.Usagef("%s: no process %q in it: want %s%s", run.Dir, name, spell.Alternatives(names), spell.DidYouMean(name, names...))
}
