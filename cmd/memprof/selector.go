package main

import (
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/report/plain"
	"github.com/memprof/memprof/report/spell"
)

// selector narrows what a gate is about: `reserved.peak{tag=kv} < 10GiB`. In a file of gates its
// keys can also stand beside the gate.
type selector struct {
	tag   string // only the arenas of this tag
	phase string // only this phase
	rank  string // as --rank
	job   string // only recordings whose directory's name or command this matches, with * and ?
}

// selectorKeys are in the order in which they are written.
var selectorKeys = []string{"job", "phase", "rank", "tag"}

// key is where the value of a key is kept; nil for no such key.
func (s *selector) key(name string) *string {
	switch name {
	case "tag":
		return &s.tag
	case "phase":
		return &s.phase
	case "rank":
		return &s.rank
	case "job":
		return &s.job
	}
	return nil
}

// parseSelector understands what stands between braces: KEY=VALUE, with commas between.
func parseSelector(text string) (selector, error) {
	var s selector
	for field := range strings.SplitSeq(text, ",") {
		name, value, found := strings.Cut(field, "=")
		name, value = strings.TrimSpace(name), strings.Trim(strings.TrimSpace(value), `"`)
		if !found || value == "" {
			return s, fmt.Errorf("{%s}: want KEY=VALUE, with commas between, KEY one of %s", text, strings.Join(selectorKeys, ", "))
		}
		if err := s.set(name, value); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s *selector) set(name, value string) error {
	into := s.key(name)
	if into == nil {
		return fmt.Errorf("unknown key %q in a selector: want one of %s%s", name, strings.Join(selectorKeys, ", "), spell.DidYouMean(name, selectorKeys...))
	}
	if *into != "" {
		return fmt.Errorf("%s is given twice", name)
	}
	if name == "job" {
		if _, err := path.Match(value, ""); err != nil {
			return fmt.Errorf("job %q: %w", value, err)
		}
	}
	*into = value
	return nil
}

// String is the selector as it is written after a metric; "" for none. The rank is left out: it is
// told as the rank of the verdict.
func (s *selector) String() string {
	var fields []string
	for _, name := range selectorKeys {
		if value := *s.key(name); value != "" && name != "rank" {
			fields = append(fields, name+"="+value)
		}
	}
	if fields == nil {
		return ""
	}
	return "{" + strings.Join(fields, ",") + "}"
}

// settle checks the selector against the metric and the rest of the gate, once all of it is known.
func (g *gate) settle() error {
	s := &g.selector
	switch {
	case s.tag != "" && s.phase != "":
		return fmt.Errorf("a tag and a phase: a gate is about one of them")
	case g.ranks != nil && (s.tag != "" || s.phase != ""):
		return fmt.Errorf("%s compares all ranks: it has no value of a tag or phase", g.metric.Name)
	case s.tag != "" && !slices.Contains(analysis.TagMetrics(), g.metric.Name):
		return fmt.Errorf("%s has no value of a tag; these have: %s", g.metric.Name, strings.Join(analysis.TagMetrics(), ", "))
	case s.phase != "" && !slices.Contains(analysis.PhaseMetrics(), g.metric.Name):
		return fmt.Errorf("%s has no value of a phase; these have: %s", g.metric.Name, strings.Join(analysis.PhaseMetrics(), ", "))
	case s.rank == "":
		return nil
	case g.job != nil:
		return fmt.Errorf("%s is about the whole job: it has no value of a rank", g.metric.Name)
	}
	choice, err := parseRankChoice(s.rank)
	if err != nil {
		return err
	}
	if g.ranks != nil && choice.kind == "one" {
		return fmt.Errorf("gate %q: %s compares all ranks: it has no value of one rank", g.text, g.metric.Name)
	}
	g.choice = &choice
	return nil
}

// of is the device of a process as far as the gate is about it; nil if the selector finds nothing.
func (s *selector) of(result *analysis.Result, device *analysis.DeviceResult) *analysis.DeviceResult {
	part, ok := device, true
	switch {
	case s.tag != "":
		part, ok = result.OfTag(device, s.tag)
	case s.phase != "":
		part, ok = device.OfPhase(s.phase)
	}
	if !ok {
		return nil
	}
	return part
}

// missing says what of the selector a job does not have, and what it has instead.
func (s *selector) missing(job repetition) string {
	kind, wanted, have := "phase", s.phase, map[string]bool{}
	if s.tag != "" {
		kind, wanted = "tag", s.tag
	}
	for _, run := range job {
		for _, result := range run.results {
			for i := range result.Devices {
				device := &result.Devices[i]
				if kind == "tag" {
					for _, use := range device.Tags {
						have[use.Tag] = true
					}
					continue
				}
				for _, use := range device.Phases {
					have[use.Phase] = true
				}
			}
		}
	}
	names := slices.Sorted(maps.Keys(have))
	switch {
	case wanted == "" || have[wanted]:
		return "nothing that " + s.String() + " is about"
	case len(names) == 0:
		return fmt.Sprintf("no %s %q, nor any other", kind, wanted)
	}
	return plain.Text(fmt.Sprintf("no %s %q: want %s%s", kind, wanted, spell.Alternatives(names), spell.DidYouMean(wanted, names...)))
}

// matches says whether a recording is of the job: by the name of its directory or by its command.
func (s *selector) matches(run *analyzedRun) bool {
	if s.job == "" {
		return true
	}
	return s.names(filepath.Base(filepath.Clean(run.path))) || run.run != nil && s.names(strings.Join(run.run.Info.Command, " "))
}

// names says whether a text is what the job's pattern means. A * also stands for slashes.
func (s *selector) names(text string) bool {
	flat := func(text string) string { return strings.ReplaceAll(text, "/", "\x00") }
	matched, err := path.Match(flat(s.job), flat(text))
	return matched && err == nil
}

// ofJob leaves the recordings that a gate is about.
func (s *selector) ofJob(jobs []repetition) []repetition {
	var chosen []repetition
	for _, job := range jobs {
		var nodes repetition
		for i := range job {
			if s.matches(&job[i]) {
				nodes = append(nodes, job[i])
			}
		}
		if nodes != nil {
			chosen = append(chosen, nodes)
		}
	}
	return chosen
}
