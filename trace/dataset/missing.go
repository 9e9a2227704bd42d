package dataset

import (
	"fmt"
	"slices"
)

// Missing is a process of a run whose parts are not in the run's directory.
type Missing struct {
	Process string `json:"process"` // its name
	Why     string `json:"why"`     // how it is known that there was one
}

func (m Missing) String() string { return fmt.Sprintf("%s is missing: %s", m.Process, m.Why) }

// Missing returns the processes whose parts should be in the run's directory and are not: those that run.json
// lists, and the ranks of this host that follow from what other ranks recorded (local rank and local world size). It is
// empty for a single part, and after [Run.Choose]. For ranks on other hosts see [Run.Absent].
func (r *Run) Missing() []Missing {
	if r.partial {
		return nil
	}
	here := map[string]bool{}
	ranks := map[int]bool{}
	for _, p := range r.Processes {
		here[p.Name] = true
		ranks[p.Rank] = true
	}
	var missing []Missing
	for _, name := range r.Info.Processes {
		if !here[name] {
			missing = append(missing, Missing{name, InfoName + " lists it"})
			here[name] = true
		}
	}
	if r.Info.Source == DryRun { // it is of one rank
		return missing
	}
	for _, p := range r.Processes {
		if p.Rank < p.LocalRank || p.LocalRank < 0 || p.LocalWorldSize <= p.LocalRank || p.LocalWorldSize > min(p.WorldSize, mostLocalRanks) {
			continue // unknown, or contradictory
		}
		first := p.Rank - p.LocalRank
		for rank := first; rank < first+p.LocalWorldSize; rank++ {
			name := fmt.Sprintf("rank%d", rank)
			if !ranks[rank] && !here[name] {
				missing = append(missing, Missing{name, fmt.Sprintf("%s says that this host has the ranks %d to %d", p.Name, first, first+p.LocalWorldSize-1)})
				here[name] = true
			}
		}
	}
	return missing
}

// Absent returns the ranks of the run's world that have no parts in its directory and are not in [Run.Missing],
// ascending: other hosts recorded them, or no host did.
func (r *Run) Absent() []int {
	if r.partial || r.Info.Source == DryRun {
		return nil
	}
	world := 0
	known := map[string]bool{}
	for _, p := range r.Processes {
		if p.Rank >= 0 {
			world = max(world, p.WorldSize)
			known[fmt.Sprintf("rank%d", p.Rank)] = true
		}
	}
	for _, m := range r.Missing() {
		known[m.Process] = true
	}
	var absent []int
	for rank := range min(world, mostRanks) {
		if !known[fmt.Sprintf("rank%d", rank)] {
			absent = append(absent, rank)
		}
	}
	return slices.Clip(absent)
}

// Upper limits for what a damaged part may claim.
const (
	mostRanks      = 1 << 20
	mostLocalRanks = 1 << 12
)
