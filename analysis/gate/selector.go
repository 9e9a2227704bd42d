package gate

import (
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/analysis/recording"
)

// Selector narrows what a gate is about: `reserved.peak{tag=kv} < 10GiB`. In a file of gates its keys can also
// be keys of the gate.
type Selector struct {
	Tag   string // only the arenas of this tag
	Phase string // only this phase
	Rank  string // as --rank
	Job   string // only recordings whose directory's name or command this matches, with * and ?
}

// selectorKeys are in the order in which they are written.
var selectorKeys = []string{"job", "phase", "rank", "tag"}

// key returns the field of a key, or nil if there is no such key.
func (s *Selector) key(name string) *string {
	switch name {
	case "tag":
		return &s.Tag
	case "phase":
		return &s.Phase
	case "rank":
		return &s.Rank
	case "job":
		return &s.Job
	}
	return nil
}

// parseSelector reads the text between braces: KEY=VALUE, separated by commas.
func parseSelector(text string) (Selector, error) {
	var s Selector
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

func (s *Selector) set(name, value string) error {
	into := s.key(name)
	if into == nil {
		return fmt.Errorf("unknown key %q in a selector: want one of %s%s", name, strings.Join(selectorKeys, ", "), plain.DidYouMean(name, selectorKeys...))
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

// String is the selector as written after a metric, or "". The rank is left out: a verdict has it in Rank.
func (s *Selector) String() string {
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

// suits checks the selector against the metric that it narrows; ranks says that this compares all ranks.
func (s *Selector) suits(metric *analysis.Metric, ranks bool) error {
	switch {
	case s.Tag != "" && s.Phase != "":
		return fmt.Errorf("a gate takes a tag or a phase, not both")
	case ranks && (s.Tag != "" || s.Phase != ""):
		return fmt.Errorf("%s compares all ranks: it has no value of a tag or phase", metric.Name)
	case s.Tag != "" && !metric.Of(analysis.OneTag):
		return fmt.Errorf("%s has no value of a tag; these metrics have one: %s", metric.Name, strings.Join(analysis.MetricsOf(analysis.OneTag), ", "))
	case s.Phase != "" && !metric.Of(analysis.OnePhase):
		return fmt.Errorf("%s has no value of a phase; these metrics have one: %s", metric.Name, strings.Join(analysis.MetricsOf(analysis.OnePhase), ", "))
	}
	return nil
}

// of returns what the part of a device has that the gate is about; false if the device has no such part.
func (s *Selector) of(result *analysis.Result, device *analysis.DeviceResult) (*analysis.Subjects, bool) {
	switch {
	case s.Tag != "":
		return result.OfTag(device, s.Tag)
	case s.Phase != "":
		return device.OfPhase(s.Phase)
	}
	return device.Subjects(), true
}

// missing says what the job does not have, and what it has instead.
func (s *Selector) missing(job recording.Job) string {
	kind, wanted, have := "phase", s.Phase, map[string]bool{}
	if s.Tag != "" {
		kind, wanted = "tag", s.Tag
	}
	for _, run := range job {
		for _, result := range run.Results {
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
	return fmt.Sprintf("no %s %q: want %s%s", kind, wanted, plain.Alternatives(names), plain.DidYouMean(wanted, names...))
}

// matches says whether a recording is of the selected job: by the name of its directory, or by its command.
func (s *Selector) matches(run *recording.Recording) bool {
	if s.Job == "" {
		return true
	}
	return s.names(filepath.Base(filepath.Clean(run.Path))) || run.Run != nil && s.names(strings.Join(run.Run.Info.Command, " "))
}

// names matches a text with the job's pattern. Unlike in paths, * also matches slashes.
func (s *Selector) names(text string) bool {
	flat := func(text string) string { return strings.ReplaceAll(text, "/", "\x00") }
	matched, err := path.Match(flat(s.Job), flat(text))
	return matched && err == nil
}

// ofJob returns the recordings that the gate is about.
func (s *Selector) ofJob(jobs []recording.Job) []recording.Job {
	var chosen []recording.Job
	for _, job := range jobs {
		nodes := slices.DeleteFunc(slices.Clone(job), func(r recording.Recording) bool { return !s.matches(&r) })
		if len(nodes) > 0 {
			chosen = append(chosen, nodes)
		}
	}
	return chosen
}
