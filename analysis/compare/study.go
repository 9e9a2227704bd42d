package compare

import (
	"fmt"
	"math"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/iterations"
)

// Study repeats the table of the BFC paper: one row for each device of each job, with the mean and the
// maximum over the rows, next to the paper's own.
//
// The paper trained networks of TensorFlow 1.6 on V100s for 20 iterations. It compares the peaks of the
// requested bytes T and of the provided bytes C. T1 and C1 are the peaks of the first iteration, T2 and C2
// the means of the peaks of the later ones. All are divided by the reserved bytes R at the end of the job, or
// by the greatest R if R shrank ([iterations.Paper]).
type Study struct {
	Jobs []StudyJob
	// LeftOut are the devices and jobs without a row, with the reason.
	LeftOut []StudyGap
}

// StudyJob is one row: a device of a process of a job.
type StudyJob struct {
	Name   string
	Result *analysis.DeviceResult
}

// StudyGap is a device or a job without a row.
type StudyGap struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// Add adds a row for each device of a recording's processes. The row has the name of the recording, then the
// process if there are several, then the device if the process has several.
func (s *Study) Add(name string, results []*analysis.Result) {
	devices := 0
	for _, r := range results {
		devices += len(r.Devices)
	}
	if devices == 0 {
		s.LeftOut = append(s.LeftOut, StudyGap{name, "no memory of any device was used"})
	}
	for _, r := range results {
		for i := range r.Devices {
			d, own := &r.Devices[i], name
			if len(results) > 1 {
				own += " " + r.Process
			}
			if len(r.Devices) > 1 {
				own += fmt.Sprintf(" GPU %d", d.Device)
			}
			if why := unstudied(d); why != "" {
				s.LeftOut = append(s.LeftOut, StudyGap{own, why})
				continue
			}
			s.Jobs = append(s.Jobs, StudyJob{own, d})
		}
	}
}

// unstudied returns why a device has no row, "" if it has one.
func unstudied(d *analysis.DeviceResult) string {
	switch {
	case d.Allocs == 0:
		return "no memory was allocated"
	case len(d.Iterations) < 2:
		return "fewer than two iterations"
	case d.Paper == nil:
		return "nothing was reserved"
	}
	return ""
}

// StudyMeasure is one column of the table. Its values are shares: 1 is 100 %. "excess" and "excess_of_c" are
// negative if the later iterations have the greater C; "excess_of_c" can be above 1.
type StudyMeasure struct {
	Name  string                          `json:"name"`  // "c1"
	Title string                          `json:"title"` // "C1 − T1 (of R)"
	Value func(*iterations.Paper) float64 `json:"-"`
	// PaperMean and PaperMax are the paper's own mean and maximum, over its networks; NaN if it printed none.
	// The paper does not say whether a difference between T and C is a share of R or of C, so both columns
	// have the same figure.
	PaperMean float64 `json:"-"`
	PaperMax  float64 `json:"-"`
}

// StudyMeasures returns the columns, in order. The paper's "first iteration uses 25.8 % more" is taken
// relative to the later iterations: only then is 1 − C2 the 45.4 % that it prints (100 − 68.7/1.258).
func StudyMeasures() []StudyMeasure {
	none := math.NaN()
	return []StudyMeasure{
		{"t1", "T1", func(p *iterations.Paper) float64 { return p.T1 }, none, none},
		{"c1", "C1", func(p *iterations.Paper) float64 { return p.C1 }, 0.687, none},
		{"t2", "T2", func(p *iterations.Paper) float64 { return p.T2 }, none, none},
		{"c2", "C2", func(p *iterations.Paper) float64 { return p.C2 }, none, none},
		{"idle_first", "1 − C1", func(p *iterations.Paper) float64 { return 1 - p.C1 }, 0.313, none},
		{"idle_later", "1 − C2", func(p *iterations.Paper) float64 { return p.SteadyIdle }, 0.454, none},
		{"internal_first", "C1 − T1 (of R)", func(p *iterations.Paper) float64 { return p.C1 - p.T1 }, 0.075, 0.314},
		{"internal_first_of_c", "C1 − T1 (of C1)", func(p *iterations.Paper) float64 { return part(p.C1-p.T1, p.C1) }, 0.075, 0.314},
		{"internal_later", "C2 − T2 (of R)", func(p *iterations.Paper) float64 { return p.C2 - p.T2 }, 0.068, 0.170},
		{"internal_later_of_c", "C2 − T2 (of C2)", func(p *iterations.Paper) float64 { return part(p.C2-p.T2, p.C2) }, 0.068, 0.170},
		{"excess", "C1 − C2 (of R)", func(p *iterations.Paper) float64 { return p.C1 - p.C2 }, none, none},
		{"excess_of_c", "C1/C2 − 1", func(p *iterations.Paper) float64 { return p.FirstExcess }, 0.258, 0.828},
		{"own_idle_first", "1 − C/R, first", func(p *iterations.Paper) float64 { return 1 - p.OwnC1 }, none, none},
		{"own_idle_later", "1 − C/R, later", func(p *iterations.Paper) float64 { return 1 - p.OwnC2 }, none, none},
	}
}

// part returns of / whole, NaN if whole is 0.
func part(of, whole float64) float64 {
	if whole == 0 {
		return math.NaN()
	}
	return of / whole
}

// Mean returns the mean of a measure over the jobs that have it; NaN if none has. Jobs recorded with the
// native allocator may lack C.
func (s *Study) Mean(m *StudyMeasure) float64 {
	sum, n := 0.0, 0
	for i := range s.Jobs {
		if v := m.Value(s.Jobs[i].Result.Paper); !math.IsNaN(v) {
			sum, n = sum+v, n+1
		}
	}
	return part(sum, float64(n))
}

// Max returns the greatest value of a measure over the jobs that have it; NaN if none has.
func (s *Study) Max(m *StudyMeasure) float64 {
	greatest := math.NaN()
	for i := range s.Jobs {
		if v := m.Value(s.Jobs[i].Result.Paper); !math.IsNaN(v) && !(v <= greatest) {
			greatest = v
		}
	}
	return greatest
}
