package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/report/spell"
	"github.com/memprof/memprof/report/units"
)

// rankChoice says which ranks a gate is held against.
type rankChoice struct {
	kind string // "worst", "mean", "all", or "one"
	rank int    // of "one"
}

func parseRankChoice(text string) (rankChoice, error) {
	switch text {
	case "worst", "mean", "all":
		return rankChoice{kind: text}, nil
	}
	rank, err := strconv.Atoi(text)
	if err != nil || rank < 0 {
		return rankChoice{}, exit.Usagef("rank %q: want worst, all, mean or the number of a rank%s", text, spell.DidYouMean(text, "worst", "all", "mean"))
	}
	return rankChoice{kind: "one", rank: rank}, nil
}

// repetition is one run of a job: its recording, or those of its nodes.
type repetition []analyzedRun

// repetitions puts the recordings of the nodes of one job together: those whose ranks are
// only some of their world, of the same size, and have no rank in common. Any other
// recording is a repetition by itself.
func repetitions(runs []analyzedRun) []repetition {
	var all []repetition
	for _, run := range runs {
		at := slices.IndexFunc(all, func(r repetition) bool { return r.lacks(run) })
		if at < 0 {
			all = append(all, repetition{run})
			continue
		}
		all[at] = append(all[at], run)
	}
	return all
}

// lacks says whether run is of a node that is not in r and belongs to it.
func (r repetition) lacks(run analyzedRun) bool {
	ranks, world := worldOf(run)
	if len(ranks) == 0 || len(ranks) >= world {
		return false
	}
	for _, node := range r {
		others, otherWorld := worldOf(node)
		if otherWorld != world || len(others) == 0 {
			return false
		}
		for rank := range others {
			if ranks[rank] {
				return false
			}
		}
	}
	return true
}

// worldOf is the set of ranks in a recording and the greatest size that one of them saw
// of their world.
func worldOf(run analyzedRun) (ranks map[int]bool, world int) {
	ranks = map[int]bool{}
	for _, process := range run.run.Processes {
		if process.Rank >= 0 {
			ranks[process.Rank] = true
			world = max(world, process.WorldSize)
		}
	}
	return ranks, world
}

// missing fails where processes are missing from a recording, as the worst of them would not be judged; with
// --allow-missing-ranks it says so only. Ranks of a job that are in none of its recordings are said.
func (o *checkOptions) missing(stderr io.Writer, jobs []repetition) error {
	for _, job := range jobs {
		for i := range job {
			for _, m := range job[i].run.Missing() {
				if !o.AllowMissing {
					return exit.Usagef("%s: %s (--allow-missing-ranks judges without it)", job[i].path, m)
				}
				fmt.Fprintf(stderr, "memprof: warning: %s: %s\n", job[i].path, m)
			}
		}
		if absent := job.absent(); len(absent) > 0 {
			fmt.Fprintf(stderr, "memprof: warning: %s: %s\n", job[0].path, absentRanks(absent))
		}
	}
	return nil
}

// absent are the ranks of a job's world that none of its recordings has or misses.
func (r repetition) absent() []int {
	absent := r[0].run.Absent()
	for i := range r[1:] {
		others := r[i+1].run.Absent()
		absent = slices.DeleteFunc(absent, func(rank int) bool {
			_, found := slices.BinarySearch(others, rank)
			return !found
		})
	}
	return absent
}

// rankName is what a process is counted as: its rank, or itself.
func rankName(process string) string {
	if rank, ok := analysis.RankOf(process); ok {
		return fmt.Sprintf("rank%d", rank)
	}
	return process
}

// measure gives the values that a gate is to be held against in one repetition of the
// job: one, or with "all" one a rank, in order of ranks.
func (c rankChoice) measure(g *gate, job repetition) ([]measured, error) {
	if g.job != nil {
		m, err := g.measureJob(job)
		return []measured{m}, err
	}
	if g.ranks != nil {
		m, err := g.compareRanks(c, job)
		return []measured{m}, err
	}
	worst, err := c.worstOfRanks(g, job)
	if err != nil {
		return nil, err
	}
	switch c.kind {
	case "all":
		return worst, nil
	case "mean":
		return []measured{mean(worst)}, nil
	}
	return []measured{slices.MinFunc(worst, func(a, b measured) int { return cmp.Compare(g.margin(a.value), g.margin(b.value)) })}, nil
}

