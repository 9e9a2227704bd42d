package gate

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/compare"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/spool"
)

// Metrics returns all that a gate can be on: the metrics of a device, of the recorded command, and of all
// ranks together. Only the first have a Value.
func Metrics() []analysis.Metric {
	all := analysis.Metrics()
	for _, m := range jobMetrics {
		all = append(all, m.Metric)
	}
	for _, m := range compare.RankMetrics() {
		all = append(all, analysis.Metric{Name: m.Name, Unit: m.Unit, Help: m.Help})
	}
	return all
}

// LookupMetric finds one of Metrics by its exact name.
func LookupMetric(name string) (analysis.Metric, bool) {
	g, ok := gateOn(name)
	return g.Metric, ok
}

func metricNames() []string {
	var names []string
	for _, m := range Metrics() {
		names = append(names, m.Name)
	}
	return names
}

// gateOn returns a gate that has its metric and nothing else so far.
func gateOn(name string) (Gate, bool) {
	for _, m := range compare.RankMetrics() {
		if m.Name == name {
			return Gate{Metric: analysis.Metric{Name: m.Name, Unit: m.Unit, Help: m.Help}, ranks: m.Of}, true
		}
	}
	if at := slices.IndexFunc(jobMetrics, func(m jobMetric) bool { return m.Name == name }); at >= 0 {
		return Gate{Metric: jobMetrics[at].Metric, job: &jobMetrics[at]}, true
	}
	metric, ok := analysis.LookupMetric(name)
	return Gate{Metric: metric}, ok
}

// unknownMetric says that there is no metric of a name, and which one was meant.
func unknownMetric(name string) error {
	return fmt.Errorf("there is no metric %q%s (memprof check --list names them)", name, plain.DidYouMean(name, metricNames()...))
}

// jobExit is the metric of how the recorded command ended.
const jobExit = "job.exit"

// jobMetric is a metric of the recorded command. Its Metric has no Value.
type jobMetric struct {
	analysis.Metric
	of func(*dataset.Run) (value float64, unknown string) // unknown says why there is no value; else ""
}

var jobMetrics = []jobMetric{{
	analysis.Metric{Name: jobExit, Unit: analysis.Count, Help: "exit status of the recorded command; 128 + n for signal n"}, exitStatusOf,
}}

func exitStatusOf(run *dataset.Run) (float64, string) {
	if status := run.Info.ExitStatus; status != nil {
		return float64(*status), ""
	}
	switch spooling, err := exists(filepath.Join(run.Dir, spool.Name)); {
	case run.Info.Version == "" && len(run.Info.Command) == 0:
		return 0, "there is no run.json with the job's exit status"
	case run.Info.Recovered:
		return 0, "the recording was recovered: the job's exit status is not known"
	case err == nil && spooling:
		return 0, "the recording has not ended"
	}
	return 0, "run.json has no exit status"
}
