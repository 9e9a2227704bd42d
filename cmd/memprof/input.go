package main

import (
	"fmt"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/trace"
)

// openRun opens the recording at path, a directory or one of its parts.
func openRun(path string) (*trace.Run, error) {
	run, err := trace.Open(path)
	return run, inputError(err)
}

// analyzedRun is a recording and what one pass over each of its processes found.
type analyzedRun struct {
	path    string
	run     *trace.Run
	results []*analysis.Result
}

func analyze(path string) (analyzedRun, error) {
	analyzed := analyzedRun{path: path}
	run, err := openRun(path)
	if err != nil {
		return analyzed, err
	}
	analyzed.run = run
	for _, process := range run.Processes {
		result, err := analyzeProcess(process)
		if err != nil {
			return analyzed, inputError(err)
		}
		nameCards(result, &run.Info)
		analyzed.results = append(analyzed.results, result)
	}
	return analyzed, nil
}

// nameCards says of each device of a process which card of the run it was. The process's
// own numbers of devices are those of the machine unless CUDA_VISIBLE_DEVICES hid some:
// the arenas name the card where the driver does. A simulated card has no UUID, as every
// process has one of its own.
func nameCards(result *analysis.Result, info *trace.Info) {
	for i := range result.Devices {
		device := &result.Devices[i]
		uuid := ""
		for _, arena := range result.Arenas {
			if arena.Device == device.Device && arena.Options["uuid"] != "" {
				uuid = arena.Options["uuid"]
			}
		}
		for _, gpu := range info.GPUs {
			if uuid != "" && gpu.UUID != uuid || uuid == "" && gpu.Index != int(device.Device) {
				continue
			}
			device.Total = gpu.Memory
			if gpu.UUID != "" {
				device.Card = info.ID + "/" + gpu.UUID
			}
		}
	}
}

func analyzeProcess(process *trace.Process) (*analysis.Result, error) {
	reader, err := process.NewReader()
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	result, err := analysis.Run(reader, analysis.Options{
		Process:   process.Name,
		Text:      process.Strings().Text,
		FirstSeq:  process.Parts[0].FirstSeq,
		Recovered: process.Ending.State != trace.StateClosed,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", process.Name, err)
	}
	return result, nil
}

func analyzeAll(paths []string) ([]analyzedRun, error) {
	var runs []analyzedRun
	for _, path := range paths {
		run, err := analyze(path)
		if err != nil {
			return nil, err
		}
		runs = append(runs, run)
	}
	return runs, nil
}
