package page

import (
	"io"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/report/layout"
)

// Part is a table of a comparison, and how far each of its rows changed, for its bar.
type Part struct {
	Section layout.Section
	// Changes are relative to the greater of the two values, from -1 to 1; of shares, the difference.
	Changes  []float64
	Outcomes []string
}

// Course is the memory of a device over time, from its first event on.
type Course struct {
	Name      string  `json:"name"`
	Time      []int64 `json:"time"`      // ns since the first event, at the start of a point
	Reserved  []int64 `json:"reserved"`  // the greatest in a point
	Requested []int64 `json:"requested"` // likewise
}

// NewCourse makes the course of points.
func NewCourse(name string, points []analysis.Point) Course {
	c := Course{Name: name, Time: []int64{}, Reserved: []int64{}, Requested: []int64{}}
	for i := range points {
		p := &points[i]
		c.Time = append(c.Time, p.Start-points[0].Start)
		c.Reserved = append(c.Reserved, p.R.Max)
		c.Requested = append(c.Requested, p.T.Max)
	}
	return c
}

type diffData struct {
	Head    sectionData `json:"head"`
	Parts   []diffPart  `json:"parts"`
	Courses []Course    `json:"courses"`
}

type diffPart struct {
	sectionData
	Changes  []float64 `json:"changes"`
	Outcomes []string  `json:"outcomes"`
}

// WriteDiff writes the page of a comparison, with a title. It fails only if w does.
func WriteDiff(w io.Writer, title string, head layout.Section, parts []Part, courses []Course) error {
	out := diffData{Head: newSection(head), Parts: []diffPart{}, Courses: append([]Course{}, courses...)}
	for _, p := range parts {
		out.Parts = append(out.Parts, diffPart{newSection(p.Section), append([]float64{}, p.Changes...), append([]string{}, p.Outcomes...)})
	}
	var data pack
	return renderPage(w, "diff", title, data.finish(mustJSON(out)), nil, false)
}
