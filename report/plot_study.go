package report

import (
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/memprof/memprof/analysis"
)

// StudyFigures are the BFC paper's figures over several jobs: "figure2", the courses of T, C and R,
// and "figure3", T1, C1, T2 and C2 of each job and in the mean.
func StudyFigures(s *analysis.Study) []Figure {
	return []Figure{coursesFigure(s), barsFigure(s)}
}

// WriteStudyPlots draws the figures of a study as PNG and SVG into a directory, which must exist:
// DIR/paper-figure2.png and so on. It returns the paths in the order they were written; after an error
// those of the files that are complete.
func WriteStudyPlots(dir string, s *analysis.Study) ([]string, error) {
	var paths []string
	for _, f := range StudyFigures(s) {
		written, err := f.write(dir, "paper-"+f.Name)
		paths = append(paths, written...)
		if err != nil {
			return paths, err
		}
	}
	return paths, nil
}

// coursesDrawn is how many courses a figure has room for.
const coursesDrawn = 24

// coursesFigure has a small plot of each job's memory over time.
func coursesFigure(s *analysis.Study) Figure {
	f := Figure{Name: "figure2", title: "memory over time, " + plural(int64(len(s.Jobs)), "job")}
	if len(s.Jobs) == 0 {
		f.body = message("no job has two iterations or more")
		return f
	}
	jobs := s.Jobs
	f.subtitle = "each from the start of its run to the end, up to its own greatest reserved memory"
	if len(jobs) > coursesDrawn {
		f.subtitle += fmt.Sprintf("; the first %d of %d", coursesDrawn, len(jobs))
		jobs = jobs[:coursesDrawn]
	}
	f.legend = []legendEntry{
		stroke(draw.LineStyle{Color: reservedColor, Width: 1.5}, "reserved (R): mapped"),
		swatch(internalColor, "provided (C): chunks handed out"),
		swatch(requestedColor, "requested (T)"),
	}
	columns := int(math.Ceil(math.Sqrt(float64(len(jobs)) * 1.4)))
	rows := (len(jobs) + columns - 1) / columns
	f.body = func(c draw.Canvas) {
		const gap = 12
		width := (c.Max.X - c.Min.X + gap) / vg.Length(columns)
		height := (c.Max.Y - c.Min.Y + gap) / vg.Length(rows)
		for i := range jobs {
			left, top := c.Min.X+width*vg.Length(i%columns), c.Max.Y-height*vg.Length(i/columns)
			drawCourse(draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{
				Min: vg.Point{X: left, Y: top - height + gap}, Max: vg.Point{X: left + width - gap, Y: top},
			}}, &jobs[i])
		}
	}
	return f
}

// drawCourse draws T, C and R of one job over time, with its name above.
func drawCourse(c draw.Canvas, job *analysis.StudyJob) {
	d := job.Result
	c.FillText(aligned(boldLetters, draw.XLeft, draw.YTop), vg.Point{X: c.Min.X, Y: c.Max.Y}, fit(boldLetters, shorten(job.Name, 60), c.Max.X-c.Min.X))
	c.Max.Y -= 16
	if len(d.Series.Points) == 0 {
		return
	}
	p := newAxes()
	timeAxis(&p.X, d.Series.Points[0].Start, courseEnd(d.Series.Points))
	p.X.Tick.Marker = plot.ConstantTicks{}
	p.X.Label.Text = ""
	p.Y.Min, p.Y.Max = 0, 1.06*float64(max(d.MaxR, 1))
	p.Y.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "0"}, {Value: float64(d.MaxR), Label: FormatSize(d.MaxR)}}
	p.Y.Tick.Label.Font = smallLetters.Font
	// A slice is at least a pixel wide, and the labels at the left take room.
	points := reducePoints(d.Series.Points, max(20, int((c.Max.X-c.Min.X-64)/pixel)))
	p.Add(grid{},
		envelope{points: points, curve: curveC, clr: internalColor, width: 0.6},
		envelope{points: points, curve: curveT, clr: requestedColor, width: 0.6, below: 0.13},
		envelope{points: points, curve: curveR, clr: reservedColor, width: 1.25})
	p.Draw(c)
}

