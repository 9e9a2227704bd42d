package gate

import (
	"fmt"
	"slices"
	"strings"
)

// always are judged in every check, each unless a gate is on the same metric or the user leaves the
// metric out by name. They are about the whole job: every rank of every run has to keep them.
var always = []string{jobExit + " == 0", "oom.count == 0"}

// AlwaysNames returns the metrics of the gates that are judged in every check.
func AlwaysNames() []string {
	var names []string
	for _, text := range always {
		name, _, _ := strings.Cut(text, " ")
		names = append(names, name)
	}
	return names
}

// CheckWithout fails for a name that is none of AlwaysNames.
func CheckWithout(name string) error {
	if names := AlwaysNames(); !slices.Contains(names, name) {
		return fmt.Errorf("without %q: want %s", name, strings.Join(names, " or "))
	}
	return nil
}

// WithAlways returns gates followed by those that are judged in every check, less the metrics in without.
func WithAlways(gates []Gate, without []string) ([]Gate, error) {
	all := slices.Clone(gates)
	for _, text := range always {
		g, err := Parse(text)
		if err != nil {
			return nil, err
		}
		given := slices.ContainsFunc(gates, func(of Gate) bool { return of.Metric.Name == g.Metric.Name })
		if given || slices.Contains(without, g.Metric.Name) {
			continue
		}
		g.Always, g.choice = true, &RankChoice{kind: "worst"}
		all = append(all, g)
	}
	return all, nil
}
