package report

import (
	"io"

	"github.com/memprof/memprof/analysis/compare"
	"github.com/memprof/memprof/analysis/plain"
)

// StudyJSON writes the tables of the BFC paper over several jobs as one indented JSON object. Measures are
// shares from 0 to 1, by the names of [compare.StudyMeasures]; what does not exist is null; lists are
// never null. It fails only if w does.
func StudyJSON(w io.Writer, s *compare.Study) error {
	measures := compare.StudyMeasures()
	values := func(value func(*compare.StudyMeasure) float64) map[string]*float64 {
		out := map[string]*float64{}
		for i := range measures {
			out[measures[i].Name] = plain.Finite(value(&measures[i]))
		}
		return out
	}
	out := jsonStudy{Measures: measures, Jobs: []jsonStudyJob{}, LeftOut: append([]compare.StudyGap{}, s.LeftOut...)}
	for i := range s.Jobs {
		job := &s.Jobs[i]
		out.Jobs = append(out.Jobs, jsonStudyJob{
			Name: job.Name, Iterations: int(job.Result.IterationCount()), FinalReserved: job.Result.Final.R, Reserved: job.Result.Paper.Of,
			Values: values(func(m *compare.StudyMeasure) float64 { return m.Value(job.Result.Paper) }),
		})
	}
	out.Mean, out.Max = values(s.Mean), values(s.Max)
	out.PaperMean = values(func(m *compare.StudyMeasure) float64 { return m.PaperMean })
	out.PaperMax = values(func(m *compare.StudyMeasure) float64 { return m.PaperMax })
	return plain.WriteJSON(w, out)
}

type jsonStudy struct {
	Measures  []compare.StudyMeasure `json:"measures"`
	Jobs      []jsonStudyJob         `json:"jobs"`
	Mean      map[string]*float64    `json:"mean"`
	Max       map[string]*float64    `json:"max"`
	PaperMean map[string]*float64    `json:"paper_mean"`
	PaperMax  map[string]*float64    `json:"paper_max"`
	LeftOut   []compare.StudyGap     `json:"left_out"`
}

type jsonStudyJob struct {
	Name          string              `json:"name"`
	Iterations    int                 `json:"iterations"`
	FinalReserved int64               `json:"final_reserved"`
	Reserved      int64               `json:"reserved"` // what the shares are of: the greatest, which is the final one unless R shrank
	Values        map[string]*float64 `json:"values"`
}
