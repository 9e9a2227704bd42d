package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/trace"
)

// alwaysGates are judged in every check, each unless a gate is about the same metric or --without
// names the metric. They are about the whole job: every rank of every run has to keep them.
var alwaysGates = []string{jobExit + " == 0", "oom.count == 0"}

// jobExit is the metric of how the recorded command ended.
const jobExit = "job.exit"

// jobMetrics are about the recorded command and not about a device.
var jobMetrics = []jobMetric{{
	analysis.Metric{Name: jobExit, Unit: analysis.Count, Help: "exit status of the recorded command, 128 + n for signal n"}, exitStatusOf,
}}

// jobMetric is a metric of a run. Its Metric has no Value; of gives it, or says why it is unknown.
type jobMetric struct {
	analysis.Metric
	of func(*trace.Run) (value float64, unknown string)
}

func exitStatusOf(run *trace.Run) (float64, string) {
	if status := run.Info.ExitStatus; status != nil {
		return float64(*status), ""
	}
	switch spooling, err := exists(filepath.Join(run.Dir, trace.SpoolName)); {
	case run.Info.Version == "" && len(run.Info.Command) == 0:
		return 0, "there is no run.json, which has the job's exit status"
	case run.Info.Recovered:
		return 0, "the recording was recovered: how the job ended is not known"
	case err == nil && spooling:
		return 0, "the recording has not ended"
	}
	return 0, "run.json has no exit status"
}

// alwaysNames are what --without can name.
func alwaysNames() []string {
	var names []string
	for _, text := range alwaysGates {
		name, _, _ := strings.Cut(text, " ")
		names = append(names, name)
	}
	return names
}

// checkWithout demands that a name is that of a gate that is judged otherwise.
func checkWithout(name string) error {
	if names := alwaysNames(); !slices.Contains(names, name) {
		return exit.Usagef("without %q: want %s", name, strings.Join(names, " or "))
	}
	return nil
}

// always are the gates that are judged beside those given.
func always(gates []gate, without []string) ([]gate, error) {
	var more []gate
	for _, text := range alwaysGates {
		g, err := parseGate(text)
		if err != nil {
			return nil, err
		}
		given := slices.ContainsFunc(gates, func(of gate) bool { return of.metric.Name == g.metric.Name })
		if given || slices.Contains(without, g.metric.Name) {
			continue
		}
		g.always, g.choice = true, &rankChoice{kind: "worst"}
		more = append(more, g)
	}
	return more, nil
}

// lookupJobMetric finds a metric of a run.
func lookupJobMetric(name string) (*jobMetric, bool) {
	at := slices.IndexFunc(jobMetrics, func(m jobMetric) bool { return m.Name == name })
	if at < 0 {
		return nil, false
	}
	return &jobMetrics[at], true
}

// unknownError is that a recording does not have the value that a gate is about.
type unknownError struct{ path, why string }

func (e *unknownError) Error() string { return e.path + ": " + e.why }

// measureJob is the worst value of a metric of runs in the recordings of one job. A value that is unknown is an
// unknownError, unless another one violates the gate by itself.
func (g *gate) measureJob(job repetition) (measured, error) {
	var worst *measured
	var without *unknownError // of the first recording without a value
	for _, node := range job {
		value, unknown := g.job.of(node.run)
		if unknown != "" {
			without = cmp.Or(without, &unknownError{node.path, unknown})
			continue
		}
		if m := (measured{value, location{Path: node.path, Device: -1, Seq: -1}}); worst == nil || g.margin(value) < g.margin(worst.value) {
			worst = &m
		}
	}
	if without != nil && (worst == nil || g.relative != nil || g.holds(worst.value)) {
		return measured{}, without
	}
	return *worst, nil
}

// skip is a gate that was not judged of a recording, and why. Only one that was not given can be skipped.
type skip struct {
	gate *gate
	path string
	why  string
}

func (s *skip) String() string { return fmt.Sprintf("%s: skipped: %s: %s", s.gate.text, s.path, s.why) }
