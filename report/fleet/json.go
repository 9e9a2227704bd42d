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
	Metric     string       `json:"metric"`
	Unit       string       `json:"unit"`
	Ranks      int          `json:"ranks"` // that have it
	Least      float64      `json:"least"`
	Median     float64      `json:"median"`
	P95        float64      `json:"p95"`
	Greatest   float64      `json:"greatest"`
	Mean       float64      `json:"mean"`
	LeastOf    jsonMember   `json:"least_of"`
	GreatestOf jsonMember   `json:"greatest_of"`
	Outliers   []jsonMember `json:"outliers"` // farthest first
}

type jsonMember struct {
	Recording string   `json:"recording"`
	Process   string   `json:"process"`
	Host      string   `json:"host"`
	Device    int32    `json:"device"`
	Value     *float64 `json:"value"`
}

// JSON prints every metric.
func JSON(w io.Writer, f *Fleet) error {
	out := jsonFleet{
		Command: append([]string{}, f.Info.Command...), Hosts: len(f.Hosts), Ranks: len(f.Members), Events: f.Events, Recovered: f.Recovers,
		Metrics: []jsonSpread{},
	}
	for _, s := range f.Spreads() {
		j := jsonSpread{
			Metric: s.Metric, Unit: s.Unit, Ranks: s.Members, Least: s.Least, Median: s.Median, P95: s.P95, Greatest: s.Greatest, Mean: s.Mean,
			LeastOf: f.member(s.LeastOf, s.Least), GreatestOf: f.member(s.GreatestOf, s.Greatest), Outliers: []jsonMember{},
		}
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
	m := &f.Members[at]
	j := jsonMember{Recording: m.Path, Process: m.Process, Host: m.Host, Device: m.Device}
	if !math.IsNaN(value) {
		j.Value = &value
	}
	return j
}
