package gate

import (
	"cmp"
	"slices"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/attribution"
)

// Part is what a category, a module or a line of code requested at the peak, or by how much more than in the baseline.
type Part struct {
	By    string `json:"by"` // "category", "module" or "line"
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// mostParts is how many parts of each kind a baseline has.
const mostParts = 12

// partsOf divides what was requested at the peak of a device: by category, by module and by line, each the largest first.
func partsOf(d *analysis.DeviceResult) (parts []Part) {
	if d.Held == nil || !d.Held.Known {
		return nil
	}
	lines := attribution.NewGrouping[string]()
	for i := range d.Held.Stacks.Groups {
		g := &d.Held.Stacks.Groups[i]
		lines.Merge(attribution.UserLine(g.Frames), g)
	}
	add := func(by string, groups []attribution.Group) {
		for _, g := range groups[:min(len(groups), mostParts)] {
			if g.Name != "" {
				parts = append(parts, Part{by, g.Name, g.Requested})
			}
		}
	}
	add("category", d.Held.Categories.Groups)
	if d.Held.ByModule {
		add("module", d.Held.Kinds.Groups)
	}
	add("line", lines.Breakdown(mostParts, attribution.Named).Groups)
	return parts
}

// grown are the three parts that grew most, by how much.
func grown(before, now []Part) (most []Part) {
	if len(before) == 0 {
		return nil
	}
	for _, p := range now {
		n := 0
		for _, old := range before {
			if n++; old.By != p.By {
				n = 0
			} else if old.Name == p.Name || n == mostParts { // what is left out had no more than the last one
				p.Bytes -= old.Bytes
				break
			}
		}
		if p.Bytes > 0 {
			most = append(most, p)
		}
	}
	slices.SortStableFunc(most, func(x, y Part) int { return cmp.Compare(y.Bytes, x.Bytes) })
	return most[:min(len(most), 3)]
}