// worstOfRanks is the value with the least margin of each rank, with all its processes and
// devices. A metric that no process and device of the job has is an error, never a pass.
func (c rankChoice) worstOfRanks(g *gate, job repetition) ([]measured, error) {
	var worst []measured
	unknown := "" // why the first device without a value has none
	allocs := int64(0)
	for _, run := range job {
		for _, result := range run.results {
			if rank, ok := analysis.RankOf(result.Process); c.kind == "one" && (!ok || rank != c.rank) {
				continue
			}
			for i := range result.Devices {
				device := &result.Devices[i]
				events := device.Allocs
				if g.metric.Name == "oom.count" { // a job may fail at its first request
					events += device.OOMCount
				}
				allocs += events
				part := g.selector.of(result, device)
				if part == nil {
					continue
				}
				value, seq, ok := g.metric.Value(part)
				if !ok && events > 0 {
					unknown = cmp.Or(unknown, g.metric.Unknown(part))
				}
				if ok && events > 0 {
					worst = g.keepWorse(worst, measured{value, location{Path: run.path, Process: result.Process, Device: device.Device, Seq: seq}})
				}
			}
		}
	}
	switch {
	case allocs == 0 && c.kind == "one":
		return nil, g.mistake("%s: no allocation of rank %d in it: there is nothing to check", job[0].path, c.rank)
	case allocs == 0:
		return nil, exit.Usagef("%s: no allocation in it: there is nothing to check", job[0].path)
	case len(worst) == 0 && unknown == "" && g.selector.String() != "":
		return nil, g.mistake("gate %q: %s has %s", g.text, job[0].path, g.selector.missing(job))
	case len(worst) == 0:
		return nil, g.mistake("gate %q: %s has no value for %s: %s", g.text, job[0].path, g.metric.Name, cmp.Or(unknown, "it is "+g.metric.Help))
	}
	return worst, nil
}

// keepWorse puts a value to those of its rank, of which the worst stays.
func (g *gate) keepWorse(worst []measured, m measured) []measured {
	name := rankName(m.where.Process)
	at := slices.IndexFunc(worst, func(other measured) bool { return rankName(other.where.Process) == name })
	if at < 0 {
		return append(worst, m)
	}
	if g.margin(m.value) < g.margin(worst[at].value) {
		worst[at] = m
	}
	return worst
}

// mean is the mean over ranks; it was found nowhere in particular.
func mean(of []measured) measured {
	sum := 0.0
	for _, m := range of {
		sum += m.value
	}
	where := location{Path: of[0].where.Path, Process: fmt.Sprintf("mean of %s", units.Counted(int64(len(of)), "rank")), Device: -1, Seq: -1}
	if len(of) == 1 {
		where = of[0].where
	}
	return measured{sum / float64(len(of)), where}
}

// comparable fails for a metric about all ranks together that only one of them is chosen of.
func (g *gate) comparable(c rankChoice) error {
	if g.ranks != nil && c.kind == "one" {
		return g.mistake("gate %q: %s compares all ranks: it has no value with --rank %d", g.text, g.metric.Name, c.rank)
	}
	return nil
}

// compareRanks is the value of a metric that is about all ranks together.
func (g *gate) compareRanks(c rankChoice, job repetition) (measured, error) {
	if err := g.comparable(c); err != nil {
		return measured{}, err
	}
	var results []*analysis.Result
	var paths []string // of each result
	for _, run := range job {
		for _, result := range run.results {
			results, paths = append(results, result), append(paths, run.path)
		}
	}
	ranks := analysis.CompareRanks(results)
	if len(ranks.Rows) == 0 {
		return measured{}, exit.Usagef("%s: no allocation in it: there is nothing to check", job[0].path)
	}
	imbalance := g.ranks(ranks)
	ratio, ok := imbalance.Ratio()
	if !ok {
		return measured{}, g.mistake("gate %q: %s has no value for %s: it has %s", g.text, job[0].path, g.metric.Name, units.Counted(int64(imbalance.Ranks), "rank"))
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
	return measured{ratio, location{Path: paths[at], Process: row.Process, Device: row.Device.Device, Seq: -1}}, nil
}
