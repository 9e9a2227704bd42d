package fleet

import (
	"io"
	"math"

	"github.com/memprof/memprof/analysis/plain"
)

type jsonFleet struct {
	Command   []string     `json:"command"`
	Hosts     int          `json:"hosts"`
	Ranks     int          `json:"ranks"` // devices of processes
	Events    int64        `json:"events"`
	Recovered int          `json:"recovered"` // processes that did not come to their own end
	Metrics   []jsonSpread `json:"metrics"`
}

type jsonSpread struct {
	Spread
	LeastOf    jsonMember   `json:"least_of"`
	GreatestOf jsonMember   `json:"greatest_of"`
	Outliers   []jsonMember `json:"outliers"` // farthest first
}

type jsonMember struct {
	Member
	Value *float64 `json:"value"`
}

// JSON prints every metric.
func JSON(w io.Writer, f *Fleet) error {
	out := jsonFleet{
		Command: append([]string{}, f.Info.Command...), Hosts: len(f.Hosts), Ranks: len(f.Members), Events: f.Events, Recovered: f.Recovers,
		Metrics: []jsonSpread{},
	}
	for _, s := range f.Spreads() {
		j := jsonSpread{Spread: s, LeastOf: f.member(s.leastOf, s.Least), GreatestOf: f.member(s.greatestOf, s.Greatest), Outliers: []jsonMember{}}
		for _, m := range s.outliers {
			j.Outliers = append(j.Outliers, f.member(m, f.values[s.Metric][m]))
		}
		out.Metrics = append(out.Metrics, j)
	}
	text, err := plain.JSON(out)
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

func (f *Fleet) member(at int, value float64) jsonMember {
	j := jsonMember{Member: f.Members[at]}
	if !math.IsNaN(value) {
		j.Value = &value
	}
	return j
}
