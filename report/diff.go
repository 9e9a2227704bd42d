package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/compare"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/figure"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/page"
)

// Compared is two sets of runs and their names.
type Compared struct {
	*compare.Diff
	BaseNames, NewNames []string
	// Courses are the memory over time of one run of each set, for a page; the lists may be empty.
	BaseCourse, NewCourse []analysis.Point
	// Top is the most rows of a table in text and Markdown, at least 1. JSON and metrics have all.
	Top int
}

// DiffSections returns what changed between two sets of runs: the sets, the changed metrics, and the changed groups of each part that has any.
func DiffSections(c Compared) []layout.Section {
	sections := []layout.Section{diffHead(c)}
	for _, part := range diffParts(c.Diff) {
		if len(part.changes) > 0 {
			sections = append(sections, diffSection(part, c.Top))
		}
	}
	return sections
}

// diffPart is a list of changes: of all metrics, or of one kind of groups.
type diffPart struct {
	title   string
	column  string // head of the names
	changes []compare.Change
	name    func(string) string // display text of a name
	whole   bool                // Top does not apply
}

func diffParts(d *compare.Diff) []diffPart {
	return []diffPart{
		{"Metrics that are better", "metric", metricsOf(d, "better"), strings.Clone, true},
		{"Metrics that are worse", "metric", metricsOf(d, "worse"), strings.Clone, true},
		{"Metrics that changed, neither better nor worse", "metric", metricsOf(d, ""), strings.Clone, true},
		{"Requested at the peak, by module", "module", d.Modules, moduleName, false},
		{"Requested at the peak, by source line", "line", d.Lines, stackText, false},
		{"Requested at the peak, by call stack", "stack", d.Stacks, stackText, false},
		{"Requested at the peak, by category", "category", d.Categories, shortName, false},
		{"Requested at the peak, by size of the request", "size", d.Sizes, sizeName, false},
		{"Peak of requested, by phase", "phase", d.Phases, shortName, false},
		{"Peak of requested, by iteration", "iteration", d.Requested, shortName, false},
		{"Peak of reserved, by iteration", "iteration", d.Reserved, shortName, false},
	}
}

// metricsOf are the metrics with a verdict. Those without a direction are changes all the same.
func metricsOf(d *compare.Diff, verdict string) []compare.Change {
	var of []compare.Change
	for _, c := range d.Metrics {
		switch c.Outcome() {
		case compare.Grew, compare.Shrank:
			if c.Verdict() == verdict {
				of = append(of, c)
			}
		case compare.OneSided:
			if verdict == "" {
				of = append(of, c)
			}
		}
	}
	return of
}

// headline says in words what matters most: "reserved 8.00 -> 6.20 GiB, -22 %; requested unchanged".
func headline(d *compare.Diff) string {
	var parts []string
	for _, of := range [][2]string{{"reserved.peak", "reserved"}, {"requested.peak", "requested"}} {
		for i := range d.Metrics {
			if c := &d.Metrics[i]; c.Name == of[0] {
				parts = append(parts, of[1]+" "+changeWords(c))
			}
		}
	}
	counts := map[string]int64{}
	for i := range d.Metrics {
		c := &d.Metrics[i]
		counts[cmp.Or(c.Verdict(), c.Outcome().String())]++
	}
	text := strings.Join(parts, "; ")
	if text != "" {
		text += ". "
	}
	return text + fmt.Sprintf("%s better, %s worse, %s within noise, %s unchanged", plain.Counted(counts["better"], "metric"), plain.FormatCount(counts["worse"]),
		plain.FormatCount(counts["within noise"]), plain.FormatCount(counts["same"]+counts["too small"]))
}

// changeWords is a change of bytes in words.
func changeWords(c *compare.Change) string {
	switch c.Outcome() {
	case compare.Same, compare.TooSmall:
		return "unchanged"
	case compare.OneSided:
		return outcomeText(c)
	}
	delta, _ := c.Delta()
	unit, name := 1., "B"
	for _, larger := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if max(c.Base.Median, c.New.Median) < 1024*unit {
			break
		}
		unit, name = 1024*unit, larger
	}
	text := fmt.Sprintf("%.2f -> %.2f %s", c.Base.Median/unit, c.New.Median/unit, name)
	if c.Base.Median > 0 {
		text += fmt.Sprintf(", %+.3g %%", 100*delta/c.Base.Median)
	}
	if c.Outcome() == compare.WithinNoise {
		text += " (within noise)"
	}
	return text
}

