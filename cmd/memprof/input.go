package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/kv"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/analysis/snapshot"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/spool"
)

// version is set by the linker (make build). Recordings say which version made them, also those that are imported.
var version = "devel"

// openRun opens the recording at path: a directory, one of its parts, or a file that is imported. Reading it shows a progress bar on a
// terminal after a second. A recording in progress is opened as it is now, and stderr says so.
func openRun(path string) (*dataset.Run, error) {
	run, err := openAny(path)
	if err != nil {
		return nil, exit.Input(err)
	}
	if run.Live {
		screen.Complain(os.Stderr, path+" is still being recorded: this covers it up to now")
	}
	screen.NewProgress(os.Stderr, "reading "+plain.Text(path), eventsOf(run)).Follow(run)
	return run, nil
}

// openViewed opens a recording that is read several times: a progress bar would count each.
func openViewed(path string) (*dataset.Run, error) {
	run, err := openAny(path)
	return run, exit.Input(err)
}

func openAny(path string) (*dataset.Run, error) {
	if stat, err := os.Stat(path); err != nil || !stat.IsDir() {
		if isSnapshot(path) {
			screen.Complain(os.Stderr, fmt.Sprintf("%s is a memory snapshot of PyTorch: importing it (memprof import keeps the recording)", plain.Text(path)))
			return openSnapshot(path)
		}
		return dataset.Open(path)
	}
	busy, err := spool.InProgress(path)
	if err != nil {
		return nil, err
	}
	if busy != "" {
		run, err := openLive(path)
		if still, _ := spool.InProgress(path); err == nil || still != "" {
			return run, err
		}
		// the recording ended between the two calls
	}
	return dataset.Open(path)
}

// isSnapshot says whether a path is a regular file that begins as a snapshot does: a pickle of protocol 2 to 5, gzipped or not.
func isSnapshot(path string) bool {
	if stat, err := os.Stat(path); err != nil || !stat.Mode().IsRegular() {
		return false
	}
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	var head [2]byte
	if _, err := io.ReadFull(file, head[:]); err != nil {
		return false
	}
	return head[0] == 0x80 && 2 <= head[1] && head[1] <= 5 || head[0] == 0x1f && head[1] == 0x8b
}

// openSnapshot imports a file and opens the recording, which has no directory: its parts exist as long as this process does.
func openSnapshot(path string) (run *dataset.Run, err error) {
	dir, err := os.MkdirTemp("", "memprof-import-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if _, err := snapshot.Import(dir, []string{path}, version); err != nil {
		return nil, err
	}
	if run, err = dataset.Open(dir); err != nil {
		return nil, err
	}
	return run, run.Detach(path)
}

// openRuns opens recordings, and those in folders of recordings.
func openRuns(paths []string) ([]*dataset.Run, error) {
	return eachIn(paths, openRun)
}

// analyze opens a recording and runs over each of its processes.
func analyze(path string, opt analysis.Options) (recording.Recording, error) {
	run, err := openRun(path)
	if err != nil {
		return recording.Recording{}, err
	}
	analyzed, err := recording.Analyze(path, run, opt)
	return analyzed, exit.Input(err)
}

func analyzeAll(paths []string) ([]recording.Recording, error) {
	return analyzeWith(paths, analysis.Options{})
}

// analyzeWith analyzes recordings, and those in folders of recordings.
func analyzeWith(paths []string, opt analysis.Options) ([]recording.Recording, error) {
	return eachIn(paths, func(path string) (recording.Recording, error) { return analyze(path, opt) })
}

// eachIn opens recordings, and those in folders of recordings, up to the first that cannot be opened.
func eachIn[T any](paths []string, open func(path string) (T, error)) ([]T, error) {
	paths, err := recordingsIn(paths)
	if err != nil {
		return nil, err
	}
	var opened []T
	for _, path := range paths {
		one, err := open(path)
		if err != nil {
			return nil, err
		}
		opened = append(opened, one)
	}
	return opened, nil
}

