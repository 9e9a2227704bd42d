package gate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/memprof/memprof/analysis/compare"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/trace/dataset"
)

// ParseAggregate fails for what is none of median, max and min.
func ParseAggregate(text string) (string, error) {
	switch text {
	case "median", "max", "min":
		return text, nil
	}
	return "", fmt.Errorf("aggregate %q: want median, max or min%s", text, plain.DidYouMean(text, "median", "max", "min"))
}

// Judge holds gates against jobs.
type Judge struct {
	Ranks     RankChoice // of gates that do not say
	Aggregate string     // of several runs: median, max or min
	Baseline  *Baseline  // nil where no gate is relative to it
	Update    bool       // put the values found into the baseline first
}

// Precheck reports every mistake of the gates that no recording could mend, so that no job is run for
// nothing. Gates about each rank by itself are left to All: which ranks there are is not known yet.
func (j *Judge) Precheck(gates []Gate) error {
	var mistakes []error
	for i := range gates {
		g := &gates[i]
		choice := j.choiceOf(g)
		if err := g.comparable(choice); err != nil {
			mistakes = append(mistakes, err)
			continue
		}
		if g.Relative == nil || j.Update || choice.kind == "all" && g.ranks == nil {
			continue
		}
		_, err := j.Baseline.value(g, g.question(choice, "", j.Aggregate))
		mistakes = append(mistakes, err)
	}
	return errors.Join(mistakes...)
}

// PrecheckJob fails where a gate is about other jobs than the one with this directory and command.
func PrecheckJob(gates []Gate, dir string, command []string) error {
	r := recording.Recording{Path: dir, Run: &dataset.Run{Info: dataset.Info{Command: command}}}
	for i := range gates {
		if g := &gates[i]; !g.Selector.matches(&r) {
			return g.mistake("gate %q: the command is not like %q", g.Text, g.Selector.Job)
		}
	}
	return nil
}

// choiceOf returns which ranks a gate is held against.
func (j *Judge) choiceOf(g *Gate) RankChoice {
	if g.job != nil { // has one value, whatever the rank
		return RankChoice{kind: "worst"}
	}
	if g.choice != nil {
		return *g.choice
	}
	return j.Ranks
}

// worstRun is what counts of several runs for a gate that every run has to keep: the value with the least margin.
const worstRun = "worst"

// aggregateOf returns which of several runs counts for a gate. Equality is about every run: a median or maximum
// that is equal would hide the others, which may lie on both sides of it. The gates of every check are of that kind.
func (j *Judge) aggregateOf(g *Gate) string {
	if g.Op == "==" {
		return worstRun
	}
	return j.Aggregate
}

// All judges each of the gates, in their order.
func (j *Judge) All(gates []Gate, jobs []recording.Job) (*Results, error) {
	results := &Results{}
	for i := range gates {
		verdicts, skips, err := j.one(&gates[i], jobs)
		if err != nil {
			return nil, err
		}
		results.Verdicts, results.Skips = append(results.Verdicts, verdicts...), append(results.Skips, skips...)
	}
	return results, nil
}

// one measures a gate in each job and aggregates the values. The median of an even number of jobs is the
// worse of the middle two. A value that a recording does not have is an error; for a gate with
// Always the recording is skipped instead.
func (j *Judge) one(g *Gate, jobs []recording.Job) ([]Verdict, []Skip, error) {
	all := jobs
	if jobs = g.Selector.ofJob(jobs); len(jobs) == 0 {
		return nil, nil, g.mistake("no recording has a directory or command like %q: want %s", g.Selector.Job, pathsOf(all))
	}
	values, skips, err := j.measure(g, jobs)
	if err != nil {
		return nil, nil, err
	}
	choice, aggregate := j.choiceOf(g), j.aggregateOf(g)
	var verdicts []Verdict
	for _, name := range values.names {
		values, question, limited := values.byName[name], g.question(choice, name, aggregate), *g
		var parts []Part // of the baseline
		if g.Relative != nil {
			accepted, err := j.accepted(g, question, values)
			if err != nil {
				return nil, nil, err
			}
			limited.Limit, parts = g.Relative.of(accepted.Value), accepted.Parts
		}
		v := limited.verdictOf(values, aggregate)
		if v.Written, v.Rank = g, name; !v.Holds {
			v.Grown = grown(parts, v.Found.Parts)
		}
		verdicts = append(verdicts, v)
	}
	return verdicts, skips, nil
}

