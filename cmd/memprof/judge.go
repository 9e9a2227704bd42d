package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/report/spell"
)

// verdict is what became of one gate.
type verdict struct {
	gate      *gate  // with its limit, also where that is relative
	written   *gate  // as it was given; of all ranks by themselves, the same for each
	rank      string // the name of the rank or process where each is judged by itself; "" otherwise
	found     measured
	runs      int
	aggregate string  // what found is of several runs: median, max or min
	spread    float64 // greatest less least value of the runs, in the metric's unit
	holds     bool
}

// trustworthy says whether the runs agree better than the value is off the limit. Otherwise
// the same code could be judged the other way tomorrow.
func (v *verdict) trustworthy() bool { return v.spread <= math.Abs(v.gate.margin(v.found.value)) }

// violated says whether the verdict makes check fail.
func (v *verdict) violated() bool { return !v.holds && v.gate.severity == severityError }

// word is the verdict for people.
func (v *verdict) word() string {
	switch {
	case v.holds:
		return "ok"
	case v.violated():
		return "VIOLATED"
	}
	return "warning"
}

func parseAggregate(text string) (string, error) {
	switch text {
	case "median", "max", "min":
		return text, nil
	}
	return "", exit.Usagef("aggregate %q: want median, max or min%s", text, spell.DidYouMean(text, "median", "max", "min"))
}

// judging is how gates are held against values.
type judging struct {
	choice    rankChoice // of gates that do not say
	aggregate string
	baseline  *baseline // nil where no gate is relative to it
	update    bool      // put the values found into the baseline first
}

// foresee tells what no recording could mend, so that no job is run for it. Of gates about each
// rank by itself the baseline has a value for each, and which there are is not known yet.
func (j *judging) foresee(gates []gate) error {
	var mistakes []error
	for i := range gates {
		g := &gates[i]
		choice := j.choiceOf(g)
		if err := g.comparable(choice); err != nil {
			mistakes = append(mistakes, err)
			continue
		}
		if g.relative == nil || j.update || choice.kind == "all" && g.ranks == nil {
			continue
		}
		_, err := j.baseline.limit(g, g.question(choice, "", j.aggregate))
		mistakes = append(mistakes, err)
	}
	return errors.Join(mistakes...)
}

// choiceOf is which ranks a gate is held against.
func (j *judging) choiceOf(g *gate) rankChoice {
	if g.job != nil { // has one value, whatever the rank
		return rankChoice{kind: "worst"}
	}
	if g.choice != nil {
		return *g.choice
	}
	return j.choice
}

// aggregateOf is which of several runs counts for a gate.
func (j *judging) aggregateOf(g *gate) string {
	if g.always { // every run has to keep it
		return "max"
	}
	return j.aggregate
}

// judge takes the values of each repetition and aggregates those. As the median of two, or of
// the middle two of an even number, the worse one counts. A value that a recording does not have is
// an error, but for a gate that was not given: of that one the recording is left out.
func (j *judging) judge(g *gate, jobs []repetition) ([]verdict, []skip, error) {
	choice, aggregate := j.choiceOf(g), j.aggregateOf(g)
	if jobs = g.selector.ofJob(jobs); len(jobs) == 0 {
		return nil, nil, g.mistake("no recording here is of a job like %q, by its directory or command", g.selector.job)
	}
	var names []string // in order of the first repetition, where they come in order of ranks
	byName := map[string][]measured{}
	var skips []skip
	for _, job := range jobs {
		values, err := choice.measure(g, job)
		var unknown *unknownError
		switch {
		case errors.As(err, &unknown) && g.always:
			skips = append(skips, skip{g, unknown.path, unknown.why})
			continue
		case unknown != nil:
			return nil, nil, g.mistake("gate %q: %s has no value for %s: %s", g.text, unknown.path, g.metric.Name, unknown.why)
		case err != nil:
			return nil, nil, err
		}
		for i, name := range namesOf(values, choice.kind == "all" && g.ranks == nil) {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
			byName[name] = append(byName[name], values[i])
		}
	}
	var verdicts []verdict
	for _, name := range names {
		limited, err := j.limited(g, g.question(choice, name, aggregate), byName[name])
		if err != nil {
			return nil, nil, err
		}
		v := limited.verdictOf(byName[name], aggregate)
		v.written, v.rank = g, name
		verdicts = append(verdicts, v)
	}
	return verdicts, skips, nil
}

// namesOf is what the values of one repetition are called in every repetition: the name of the
// rank each is of; of processes without ranks their place among such, since their own names are
// other ones at every run. Where not each is judged, there is one value, whoever has it.
func namesOf(values []measured, each bool) []string {
	names := make([]string, len(values))
	if !each {
		return names
	}
	unranked := 0
	for i, m := range values {
		names[i] = rankName(m.where.Process)
		if _, ranked := analysis.RankOf(m.where.Process); !ranked {
			unranked++
			names[i] = fmt.Sprintf("process %d", unranked)
		}
	}
	return names
}

// limited is g with its limit, which for a relative one comes from the baseline. Which of
// several values is the worst does not depend on the limit of < <= > and >=.
func (j *judging) limited(g *gate, question *baselineValue, values []measured) (*gate, error) {
	if g.relative == nil {
		return g, nil
	}
	if j.update {
		v := g.verdictOf(values, j.aggregate)
		question.Value, question.Spread, question.Runs = v.found.value, v.spread, v.runs
		j.baseline.set(*question)
	}
	limit, err := j.baseline.limit(g, question)
	if err != nil {
		return nil, err
	}
	out := *g
	out.limit = limit
	return &out, nil
}

// verdictOf judges the values of the runs; there is at least one.
func (g *gate) verdictOf(values []measured, aggregate string) verdict {
	byValue := func(a, b measured) int { return cmp.Compare(a.value, b.value) }
	least, greatest := slices.MinFunc(values, byValue), slices.MaxFunc(values, byValue)
	v := verdict{gate: g, runs: len(values), aggregate: aggregate, spread: greatest.value - least.value}
	switch aggregate {
	case "max":
		v.found = greatest
	case "min":
		v.found = least
	default:
		slices.SortStableFunc(values, func(a, b measured) int { return cmp.Compare(g.margin(b.value), g.margin(a.value)) })
		v.found = values[len(values)/2]
	}
	v.holds = g.holds(v.found.value)
	return v
}
