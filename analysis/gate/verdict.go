package gate

import (
	"fmt"
	"math"
)

// Location is where in a recording a value was found.
type Location struct {
	Path    string `json:"path"`
	Process string `json:"process"` // "" for a value of the whole job
	Device  int32  `json:"device"`  // -1 for a mean, and for a value of the whole job
	Seq     int64  `json:"seq"`     // of the event after which it was true; -1 for values of the whole run
}

func (l Location) String() string {
	if l.Process == "" {
		return l.Path
	}
	text := fmt.Sprintf("%s: %s", l.Path, l.Process)
	if l.Device >= 0 {
		text += fmt.Sprintf(", device %d", l.Device)
	}
	if l.Seq >= 0 {
		text += fmt.Sprintf(", seq %d", l.Seq)
	}
	return text
}

// Measured is a metric's value and where it was found.
type Measured struct {
	Value float64
	Where Location
	Parts []Part // of a relative gate in bytes: what was requested at the peak there
}

// Verdict is the result of one gate.
type Verdict struct {
	Gate      *Gate  // with its limit, also where that is relative
	Written   *Gate  // as it was given; where each rank is judged by itself, the same for each
	Rank      string // the rank or process where each is judged by itself; else ""
	Found     Measured
	Runs      int
	Aggregate string  // how Found is taken of several runs: median, max or min, or worst for ==, which every run has to keep
	Spread    float64 // greatest less least value of the runs, in the metric's unit
	Holds     bool
	Grown     []Part // of a relative gate that does not hold: by how much the parts that grew most are above the baseline
}

// Trustworthy says whether the runs lie no further apart than the value is from the limit. Otherwise the
// same code could be judged the other way tomorrow.
func (v *Verdict) Trustworthy() bool { return v.Spread <= math.Abs(v.Gate.Margin(v.Found.Value)) }

// Violated says whether the verdict makes the check fail.
func (v *Verdict) Violated() bool { return !v.Holds && v.Gate.Severity == SeverityError }

// Skip is a gate that was not judged for a recording, and why. Only a gate with Always can be skipped.
type Skip struct {
	Gate *Gate
	Path string
	Why  string
}

func (s *Skip) String() string { return fmt.Sprintf("%s: skipped: %s: %s", s.Gate.Text, s.Path, s.Why) }

// Results are the verdicts of a check.
type Results struct {
	Verdicts []Verdict
	Skips    []Skip
}

// Count returns how many gates were judged, and how many of them are violated. A gate that is judged for
// each rank counts once.
func (r *Results) Count() (gates, violated int) {
	all, bad := map[*Gate]bool{}, map[*Gate]bool{}
	for _, v := range r.Verdicts {
		all[v.Written] = true
		if v.Violated() {
			bad[v.Written] = true
		}
	}
	return len(all), len(bad)
}