// ranked are the values of each job by the name of the rank; one name, "", where no rank is judged by itself.
type ranked struct {
	names  []string // in order of ranks in the first job
	byName map[string][]Measured
}

// measure takes the values of a gate in each job.
func (j *Judge) measure(g *Gate, jobs []recording.Job) (ranked, []Skip, error) {
	choice := j.choiceOf(g)
	all := ranked{byName: map[string][]Measured{}}
	var skips []Skip
	for _, job := range jobs {
		values, err := choice.measure(g, job)
		var unknown *unknownError
		switch {
		case errors.As(err, &unknown) && g.Always:
			skips = append(skips, Skip{g, unknown.path, unknown.why})
			continue
		case unknown != nil:
			return all, nil, g.mistake("gate %q: %s has no value for %s: %s", g.Text, unknown.path, g.Metric.Name, unknown.why)
		case err != nil:
			return all, nil, err
		}
		for i, name := range namesOf(values, choice.kind == "all" && g.ranks == nil) {
			if !slices.Contains(all.names, name) {
				all.names = append(all.names, name)
			}
			all.byName[name] = append(all.byName[name], values[i])
		}
	}
	return all, skips, nil
}

// namesOf returns what the values of one job are called in every job: the rank of each. Processes without
// ranks are numbered, since their names differ in every run. Where not each is judged, there is one
// value without a name.
func namesOf(values []Measured, each bool) []string {
	names := make([]string, len(values))
	if !each {
		return names
	}
	unranked := 0
	for i, m := range values {
		names[i] = rankName(m.Where.Process)
		if _, ranked := compare.RankOf(m.Where.Process); !ranked {
			unranked++
			names[i] = fmt.Sprintf("process %d", unranked)
		}
	}
	return names
}

// accepted is the baseline's value of a relative gate, with Update the one that was found.
func (j *Judge) accepted(g *Gate, question *Value, values []Measured) (*Value, error) {
	if j.Update {
		v := g.verdictOf(values, j.Aggregate)
		question.Value, question.Spread, question.Runs, question.Parts = v.Found.Value, v.Spread, v.Runs, v.Found.Parts
		j.Baseline.set(*question)
	}
	return j.Baseline.value(g, question)
}

// verdictOf judges the values of the runs, of which there is at least one.
func (g *Gate) verdictOf(values []Measured, aggregate string) Verdict {
	byValue := func(a, b Measured) int { return cmp.Compare(a.Value, b.Value) }
	least, greatest := slices.MinFunc(values, byValue), slices.MaxFunc(values, byValue)
	v := Verdict{Gate: g, Runs: len(values), Aggregate: aggregate, Spread: greatest.Value - least.Value}
	switch aggregate {
	case "max":
		v.Found = greatest
	case "min":
		v.Found = least
	case worstRun:
		v.Found = slices.MinFunc(values, func(a, b Measured) int { return cmp.Compare(g.Margin(a.Value), g.Margin(b.Value)) })
	default:
		slices.SortStableFunc(values, func(a, b Measured) int { return cmp.Compare(g.Margin(b.Value), g.Margin(a.Value)) })
		v.Found = values[len(values)/2]
	}
	v.Holds = g.holds(v.Found.Value)
	return v
}

// pathsOf lists the recordings of jobs, the first of many.
func pathsOf(jobs []recording.Job) string {
	const most = 8
	var paths []string
	for _, job := range jobs[:min(len(jobs), most)] {
		paths = append(paths, job[0].Path)
	}
	if more := len(jobs) - most; more > 0 {
		return fmt.Sprintf("%s, … (%d more)", strings.Join(paths, ", "), more)
	}
	return plain.Alternatives(paths)
}