func shortName(name string) string { return plain.Shorten(name, 28) }

// moduleName is the display text of a module; "" stands for none.
func moduleName(name string) string {
	if name == "" {
		return "(none)"
	}
	return shortName(name)
}

// stackText is the display text of a call stack or a line: its innermost frames.
func stackText(name string) string {
	if name == "" {
		return "(no stack)"
	}
	return plain.Shorten(name, 60)
}

// sizeName is the display text of a size, whose name is a number of bytes.
func sizeName(name string) string {
	bytes, err := strconv.ParseInt(name, 10, 64)
	if err != nil {
		return shortName(name)
	}
	return plain.FormatSize(bytes)
}

func diffHead(c Compared) layout.Section {
	s := layout.Section{Title: "What changed", Heading: true, Before: []layout.Cell{
		{Text: setLine("base", c.BaseNames, c.Base)},
		{Text: setLine("new", c.NewNames, c.New)},
	}}
	s.Before = append(s.Before, layout.Cell{Text: headline(c.Diff), Tone: layout.Strong})
	if c.Base < 2 && c.New < 2 {
		s.After = append(s.After, layout.Cell{Text: "one run each: no noise known, so every difference counts as a change; add runs of each", Tone: layout.Warned})
	}
	return s
}

// setLine names the recordings of a set. Several recordings may be of one run.
func setLine(set string, names []string, runs int) string {
	const most = 3
	shown := make([]string, 0, most)
	for _, name := range names[:min(most, len(names))] {
		shown = append(shown, plain.Shorten(name, 24))
	}
	line := fmt.Sprintf("%s: %s, %s", set, plain.Counted(int64(runs), "run"), strings.Join(shown, ", "))
	if more := len(names) - most; more > 0 {
		line += fmt.Sprintf(" and %d more", more)
	}
	return line
}

// diffSection lists the changes and counts the rest.
func diffSection(part diffPart, top int) layout.Section {
	s := layout.Section{Title: part.title, Columns: []layout.Column{
		layout.Words(part.column), layout.Numbers("base"), layout.Numbers("new"), layout.Numbers("change"), {Name: "%", Number: true, Implied: true}, {Name: "noise", Number: true, Implied: true}, layout.Words("outcome"),
	}}
	same, left := int64(0), int64(0)
	for i := range part.changes {
		change := &part.changes[i]
		switch {
		case change.Outcome() == compare.Same:
			same++
		case !part.whole && len(s.Rows) >= top:
			left++
		default:
			s.Rows = append(s.Rows, changeRow(part.name(change.Name), change))
		}
	}
	if len(s.Rows) == 0 {
		s.Columns = nil
	}
	if left > 0 {
		s.After = append(s.After, layout.Cell{Text: plain.FormatCount(left) + " more changed less, or are known of one side only", Tone: layout.Faint})
	}
	if same > 0 {
		s.After = append(s.After, layout.Cell{Text: plain.FormatCount(same) + " the same", Tone: layout.Faint})
	}
	return s
}

func changeRow(name string, c *compare.Change) []layout.Cell {
	cells := layout.Row(name, spreadText(c.Unit, c.Base), spreadText(c.Unit, c.New), plain.Absent, plain.Absent, plain.Absent, outcomeText(c))
	if delta, ok := c.Delta(); ok {
		cells[3].Text = changeText(c.Unit, delta)
		if c.Unit != analysis.Share && c.Base.Median != 0 {
			cells[4].Text = relativeText(delta / math.Abs(c.Base.Median))
		}
	}
	if noise, ok := c.Noise(); ok {
		cells[5].Text = distanceText(c.Unit, noise)
	}
	switch {
	case c.Verdict() == "worse":
		cells[6].Tone = layout.Strong
	case c.Outcome() == compare.WithinNoise:
		return layout.Toned(layout.Faint, cells)
	}
	return cells
}

