package layout

import "github.com/memprof/memprof/report/plain"

// narrowest is the least width that text is fitted into; a terminal with fewer columns wraps.
const narrowest = 80

// textLeft is how far names are shortened at most before a table is divided.
const textLeft = 16

// columnWidths are what the cells of each column need.
func columnWidths(s Section) []int {
	widths := make([]int, len(s.Columns))
	for i, c := range s.Columns {
		widths[i] = plain.Width(c.Name)
		for _, r := range s.Rows {
			widths[i] = max(widths[i], plain.Width(r[i].Text))
		}
		if s.Total != nil {
			widths[i] = max(widths[i], plain.Width(s.Total[i].Text))
		}
	}
	return widths
}
