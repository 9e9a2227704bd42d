// Package plots writes the plots of recordings, and says on stderr which files it wrote.
package plots

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/report"
)

// Into writes the plots of every process into the directory that the user named. With several recordings,
// file names begin with the recording's name.
func Into(stderr io.Writer, dir string, runs []recording.Recording) error {
	for _, run := range runs {
		for _, result := range run.Results {
			prefix := result.Process
			if len(runs) > 1 {
				prefix = filepath.Base(filepath.Clean(run.Path)) + "-" + prefix
			}
			if err := draw(stderr, dir, prefix, result); err != nil {
				return exit.Input(fmt.Errorf("plots: %w", err))
			}
		}
	}
	return nil
}

// IntoRecordings writes the plots of every process into its recording. The user did not ask for them, so a
// failure to write them is a warning.
func IntoRecordings(stderr io.Writer, runs []recording.Recording) {
	for _, run := range runs {
		if run.Run.Detached {
			continue // there is no recording to write them into
		}
		for _, result := range run.Results {
			if err := draw(stderr, run.Run.Dir, result.Process, result); err != nil {
				screen.Complain(stderr, fmt.Sprintf("not all plots of %s could be written: %v (--plots DIR writes them elsewhere)", run.Path, err))
				break
			}
		}
	}
}

// draw writes the plots of a process and prints the names of the files.
func draw(stderr io.Writer, dir, prefix string, result *analysis.Result) error {
	files, err := report.WritePlots(dir, prefix, result)
	for _, file := range files {
		screen.Complain(stderr, "wrote "+file)
	}
	return err
}