// relativeText is a relative change. One that rounds to nothing is no zero.
func relativeText(change float64) string {
	if change != 0 && math.Abs(change) < 0.0005 {
		return "<0.1%"
	}
	return signed(plain.FormatPercent(change))
}

// outcomeText names the side on which a value is not known: it does not record the value, or lists only
// greater ones.
func outcomeText(c *compare.Change) string {
	switch {
	case c.Base.Runs == 0:
		return "unknown in base"
	case c.New.Runs == 0:
		return "unknown in new"
	}
	return outcomeWord(c)
}

// outcomeWord is "better" or "worse" where one of them is, else the outcome.
func outcomeWord(c *compare.Change) string {
	if verdict := c.Verdict(); verdict != "" {
		return verdict
	}
	return c.Outcome().String()
}

func spreadText(unit analysis.Unit, s compare.Spread) string {
	if s.Runs == 0 {
		return plain.Absent
	}
	return valueText(unit, s.Median)
}

// valueText is a value with its unit.
func valueText(unit analysis.Unit, value float64) string {
	switch unit {
	case analysis.Share:
		return plain.FormatPercent(value)
	case analysis.Bytes:
		return plain.FormatSize(int64(math.Round(value)))
	}
	return plain.FormatCount(int64(math.Round(value)))
}

// changeText is a change with its sign and unit.
func changeText(unit analysis.Unit, delta float64) string {
	if delta < 0 {
		return "-" + distanceText(unit, -delta)
	}
	return "+" + distanceText(unit, delta)
}

// distanceText is a difference with its unit. Shares, which are percentages, differ by points.
func distanceText(unit analysis.Unit, distance float64) string {
	if unit == analysis.Share {
		return strings.TrimSuffix(plain.FormatPercent(distance), "%") + " pt"
	}
	return valueText(unit, distance)
}

// signed puts "+" before a number without a sign, unless it is shown as 0.
func signed(text string) string {
	if strings.Trim(text, "-0.%") == "" {
		return strings.TrimPrefix(text, "-")
	}
	if strings.HasPrefix(text, "-") || text == plain.Absent {
		return text
	}
	return "+" + text
}

// DiffJSON writes a comparison as one indented JSON object: the two sets, and a list for each part with all
// its rows, also unchanged ones. Bytes and counts are integers, rounded if they are trends or means; shares
// are numbers from 0 to 1; what does not exist is null; lists are never null. It fails only if w does.
func DiffJSON(w io.Writer, c Compared) error {
	out := jsonDiff{Base: jsonSet{c.Base, names(c.BaseNames)}, New: jsonSet{c.New, names(c.NewNames)}}
	for _, part := range []struct {
		to      *[]jsonChange
		changes []compare.Change
	}{
		{&out.Metrics, c.Metrics}, {&out.Modules, c.Modules}, {&out.Lines, c.Lines}, {&out.Stacks, c.Stacks}, {&out.Categories, c.Categories}, {&out.Sizes, c.Sizes},
		{&out.Phases, c.Phases}, {&out.Requested, c.Requested}, {&out.Reserved, c.Reserved},
	} {
		*part.to = newJSONChanges(part.changes)
	}
	return plain.WriteJSON(w, out)
}

type jsonDiff struct {
	Base       jsonSet      `json:"base"`
	New        jsonSet      `json:"new"`
	Metrics    []jsonChange `json:"metrics"`
	Modules    []jsonChange `json:"modules"`
	Lines      []jsonChange `json:"lines"`
	Stacks     []jsonChange `json:"stacks"` // the name is its frames, innermost first, with " < " between
	Categories []jsonChange `json:"categories"`
	Sizes      []jsonChange `json:"sizes"` // the name is the size in bytes
	Phases     []jsonChange `json:"phases"`
	Requested  []jsonChange `json:"iterations_requested"` // the name is the place, from 0, or the first and last place of a run of neighbours
	Reserved   []jsonChange `json:"iterations_reserved"`
}

type jsonSet struct {
	Runs  int      `json:"runs"`
	Paths []string `json:"paths"`
}

type jsonChange struct {
	Name    string      `json:"name"`
	Unit    string      `json:"unit"`
	Outcome string      `json:"outcome"`
	Verdict *string     `json:"verdict"` // "better" or "worse"; null where neither is
	Change  any         `json:"change"`
	Noise   any         `json:"noise"`
	Effect  *float64    `json:"effect"` // from -1 to 1; null where one set lacks the number
	Base    *jsonSpread `json:"base"`
	New     *jsonSpread `json:"new"`
}

