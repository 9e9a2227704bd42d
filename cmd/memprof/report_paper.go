package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/report"
	"github.com/memprof/memprof/trace"
)

// paper prints the BFC paper's table over all recordings, and draws its figures beside the first.
func (o *reportOptions) paper(stdout, stderr io.Writer, paths []string) error {
	paths, err := recordingsIn(paths)
	if err != nil {
		return err
	}
	runs, err := analyzeAll(paths)
	if err != nil {
		return err
	}
	var study analysis.Study
	for _, run := range runs {
		for _, warning := range run.run.Warnings {
			fmt.Fprintf(stderr, "memprof: warning: %s: %s\n", run.path, warning)
		}
		study.Add(filepath.Base(filepath.Clean(run.path)), run.results)
	}
	if len(study.Jobs) == 0 {
		return usagef("no job for the table: %s: %s", study.LeftOut[0].Name, study.LeftOut[0].Why)
	}
	if err := o.printPaper(stdout, &study); err != nil || o.NoPlots {
		return err
	}
	dir := o.Output
	if dir == "" {
		dir = filepath.Dir(filepath.Clean(paths[0]))
	}
	files, err := report.WriteStudyPlots(dir, &study)
	for _, file := range files {
		fmt.Fprintln(stderr, "memprof: wrote", file)
	}
	if err != nil {
		return fmt.Errorf("plots: %w (--no-plots leaves them out, -o draws them elsewhere)", err)
	}
	return nil
}

func (o *reportOptions) printPaper(stdout io.Writer, study *analysis.Study) error {
	switch o.Format {
	case "json":
		return report.StudyJSON(stdout, study)
	case "markdown":
		return report.StudyMarkdown(stdout, study)
	}
	return report.StudyText(stdout, study, textOptions(stdout))
}

// recordingsIn replaces each folder of recordings by those in it, in the order of their names.
func recordingsIn(paths []string) ([]string, error) {
	var all []string
	for _, path := range paths {
		entries, err := os.ReadDir(path)
		if err != nil || isRecording(path) { // a part, or nothing: opening it says what is wrong
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
			return nil, usagef("%s: neither a recording nor a folder of recordings", path)
		}
	}
	return all, nil
}

// isRecording says whether a directory holds a recording, whole or not.
func isRecording(dir string) bool {
	if _, err := os.Stat(filepath.Join(dir, trace.InfoName)); err == nil {
		return true
	}
	parts, err := filepath.Glob(filepath.Join(dir, "*.parquet"))
	return err == nil && len(parts) > 0
}
