package report

import (
	"bytes"
	"io"
	"math"
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/compare"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/reporttest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// sampleStudy is three jobs: one of them had a native allocator and has no C, one has a name not to be trusted.
func sampleStudy() *compare.Study {
	s := &compare.Study{}
	for _, job := range []struct {
		name   string
		result *analysis.Result
	}{{"resnet50", reporttest.Training(4, 3, 4)}, {reporttest.HostileName, reporttest.Training(7, 5, 4)}} {
		p := job.result.Devices[0].Paper
		p.OwnC1, p.OwnC2 = 1.25*p.C1, p.C2
		s.Add(job.name, []*analysis.Result{job.result})
	}
	native := reporttest.Training(5, 2, 4)
	p := native.Devices[0].Paper
	nan := math.NaN()
	p.C1, p.C2, p.OwnC1, p.OwnC2, p.FirstExcess, p.SteadyIdle = nan, nan, nan, nan, nan, nan
	s.Add("native", []*analysis.Result{native})
	s.Add("empty", []*analysis.Result{{Process: "pid1"}})
	return s
}

func TestStudyGolden(t *testing.T) {
	for _, test := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{"study.txt", func(w io.Writer) error { return layout.WriteText(w, layout.Options{}, StudySections(sampleStudy())...) }},
		{"study.md", func(w io.Writer) error { return layout.WriteMarkdown(w, StudySections(sampleStudy())...) }},
		{"study.json", func(w io.Writer) error { return StudyJSON(w, sampleStudy()) }},
		{"study_nothing.json", func(w io.Writer) error { return StudyJSON(w, &compare.Study{}) }},
	} {
		var out bytes.Buffer
		assert.NoError(t, test.write(&out))
		reporttest.Golden(t, test.name, out.Bytes())
	}
}