type jsonSpread struct {
	Runs   int `json:"runs"`
	Min    any `json:"min"`
	Median any `json:"median"`
	Max    any `json:"max"`
}

func names(of []string) []string { return append([]string{}, of...) }

func newJSONChanges(changes []compare.Change) []jsonChange {
	out := []jsonChange{}
	for i := range changes {
		c := &changes[i]
		j := jsonChange{Name: c.Name, Unit: c.Unit.String(), Outcome: c.Outcome().String(), Verdict: plain.NotEmpty(c.Verdict()), Base: newJSONSpread(c.Unit, c.Base), New: newJSONSpread(c.Unit, c.New)}
		if delta, ok := c.Delta(); ok {
			j.Change, j.Effect = jsonNumber(c.Unit, delta), &c.Effect
		}
		if noise, ok := c.Noise(); ok {
			j.Noise = jsonNumber(c.Unit, noise)
		}
		out = append(out, j)
	}
	return out
}

func newJSONSpread(unit analysis.Unit, s compare.Spread) *jsonSpread {
	if s.Runs == 0 {
		return nil
	}
	return &jsonSpread{s.Runs, jsonNumber(unit, s.Min), jsonNumber(unit, s.Median), jsonNumber(unit, s.Max)}
}

// jsonNumber is an integer for bytes and counts.
func jsonNumber(unit analysis.Unit, value float64) any {
	if unit == analysis.Share {
		return plain.Finite(value)
	}
	return int64(math.Round(value))
}

// DiffHTML writes the sections and numbers of [DiffSections] as one page that loads nothing
// else. It fails only if w does.
func DiffHTML(w io.Writer, c Compared) error {
	c.Top = max(c.Top, 1000)
	var courses []page.Course
	for _, of := range []struct {
		name   string
		points []analysis.Point
	}{{"base", c.BaseCourse}, {"new", c.NewCourse}} {
		if len(of.points) > 0 {
			courses = append(courses, page.NewCourse(of.name, figure.ReducePoints(of.points, overlaidPoints)))
		}
	}
	return page.WriteDiff(w, fmt.Sprintf("%s -> %s", strings.Join(c.BaseNames, " "), strings.Join(c.NewNames, " ")), diffHead(c), pageParts(c), courses)
}

// overlaidPoints is the most points of a course on the page of a comparison: about one a pixel.
const overlaidPoints = 1200

// CourseOf is the memory over time of the device of a run with most reserved.
func CourseOf(run []*analysis.Result) []analysis.Point {
	most := int64(-1)
	var points []analysis.Point
	for _, r := range run {
		for i := range r.Devices {
			if d := &r.Devices[i]; d.MaxR > most {
				most, points = d.MaxR, d.Series.Points
			}
		}
	}
	return points
}

// pageParts are the tables of a page, with how far each row changed, for its bar.
func pageParts(c Compared) []page.Part {
	var parts []page.Part
	for _, part := range diffParts(c.Diff) {
		if len(part.changes) == 0 {
			continue
		}
		p := page.Part{Section: diffSection(part, c.Top)}
		greatest := 0.
		for i := range part.changes {
			if delta, ok := part.changes[i].Delta(); ok && part.changes[i].Unit == analysis.Bytes {
				greatest = max(greatest, math.Abs(delta))
			}
		}
		for i := range part.changes {
			change := &part.changes[i]
			if change.Outcome() == compare.Same || len(p.Changes) == len(p.Section.Rows) {
				continue
			}
			p.Changes = append(p.Changes, changeBar(change, greatest))
			p.Outcomes = append(p.Outcomes, outcomeWord(change))
		}
		parts = append(parts, p)
	}
	return parts
}

// changeBar is the length of a change's bar: its bytes, as a share of the greatest change of bytes in its table. Other units have no bar.
func changeBar(c *compare.Change, greatest float64) float64 {
	delta, ok := c.Delta()
	if !ok || c.Unit != analysis.Bytes || greatest == 0 {
		return 0
	}
	return delta / greatest
}
