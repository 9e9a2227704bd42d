package study

import (
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/memprof/memprof/analysis/compare"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/figure"
)

// Figures are the figures of the BFC paper over several jobs: "figure2", T, C and R over time, and
// "figure3", T1, C1, T2 and C2 of each job and their means.
func Figures(s *compare.Study) []figure.Figure {
	return []figure.Figure{coursesFigure(s), barsFigure(s)}
}

// WritePlots draws the figures as PNG and SVG into a directory, which must exist: DIR/paper-figure2.png
// and so on. It returns the paths in the order they were written, after an error those of the files that
// are complete.
func WritePlots(dir string, s *compare.Study) ([]string, error) {
	var paths []string
	for _, f := range Figures(s) {
		written, err := f.Write(dir, "paper-"+f.Name)
		paths = append(paths, written...)
		if err != nil {
			return paths, err
		}
	}
	return paths, nil
}

// coursesDrawn is the most jobs that fit a figure.
const coursesDrawn = 24

// coursesFigure has a small plot of the memory over time of each job.
func coursesFigure(s *compare.Study) figure.Figure {
	f := figure.Figure{Name: "figure2", Title: "memory over time, " + plain.Counted(int64(len(s.Jobs)), "job")}
	if len(s.Jobs) == 0 {
		f.Body = figure.Message("no job has two iterations or more")
		return f
	}
	jobs := s.Jobs
	f.Subtitle = "x: from the start to the end of each run; y: up to the most memory that it reserved"
	if len(jobs) > coursesDrawn {
		f.Subtitle += fmt.Sprintf("; the first %d of %d", coursesDrawn, len(jobs))
		jobs = jobs[:coursesDrawn]
	}
	f.Legend = []figure.LegendEntry{
		figure.Stroke(draw.LineStyle{Color: figure.ReservedColor, Width: 1.5}, "reserved (R): mapped"),
		figure.Swatch(figure.InternalColor, "provided (C): chunks of live allocations"),
		figure.Swatch(figure.RequestedColor, "requested (T)"),
	}
	columns := int(math.Ceil(math.Sqrt(float64(len(jobs)) * 1.4)))
	rows := (len(jobs) + columns - 1) / columns
	f.Body = func(c draw.Canvas) {
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
func drawCourse(c draw.Canvas, job *compare.StudyJob) {
	d := job.Result
	c.FillText(figure.Aligned(figure.BoldLetters, draw.XLeft, draw.YTop), vg.Point{X: c.Min.X, Y: c.Max.Y}, figure.Fit(figure.BoldLetters, plain.Shorten(job.Name, 60), c.Max.X-c.Min.X))
	c.Max.Y -= 16
	if len(d.Series.Points) == 0 {
		return
	}
	p := figure.NewAxes()
	figure.TimeAxis(&p.X, d.Series.Points[0].Start, figure.CourseEnd(d.Series.Points))
	p.X.Tick.Marker = plot.ConstantTicks{}
	p.X.Label.Text = ""
	p.Y.Min, p.Y.Max = 0, 1.06*float64(max(d.MaxR, 1))
	p.Y.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "0"}, {Value: float64(d.MaxR), Label: plain.FormatSize(d.MaxR)}}
	p.Y.Tick.Label.Font = figure.SmallLetters.Font
	// A point is at least a pixel wide, and the labels at the left take 64.
	points := figure.ReducePoints(d.Series.Points, max(20, int((c.Max.X-c.Min.X-64)/figure.Pixel)))
	p.Add(figure.Grid{},
		figure.Envelope{Points: points, Curve: figure.CurveC, Clr: figure.InternalColor, Width: 0.6},
		figure.Envelope{Points: points, Curve: figure.CurveT, Clr: figure.RequestedColor, Width: 0.6, Below: 0.13},
		figure.Envelope{Points: points, Curve: figure.CurveR, Clr: figure.ReservedColor, Width: 1.25})
	p.Draw(c)
}

// barsFigure has four bars for each job, and the means last.
func barsFigure(s *compare.Study) figure.Figure {
	f := figure.Figure{Name: "figure3", Title: "peaks as shares of reserved memory, " + plain.Counted(int64(len(s.Jobs)), "job")}
	if len(s.Jobs) == 0 {
		f.Body = figure.Message("no job has two iterations or more")
		return f
	}
	measures := [4]*compare.StudyMeasure{studyMeasure("t1"), studyMeasure("c1"), studyMeasure("t2"), studyMeasure("c2")}
	groups := make([]barGroup, 0, len(s.Jobs)+1)
	for i := range s.Jobs {
		groups = append(groups, barGroup{plain.Shorten(s.Jobs[i].Name, 40), [4]float64{}})
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
	f.Subtitle = fmt.Sprintf("mean idle: %s in the first iteration (1 − C1), %s in later ones (1 − C2); BFC paper: %s, %s; lower is better",
		plain.FormatPercent(s.Mean(first)), plain.FormatPercent(s.Mean(later)), plain.FormatPercent(first.PaperMean), plain.FormatPercent(later.PaperMean))
	f.Legend = make([]figure.LegendEntry, len(barColors))
	for k, label := range [...]string{"T1: requested, first iteration", "C1: provided, first iteration", "T2: requested, later ones", "C2: provided, later ones"} {
		f.Legend[k] = figure.Swatch(barColors[k], label)
	}
	f.Body = func(c draw.Canvas) {
		p := figure.NewAxes()
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
		p.Y.Tick.Marker = figure.NiceTicks(0, p.Y.Max, 7, 0.01, func(v float64, decimals int) string { return figure.Fixed(v, decimals) + "%" })
		p.Add(figure.Grid{}, barGroups(groups))
		p.Draw(c)
	}
	return f
}

// namesAcross is the most names that fit side by side; more names are drawn at an angle.
const namesAcross = 8

// barColors are the colours of T1, C1, T2, C2: those of T and C, paler for the first iteration.
var barColors = [4]color.NRGBA{paler(figure.RequestedColor), paler(figure.InternalColor), figure.RequestedColor, figure.InternalColor}

// paler is a colour halfway to white.
func paler(c color.NRGBA) color.NRGBA {
	half := func(v uint8) uint8 { return uint8((int(v) + 0xff) / 2) }
	return color.NRGBA{half(c.R), half(c.G), half(c.B), c.A}
}

// barGroup is the four bars of a job; a value that is not known (NaN) has no bar.
type barGroup struct {
	name   string
	values [4]float64
}

type barGroups []barGroup

func (groups barGroups) Plot(c draw.Canvas, p *plot.Plot) {
	const width = 0.2
	x, y := p.Transforms(&c)
	c.StrokeLine2(draw.LineStyle{Color: figure.ReservedColor, Width: 2}, c.Min.X, y(1), c.Max.X, y(1))
	for i, g := range groups {
		for k, v := range g.values {
			if !math.IsNaN(v) {
				left := float64(i) + (float64(k)-2)*width
				figure.FillRect(c, barColors[k], x(left), c.Min.Y, x(left+0.9*width), y(v))
			}
		}
	}
}
