package report

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
)

// recordingsSection has a row for each device of recordings of jobs that have nothing to do with each other.
func recordingsSection(results []*analysis.Result) layout.Section {
	s := layout.Section{
		Columns: []layout.Column{
			layout.Words("recording"), layout.Words("command"), layout.Numbers("requested"), layout.Numbers("reserved"),
			layout.Numbers("iterations"), layout.Words("leak"), layout.Numbers("failed requests"),
		},
		After: layout.Note("greatest requested and reserved bytes of the worst device; next: memprof report RECORDING"),
	}
	seen := map[string]bool{}
	for _, r := range results {
		path := r.Process
		if r.Job != nil {
			path = r.Job.Path
		}
		if seen[path] {
			continue
		}
		seen[path] = true
		s.Rows = append(s.Rows, recordingRow(path, slices.DeleteFunc(slices.Clone(results), func(other *analysis.Result) bool {
			return other != r && (other.Job == nil || other.Job.Path != path)
		})))
	}
	s.Title = plain.Counted(int64(len(s.Rows)), "recording")
	return s
}

// recordingRow is the row of a recording, of which results are the processes.
func recordingRow(path string, results []*analysis.Result) []layout.Cell {
	var requested, reserved, steps, failed int64
	leak, command := iterations.TooShort, ""
	for _, r := range results {
		if r.Job != nil {
			command = strings.Join(r.Job.Command, " ")
		}
		for i := range r.Devices {
			d := &r.Devices[i]
			requested, reserved = max(requested, d.MaxT), max(reserved, d.MaxR)
			steps, failed = max(steps, d.IterationCount()), failed+d.OOMCount
			if d.Leak.Verdict == iterations.Leaks || leak == iterations.TooShort && d.Leak.Verdict != "" {
				leak = d.Leak.Verdict
			}
		}
	}
	return layout.Row(plain.Shorten(filepath.Base(filepath.Clean(path)), 28), plain.Shorten(command, 40), plain.FormatSize(requested), plain.FormatSize(reserved),
		plain.FormatCount(steps), string(leak), plain.FormatCount(failed))
}
