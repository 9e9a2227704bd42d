package report

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/compare"
	"github.com/memprof/memprof/report/figure"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/reporttest"
)

// sampleStudy is three jobs: one of them had a native allocator and has no C, one has a name not to be trusted.
func sampleStudy() *compare.Study {
	s := &compare.Study{}
	for _, job := range []struct {
		name   string
		result *analysis.Result
	}{{"resnet50", reporttest.Training(4, 3, 4)}, {reporttest.HostileName, reporttest.Training(7, 5, 4)}} {
		p := &job.result.Devices[0].Paper
		p.OwnC1, p.OwnC2 = 1.25*p.C1, p.C2
		s.Add(job.name, []*analysis.Result{job.result})
	}
	native := reporttest.Training(5, 2, 4)
	p := &native.Devices[0].Paper
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
		{"study.txt", func(w io.Writer) error { return StudyText(w, sampleStudy(), layout.Options{}) }},
		{"study.md", func(w io.Writer) error { return StudyMarkdown(w, sampleStudy()) }},
		{"study.json", func(w io.Writer) error { return StudyJSON(w, sampleStudy()) }},
		{"study_nothing.json", func(w io.Writer) error { return StudyJSON(w, &compare.Study{}) }},
		{"study-figure3.svg", StudyFigures(sampleStudy())[1].SVG},
	} {
		var out bytes.Buffer
		if err := test.write(&out); err != nil {
			t.Fatal(err)
		}
		reporttest.Golden(t, test.name, out.Bytes())
	}
}

// Small plots draw no more slices than they have pixels: curves would leave them at the right.
func TestCoursesStayInPlace(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	s := &compare.Study{}
	for range coursesDrawn {
		s.Add("model", []*analysis.Result{reporttest.Training(24, 20, 4)})
	}
	svg := reporttest.SVG(t, StudyFigures(s)[0])
	points := regexp.MustCompile(`[ML](-?[0-9.]+),`).FindAllStringSubmatch(svg, -1)
	if len(points) < 10_000 {
		t.Fatalf("%d points", len(points))
	}
	for _, point := range points {
		x, err := strconv.ParseFloat(point[1], 64)
		if background := x == float64(figure.Width); err != nil || x > float64(figure.Width-figure.Margin)+1 && !background {
			t.Fatalf("a point at %s, right of the plots", point[1])
		}
	}
}

// StudyFigures of no job, of a few and of more than there is room for are drawn, the same each time.
func TestStudyFigures(t *testing.T) {
	many := &compare.Study{}
	for i := range coursesDrawn + 6 {
		many.Add(fmt.Sprintf("model%d", i), []*analysis.Result{reporttest.Training(2, 2, 4)})
	}
	for name, s := range map[string]*compare.Study{"none": {}, "few": sampleStudy(), "many": many} {
		for _, f := range StudyFigures(s) {
			svg := reporttest.SVG(t, f)
			if again := reporttest.SVG(t, f); again != svg {
				t.Errorf("%s, %s: drawn twice, two results", name, f.Name)
			}
			reporttest.CheckSafe(t, strings.ReplaceAll(svg, "\t", " "))
		}
	}
	if svg := reporttest.SVG(t, StudyFigures(many)[0]); !strings.Contains(svg, "the first 24 of 30") || !strings.Contains(svg, ">model23<") || strings.Contains(svg, ">model24<") {
		t.Error("the figure of too many jobs does not say which it draws")
	}
}

func TestWriteStudyPlots(t *testing.T) {
	dir := t.TempDir()
	files, err := WriteStudyPlots(dir, sampleStudy())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		names = append(names, filepath.Base(file))
		if stat, err := os.Stat(file); err != nil || stat.Size() == 0 {
			t.Errorf("%s: %v", file, err)
		}
	}
	if diff := cmp.Diff([]string{"paper-figure2.png", "paper-figure2.svg", "paper-figure3.png", "paper-figure3.svg"}, names); diff != "" {
		t.Error(diff)
	}
	if _, err := WriteStudyPlots(filepath.Join(dir, "nowhere"), sampleStudy()); err == nil {
		t.Error("no error for a directory that is not there")
	}
}
