package report

import "github.com/memprof/memprof/analysis"

// pageDiff is the data of a comparison. A part is a section of the other reports; beside it stands
// by what share each of its lines changed, for the bars.
type pageDiff struct {
	Head  pageSection `json:"head"`
	Parts []pagePart  `json:"parts"`
}

type pagePart struct {
	pageSection
	// Changes are, line by line, the change as a share of the greater of the two; of shares, in points of which 1 is all.
	Changes  []float64 `json:"changes"`
	Outcomes []string  `json:"outcomes"`
}

func newPageDiff(c Compared) pageDiff {
	out := pageDiff{Head: newPageSection(diffHead(c)), Parts: []pagePart{}}
	for _, part := range diffParts(c.Diff) {
		if len(part.changes) == 0 {
			continue
		}
		p := pagePart{pageSection: newPageSection(diffSection(part, c.Top)), Changes: []float64{}, Outcomes: []string{}}
		for i := range part.changes {
			change := &part.changes[i]
			if change.Outcome() == analysis.Same || len(p.Changes) == len(p.Rows) {
				continue
			}
			p.Changes = append(p.Changes, changeShare(change))
			p.Outcomes = append(p.Outcomes, change.Outcome().String())
		}
		out.Parts = append(out.Parts, p)
	}
	return out
}

// changeShare is from -1, what went, to 1, what is new; 0 for what one side does not tell.
func changeShare(c *analysis.Change) float64 {
	delta, ok := c.Delta()
	greater := max(c.Base.Median, c.New.Median, -c.Base.Median, -c.New.Median)
	switch {
	case !ok || greater == 0:
		return 0
	case c.Unit == analysis.Share:
		return max(-1, min(1, delta))
	}
	return delta / greater
}
