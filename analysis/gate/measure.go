package gate

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/compare"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/analysis/recording"
)

// rankName is the name that values of a process are grouped by: its rank, or its own name without one.
func rankName(process string) string {
	if rank, ok := compare.RankOf(process); ok {
		return fmt.Sprintf("rank%d", rank)
	}
	return process
}

// measure returns the values of a gate in one job: one value, or with "all" one for each rank, in order of
// ranks.
func (c RankChoice) measure(g *Gate, job recording.Job) ([]Measured, error) {
	if g.job != nil {
		m, err := g.measureJob(job)
		return []Measured{m}, err
	}
	if g.ranks != nil {
		m, err := g.compareRanks(c, job)
		return []Measured{m}, err
	}
	worst, err := c.worstOfRanks(g, job)
	if err != nil {
		return nil, err
	}
	switch c.kind {
	case "all":
		return worst, nil
	case "mean":
		return []Measured{mean(worst)}, nil
	}
	return []Measured{slices.MinFunc(worst, func(a, b Measured) int { return cmp.Compare(g.Margin(a.Value), g.Margin(b.Value)) })}, nil
}

// worstOfRanks returns, for each rank, the value with the least margin over its processes and devices. A
// metric that no process and device has is an error, never a pass.
func (c RankChoice) worstOfRanks(g *Gate, job recording.Job) ([]Measured, error) {
	var worst []Measured
	unknown := "" // why the first device without a value has none
	allocs := int64(0)
	for _, run := range job {
		for _, result := range run.Results {
			if rank, ok := compare.RankOf(result.Process); c.kind == "one" && (!ok || rank != c.rank) {
				continue
			}
			for i := range result.Devices {
				device := &result.Devices[i]
				events := device.Allocs
				if g.Metric.Name == "oom.count" { // a job may fail at its first request
					failed, _, _ := g.Metric.Value(device.Subjects())
					events += int64(failed)
				}
				allocs += events
				part, has := g.Selector.of(result, device)
				if !has {
					continue
				}
				value, seq, ok := g.Metric.Value(part)
				if !ok && events > 0 {
					unknown = cmp.Or(unknown, g.Metric.Unknown(part))
				}
				if ok && events > 0 {
					m := Measured{Value: value, Where: Location{Path: run.Path, Process: result.Process, Device: device.Device, Seq: seq}}
					if g.Relative != nil && g.Metric.Unit == analysis.Bytes {
						m.Parts = partsOf(device)
					}
					worst = g.keepWorse(worst, m)
				}
			}
		}
	}
	switch {
	case allocs == 0 && c.kind == "one":
		return nil, g.mistake("%s: the recording has no allocation of rank %d: want %s", job[0].Path, c.rank, ranksOf(job))
	case allocs == 0:
		return nil, fmt.Errorf("%s: the recording has no allocation", job[0].Path)
	case len(worst) == 0 && unknown == "" && g.Selector.String() != "":
		return nil, g.mistake("gate %q: %s has %s", g.Text, job[0].Path, g.Selector.missing(job))
	case len(worst) == 0:
		return nil, g.mistake("gate %q: %s has no value for %s: %s", g.Text, job[0].Path, g.Metric.Name, cmp.Or(unknown, "it is "+g.Metric.Help))
	}
	return worst, nil
}

// keepWorse adds a value to the worst of each rank.
func (g *Gate) keepWorse(worst []Measured, m Measured) []Measured {
	name := rankName(m.Where.Process)
	at := slices.IndexFunc(worst, func(other Measured) bool { return rankName(other.Where.Process) == name })
	if at < 0 {
		return append(worst, m)
	}
	if g.Margin(m.Value) < g.Margin(worst[at].Value) {
		worst[at] = m
	}
	return worst
}

// mean is the mean over ranks. It has no device and no event.
func mean(of []Measured) Measured {
	sum := 0.0
	for _, m := range of {
		sum += m.Value
	}
	where := Location{Path: of[0].Where.Path, Process: fmt.Sprintf("mean of %s", plain.Counted(int64(len(of)), "rank")), Device: -1, Seq: -1}
	if len(of) == 1 {
		where = of[0].Where
	}
	return Measured{Value: sum / float64(len(of)), Where: where}
}

// comparable fails if the metric compares all ranks and a single rank is chosen.
func (g *Gate) comparable(c RankChoice) error {
	if g.ranks != nil && c.kind == "one" {
		return g.mistake("gate %q: %s compares all ranks: it has no value with --rank %d", g.Text, g.Metric.Name, c.rank)
	}
	return nil
}

// compareRanks returns the value of a metric that compares all ranks.
func (g *Gate) compareRanks(c RankChoice, job recording.Job) (Measured, error) {
	if err := g.comparable(c); err != nil {
		return Measured{}, err
	}
	var results []*analysis.Result
	var paths []string // of each result
	for _, run := range job {
		for _, result := range run.Results {
			results, paths = append(results, result), append(paths, run.Path)
		}
	}
	ranks := compare.CompareRanks(results)
	if len(ranks.Rows) == 0 {
		return Measured{}, fmt.Errorf("%s: the recording has no allocation", job[0].Path)
	}
	imbalance := g.ranks(ranks)
	ratio, ok := imbalance.Ratio()
	if !ok {
		return Measured{}, g.mistake("gate %q: %s has no value for %s: it has %s", g.Text, job[0].Path, g.Metric.Name, plain.Counted(int64(imbalance.Ranks), "rank"))
	}
	row := ranks.Rows[imbalance.Row]
	at := slices.IndexFunc(results, func(r *analysis.Result) bool {
		for i := range r.Devices {
			if &r.Devices[i] == row.Device {
				return true
			}
		}
		return false
	})
	return Measured{Value: ratio, Where: Location{Path: paths[at], Process: row.Process, Device: row.Device.Device, Seq: -1}}, nil
}

// unknownError says why a recording does not have the value that a gate is about.
type unknownError struct{ path, why string }

func (e *unknownError) Error() string { return e.path + ": " + e.why }

// measureJob returns the worst value of a job metric over the job's recordings. An unknown value is an
// unknownError, unless another value violates the gate anyway.
func (g *Gate) measureJob(job recording.Job) (Measured, error) {
	var worst *Measured
	var without *unknownError // of the first recording without a value
	for _, node := range job {
		value, unknown := g.job.of(node.Run)
		if unknown != "" {
			without = cmp.Or(without, &unknownError{node.Path, unknown})
			continue
		}
		if m := (Measured{Value: value, Where: Location{Path: node.Path, Device: -1, Seq: -1}}); worst == nil || g.Margin(value) < g.Margin(worst.Value) {
			worst = &m
		}
	}
	if without != nil && (worst == nil || g.Relative != nil || g.holds(worst.Value)) {
		return Measured{}, without
	}
	return *worst, nil
}
