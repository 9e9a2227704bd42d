package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/compare"
	"github.com/memprof/memprof/analysis/summary"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/report"
	"github.com/memprof/memprof/report/fleet"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/spool"
)

// paper prints the BFC paper's table over all recordings.
// Recordings that cannot be read are left out of the table, and their errors are returned at the end.
func (o *reportOptions) paper(stdout, stderr io.Writer, paths []string) error {
	paths, err := recordingsIn(paths)
	if err != nil {
		return err
	}
	study, unread := o.studyOf(stderr, paths)
	if err := o.Of.check(study.processes); err != nil {
		return cmp.Or(unread, err)
	}
	if len(study.Jobs) == 0 {
		return cmp.Or(unread, exit.Usagef("no job for the table: %s: %s", study.LeftOut[0].Name, study.LeftOut[0].Why))
	}
	return cmp.Or(printAs(stdout, o.Format, &study.Study, report.StudySections, report.StudyJSON), unread)
}

// paperStudy is a study, and the processes of its recordings, from which some may have been chosen.
type paperStudy struct {
	compare.Study
	processes []*dataset.Process
}

// studyOf analyzes recordings, and takes the chosen processes of them. The error joins those of all that could not be read.
func (o *reportOptions) studyOf(stderr io.Writer, paths []string) (*paperStudy, error) {
	study := &paperStudy{}
	var unread []error
	for _, path := range paths {
		name := filepath.Base(filepath.Clean(path))
		run, err := analyze(path, analysis.Options{})
		if errors.Is(err, trace.ErrEmpty) { // the recording is whole, but its job may have failed early
			study.LeftOut = append(study.LeftOut, compare.StudyGap{Name: name, Why: "no process used a GPU"})
			continue
		}
		if err != nil {
			study.LeftOut = append(study.LeftOut, compare.StudyGap{Name: name, Why: "the recording cannot be read"})
			unread = append(unread, err)
			continue
		}
		for _, warning := range run.Run.Warnings {
			screen.Remark(stderr, "warning", fmt.Sprintf("%s: %s", path, warning))
		}
		study.processes = append(study.processes, run.Run.Processes...)
		if o.Of.given() {
			run.Choose(o.Of.wants)
		}
		if len(run.Results) == 0 {
			study.LeftOut = append(study.LeftOut, compare.StudyGap{Name: name, Why: "it has none of the chosen processes"})
			continue
		}
		study.Add(name, run.Results)
	}
	return study, exit.Input(errors.Join(unread...))
}

// fleet reports on many processes by the summaries of their recordings.
func (o *reportOptions) fleet(stdout, stderr io.Writer, paths []string) error {
	for _, path := range paths {
		summarizeMissing(stderr, path)
	}
	f := fleet.New()
	for _, path := range paths {
		info, err := dataset.ReadInfo(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return exit.Input(err)
		}
		if err == nil && f.Paths == 0 {
			f.Info = *info
		}
		f.Paths++
	}
	err := summary.Each(paths, func(path string, t *summary.Table) error {
		f.Add(path, t)
		return nil
	})
	if err != nil {
		return exit.Input(err)
	}
	return printAs(stdout, o.Format, f, fleet.Sections, fleet.JSON)
}

// fleetOf returns the recordings of paths if they have more processes than are reported by their events, else none. Recordings in
// progress, and single parts, have no summary yet.
func fleetOf(paths []string) ([]string, error) {
	paths, err := recordingsIn(paths)
	if err != nil {
		return nil, err
	}
	n := 0
	for _, path := range paths {
		if stat, err := os.Stat(path); err != nil || !stat.IsDir() {
			return nil, nil // the error comes when it is opened
		}
		names, err := summary.Processes(path)
		if err != nil {
			return nil, exit.Input(err)
		}
		n += len(names)
	}
	if n <= summary.Most {
		return nil, nil
	}
	for _, path := range paths {
		if busy, err := spool.InProgress(path); busy != "" || err != nil {
			return nil, exit.Input(err)
		}
	}
	return paths, nil
}

// summarizeMissing writes the summaries that a recording lacks: it is whole without them.
func summarizeMissing(stderr io.Writer, dir string) {
	lacks, err := lacksSummary(dir)
	if err != nil || !lacks {
		return
	}
	run, err := dataset.Open(dir)
	if errors.Is(err, trace.ErrEmpty) {
		return // no process of it used a GPU
	}
	if err == nil {
		_, err = summary.WriteAll(dir, run)
	}
	if err != nil {
		screen.Remark(stderr, "warning", fmt.Sprintf("the summary could not be written: %v", err))
	}
}

// lacksSummary says whether a process of a recording has no summary.
func lacksSummary(path string) (bool, error) {
	processes, err := summary.Processes(path)
	if err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	for _, name := range processes {
		if !summary.Has(path, name) {
			return true, nil
		}
	}
	return false, nil
}