// barsFigure has four bars for each job, and the mean last.
func barsFigure(s *analysis.Study) Figure {
	f := Figure{Name: "figure3", title: "peaks as shares of the reserved memory, " + plural(int64(len(s.Jobs)), "job")}
	if len(s.Jobs) == 0 {
		f.body = message("no job has two iterations or more")
		return f
	}
	measures := [4]*analysis.StudyMeasure{studyMeasure("t1"), studyMeasure("c1"), studyMeasure("t2"), studyMeasure("c2")}
	groups := make([]barGroup, 0, len(s.Jobs)+1)
	for i := range s.Jobs {
		groups = append(groups, barGroup{shorten(s.Jobs[i].Name, 40), [4]float64{}})
		for k := range groups[i].values {
			groups[i].values[k] = measures[k].Value(&s.Jobs[i].Result.Paper)
		}
	}
	mean := barGroup{name: "mean"}
	for k := range mean.values {
		mean.values[k] = s.Mean(measures[k])
	}
	groups = append(groups, mean)
	first, later := studyMeasure("idle_first"), studyMeasure("idle_later")
	f.subtitle = fmt.Sprintf("in the mean idle: %s in the first iteration (1 − C1), %s in later ones (1 − C2); the BFC paper: %s, %s",
		FormatPercent(s.Mean(first)), FormatPercent(s.Mean(later)), FormatPercent(first.PaperMean), FormatPercent(later.PaperMean))
	f.legend = make([]legendEntry, len(barColors))
	for k, label := range [...]string{"T1: requested, first iteration", "C1: provided, first iteration", "T2: requested, later ones", "C2: provided, later ones"} {
		f.legend[k] = swatch(barColors[k], label)
	}
	f.body = func(c draw.Canvas) {
		p := newAxes()
		var ticks plot.ConstantTicks
		for i, g := range groups {
			ticks = append(ticks, plot.Tick{Value: float64(i), Label: g.name})
		}
		p.X.Min, p.X.Max = -0.6, float64(len(groups))-0.4
		p.X.LineStyle.Width, p.X.Tick.LineStyle.Width = 0, 0
		p.X.Tick.Marker = ticks
		if len(groups) > namesAcross {
			p.X.Tick.Label.Rotation = math.Pi / 5
			p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = draw.XRight, draw.YTop
		}
		p.Y.Min, p.Y.Max = 0, 1.06
		p.Y.Tick.Marker = niceTicks(0, p.Y.Max, 7, 0.01, func(v float64, decimals int) string { return fixed(v, decimals) + "%" })
		p.Add(grid{}, barGroups(groups))
		p.Draw(c)
	}
	return f
}

// namesAcross is how many names have room side by side; more of them stand aslant.
const namesAcross = 8

// barColors are of T1, C1, T2, C2: the colours of T and C, those of the first iteration paler.
var barColors = [4]color.NRGBA{paler(requestedColor), paler(internalColor), requestedColor, internalColor}

// paler is a colour halfway to white.
func paler(c color.NRGBA) color.NRGBA {
	half := func(v uint8) uint8 { return uint8((int(v) + 0xff) / 2) }
	return color.NRGBA{half(c.R), half(c.G), half(c.B), c.A}
}

// barGroup is the four bars of a job; a value that is not known has none.
type barGroup struct {
	name   string
	values [4]float64
}

type barGroups []barGroup

func (groups barGroups) Plot(c draw.Canvas, p *plot.Plot) {
	const width = 0.2
	x, y := p.Transforms(&c)
	c.StrokeLine2(draw.LineStyle{Color: reservedColor, Width: 2}, c.Min.X, y(1), c.Max.X, y(1))
	for i, g := range groups {
		for k, v := range g.values {
			if !math.IsNaN(v) {
				left := float64(i) + (float64(k)-2)*width
				fillRect(c, barColors[k], x(left), c.Min.Y, x(left+0.9*width), y(v))
			}
		}
	}
}