// recordingsIn replaces each folder of recordings by the recordings in it, in order of their names. A folder
// in which there is none is an error.
func recordingsIn(paths []string) ([]string, error) {
	var all []string
	for _, path := range paths {
		entries, err := os.ReadDir(path)
		if err != nil || isRecording(path) { // a part, or no recording: opening it returns the error
			all = append(all, path)
			continue
		}
		before := len(all)
		for _, entry := range entries {
			if inside := filepath.Join(path, entry.Name()); isRecording(inside) {
				all = append(all, inside)
			}
		}
		if len(all) == before {
			return nil, exit.Usagef("%s: neither a recording nor a folder of recordings (`memprof record -o %s` writes one)", path, plain.ShellQuote(path))
		}
	}
	return all, nil
}

// newestRecording is the recording in a folder that was written to last, or the folder itself if it is one.
func newestRecording(folder string) (string, error) {
	if isRecording(folder) {
		return folder, nil
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return "", exit.Input(err)
	}
	newest, at := "", time.Time{}
	for _, entry := range entries {
		path := filepath.Join(folder, entry.Name())
		if stat, err := os.Stat(path); err == nil && stat.IsDir() && isRecording(path) && (newest == "" || stat.ModTime().After(at)) {
			newest, at = path, stat.ModTime()
		}
	}
	if newest == "" {
		return "", exit.Usagef("no recording here: name one, or make one with memprof record -o run -- COMMAND")
	}
	return newest, nil
}

// isRecording says whether a directory holds a recording, complete or not.
func isRecording(dir string) bool {
	if stat, err := os.Stat(dir); err != nil || !stat.IsDir() { // opening a pipe would wait for who writes it
		return false
	}
	if _, err := os.Stat(filepath.Join(dir, dataset.InfoName)); err == nil {
		return true
	}
	if parts, err := filepath.Glob(filepath.Join(dir, "*.parquet")); err == nil && len(parts) > 0 {
		return true
	}
	busy, err := spool.InProgress(dir)
	return err == nil && busy != ""
}

func eventsOf(run *dataset.Run) int64 {
	events := int64(0)
	for _, process := range run.Processes {
		events += process.Events
	}
	return events
}

func processNames(run *dataset.Run) string {
	var names []string
	for _, process := range run.Processes {
		names = append(names, process.Name)
	}
	return strings.Join(names, ", ")
}

// openProcess opens a recording and picks a process of it, the first if name is "".
func openProcess(path, name string) (*dataset.Run, *dataset.Process, error) {
	run, err := openRun(path)
	if err != nil {
		return nil, nil, err
	}
	process, err := pickProcess(run, name)
	return run, process, err
}

func pickProcess(run *dataset.Run, name string) (*dataset.Process, error) {
	for _, process := range run.Processes {
		if name == "" || process.Name == name {
			return process, nil
		}
	}
	if name == "" {
		return nil, exit.Usagef("%s: the recording has no process: none used CUDA (memprof doctor -- COMMAND says whether a command can be recorded)", run.Dir)
	}
	var names []string
	for _, process := range run.Processes {
		names = append(names, plain.Text(process.Name))
	}
	return nil, exit.Usagef("%s: no process %q: want %s%s", run.Dir, name, plain.Alternatives(names), plain.DidYouMean(name, names...))
}

// existingFile returns the absolute path of a file.
func existingFile(name string) (string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return "", err
	}
	if info.IsDir() {
		return "", fmt.Errorf("%s is a directory", name)
	}
	return filepath.Abs(name)
}

// simulateKV replays the sequences of the largest recorded KV caches of each device under other policies.
func simulateKV(results []*analysis.Result) error {
	for _, result := range results {
		for i := range result.Devices {
			for _, cache := range kv.Largest(result.Devices[i].KV) {
				if err := cache.Simulate(context.Background()); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
