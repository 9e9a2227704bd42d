package page

import (
	"io"

	"github.com/memprof/memprof/report/layout"
)

// Part is a table of a comparison, and how far each of its rows changed, for its bar.
type Part struct {
	Section layout.Section
	// Changes are relative to the greater of the two values, from -1 to 1; of shares, the difference.
	Changes  []float64
	Outcomes []string
}

type diffData struct {
	Head  sectionData `json:"head"`
	Parts []diffPart  `json:"parts"`
}

type diffPart struct {
	sectionData
	Changes  []float64 `json:"changes"`
	Outcomes []string  `json:"outcomes"`
}

// WriteDiff writes the page of a comparison. It fails only if w does.
func WriteDiff(w io.Writer, head layout.Section, parts []Part) error {
	out := diffData{Head: newSection(head), Parts: []diffPart{}}
	for _, p := range parts {
		out.Parts = append(out.Parts, diffPart{newSection(p.Section), append([]float64{}, p.Changes...), append([]string{}, p.Outcomes...)})
	}
	var data pack
	page, err := renderPage("memprof diff", "diff", data.finish(out))
	if err != nil {
		return err
	}
	_, err = w.Write(page)
	return err
}
