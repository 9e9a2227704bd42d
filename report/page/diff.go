package page

import (
	"io"

	"github.com/memprof/memprof/report/layout"
)

// pagePart is a table of a comparison, and for each of its rows by what share it changed, for its bar.
type Part struct {
	Section layout.Section
	// Changes are the change as a share of the greater of the two; of shares, in points of which 1 is all.
	Changes  []float64
	Outcomes []string
}

type pageDiff struct {
	Head  pageSection    `json:"head"`
	Parts []pageDiffPart `json:"parts"`
}

type pageDiffPart struct {
	pageSection
	Changes  []float64 `json:"changes"`
	Outcomes []string  `json:"outcomes"`
}

// WriteDiff writes the page of a comparison. It fails only where w does.
func WriteDiff(w io.Writer, head layout.Section, parts []Part) error {
	out := pageDiff{Head: newPageSection(head), Parts: []pageDiffPart{}}
	for _, p := range parts {
		out.Parts = append(out.Parts, pageDiffPart{newPageSection(p.Section), append([]float64{}, p.Changes...), append([]string{}, p.Outcomes...)})
	}
	var data pack
	page, err := renderPage("memprof diff", "diff", data.finish(out))
	if err != nil {
		return err
	}
	_, err = w.Write(page)
	return err
}
