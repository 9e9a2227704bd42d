package report

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/memprof/memprof/analysis"
)

// Compared is two sets of runs and what they are called.
type Compared struct {
	*analysis.Diff
	BaseNames, NewNames []string
	// Top is how many lines the tables of Text and Markdown have of each part, at least 1;
	// JSON has all.
	Top int
}

// DiffText writes what changed between two sets of runs for a terminal.
// It fails only where w does.
func DiffText(w io.Writer, c Compared, o Options) error {
	return writeText(w, o, diffSections(c)...)
}

// DiffMarkdown writes the sections and numbers of DiffText as GitHub-flavoured Markdown.
// It fails only where w does.
func DiffMarkdown(w io.Writer, c Compared) error {
	return writeMarkdown(w, diffSections(c)...)
}

// diffSections is the comparison in reading order: what it is of, metrics, and the parts
// of which anything is told.
func diffSections(c Compared) []section {
	sections := []section{diffHead(c)}
	for _, part := range diffParts(c.Diff) {
		if len(part.changes) > 0 {
			sections = append(sections, diffSection(part, c.Top))
		}
	}
	return sections
}

// diffPart is a list of changes: all metrics, or one kind of groups.
type diffPart struct {
	title   string
	column  string // what the lines are
	changes []analysis.Change
	name    func(string) string // of a line, for people
	whole   bool                // Top does not apply
}

func diffParts(d *analysis.Diff) []diffPart {
	return []diffPart{
		{"Metrics", "metric", d.Metrics, strings.Clone, true},
		{"Requested at the peak, by module", "module", d.Modules, moduleName, false},
		{"Requested at the peak, by category", "category", d.Categories, shortName, false},
		{"Requested at the peak, by size of the request", "size", d.Sizes, sizeName, false},
		{"Greatest requested, by phase", "phase", d.Phases, shortName, false},
		{"Greatest requested, by iteration", "iteration", d.Requested, shortName, false},
		{"Greatest reserved, by iteration", "iteration", d.Reserved, shortName, false},
	}
}

func shortName(name string) string { return shorten(name, 28) }

// moduleName names what has no module.
func moduleName(name string) string {
	if name == "" {
		return "(none)"
	}
	return shortName(name)
}

// sizeName is the size that the name of a group is in bytes.
func sizeName(name string) string {
	bytes, err := strconv.ParseInt(name, 10, 64)
	if err != nil {
		return shortName(name)
	}
	return FormatSize(bytes)
}

func diffHead(c Compared) section {
	s := section{title: "What changed", heading: true, before: []cell{
		{text: setLine("base", c.BaseNames, c.Base)},
		{text: setLine("new", c.NewNames, c.New)},
	}}
	if c.Base < 2 && c.New < 2 {
		s.after = append(s.after, cell{"one run of each: how much repetitions differ is not known, so every change is shown as one", warned})
	}
	return s
}

// setLine names the recordings of a set, of which several may be one run.
func setLine(set string, names []string, runs int) string {
	const most = 3
	shown := make([]string, 0, most)
	for _, name := range names[:min(most, len(names))] {
		shown = append(shown, shorten(name, 24))
	}
	line := fmt.Sprintf("%s: %s, %s", set, plural(int64(runs), "run"), strings.Join(shown, ", "))
	if more := len(names) - most; more > 0 {
		line += fmt.Sprintf(" and %d more", more)
	}
	return line
}

// diffSection lists what is not the same, and counts the rest.
func diffSection(part diffPart, top int) section {
	s := section{title: part.title, columns: []column{
		words(part.column), numbers("base"), numbers("new"), numbers("change"), {name: "%", number: true, implied: true}, numbers("noise"), words("outcome"),
	}}
	same, left := int64(0), int64(0)
	for i := range part.changes {
		change := &part.changes[i]
		switch {
		case change.Outcome() == analysis.Same:
			same++
		case !part.whole && len(s.rows) >= top:
			left++
		default:
			s.rows = append(s.rows, changeRow(part.name(change.Name), change))
		}
	}
	if len(s.rows) == 0 {
		s.columns = nil
	}
	if left > 0 {
		s.after = append(s.after, cell{text: formatCount(left) + " more changed by less, or are told by one side only", tone: faint})
	}
	if same > 0 {
		s.after = append(s.after, cell{text: formatCount(same) + " the same", tone: faint})
	}
	return s
}

func changeRow(name string, c *analysis.Change) []cell {
	cells := row(name, spreadText(c.Unit, c.Base), spreadText(c.Unit, c.New), absent, absent, absent, outcomeText(c))
	if delta, ok := c.Delta(); ok {
		cells[3].text = changeText(c.Unit, delta)
		if c.Unit != analysis.Share && c.Base.Median != 0 {
			cells[4].text = signed(FormatPercent(delta / math.Abs(c.Base.Median)))
		}
	}
	if noise, ok := c.Noise(); ok {
		cells[5].text = distanceText(c.Unit, noise)
	}
	switch c.Outcome() {
	case analysis.Grew:
		cells[6].tone = strong
	case analysis.WithinNoise:
		return toned(faint, cells)
	}
	return cells
}

// outcomeText says of what is one-sided which side lacks it: it tells nothing, or lists only what is
// greater.
func outcomeText(c *analysis.Change) string {
	switch {
	case c.Base.Runs == 0:
		return "unknown in base"
	case c.New.Runs == 0:
		return "unknown in new"
	}
	return c.Outcome().String()
}

func spreadText(unit analysis.Unit, s analysis.Spread) string {
	if s.Runs == 0 {
		return absent
	}
	return valueText(unit, s.Median)
}

// valueText writes a value in its unit.
func valueText(unit analysis.Unit, value float64) string {
	switch unit {
	case analysis.Share:
		return FormatPercent(value)
	case analysis.Bytes:
		return FormatSize(int64(math.Round(value)))
	}
	return formatCount(int64(math.Round(value)))
}

// changeText is a change in its unit.
func changeText(unit analysis.Unit, delta float64) string {
	if delta < 0 {
		return "-" + distanceText(unit, -delta)
	}
	return "+" + distanceText(unit, delta)
}

// distanceText is how far apart two values are, in their unit; of shares, which are percentages
// already, in points.
func distanceText(unit analysis.Unit, distance float64) string {
	if unit == analysis.Share {
		return strings.TrimSuffix(FormatPercent(distance), "%") + " pt"
	}
	return valueText(unit, distance)
}

// signed puts a plus before what has no sign.
func signed(text string) string {
	if strings.HasPrefix(text, "-") || text == absent {
		return text
	}
	return "+" + text
}
