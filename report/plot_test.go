package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image"
	"image/color"
	"image/png"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/recorder"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/report/figure"
	"github.com/memprof/memprof/report/reporttest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

func TestGoldenSVG(t *testing.T) {
	for _, f := range Plots(reporttest.Training(5, 3, 4)) {
		reporttest.Golden(t, f.Name+".svg", []byte(reporttest.SVG(t, f)))
	}
}

// A plot says at its bottom which job it is of, without covering its body.
func TestPlotFooter(t *testing.T) {
	r := reporttest.Training(5, 3, 4)
	plain := Plots(r)
	r.Job = &analysis.Job{Command: []string{"train", "<b>"}, Frameworks: []string{"torch 9.9"}, Version: "1.2"}
	r.Devices[0].GPU, r.Devices[0].Total = "NVIDIA H200", 140<<30
	for i, f := range Plots(r) {
		svg := reporttest.SVG(t, f)
		want := "train &lt;b&gt; | GPU 0 NVIDIA H200 140 GiB, torch 9.9 | memprof 1.2"
		assert.That(t, strings.Contains(svg, want), "%s has no %q", f.Name, want)
		assert.That(t, !strings.Contains(reporttest.SVG(t, plain[i]), "memprof 1.2"), "%s of an unknown job names one", f.Name)
	}
}

// Every figure of every fixture is well-formed XML that draws the same twice, without numbers that
// are none and without markup from names.
func TestSVG(t *testing.T) {
	for _, fixture := range fixtures() {
		for _, r := range fixture.results {
			for _, f := range Plots(r) {
				svg := reporttest.SVG(t, f)
				name := fixture.name + "/" + f.Name
				assert.Equal(t, reporttest.SVG(t, f), svg, "%s: drawn twice, two results", name)
				decoder := xml.NewDecoder(strings.NewReader(svg))
				for {
					_, err := decoder.Token()
					if err == io.EOF {
						break
					}
					assert.Must(t, err == nil, "%s: %v", name, err)
				}
				reporttest.CheckSafe(t, strings.ReplaceAll(svg, "\t", " "))
				assert.That(t, !strings.Contains(svg, "<script"), "%s: markup of the job got through", name)
				assert.That(t, len(svg) <= 600<<10, "%s: %d KiB", name, len(svg)>>10)
			}
		}
	}
}

func pngOf(t *testing.T, f figure.Figure) image.Image {
	t.Helper()
	var out bytes.Buffer
	assert.NoError(t, f.PNG(&out))
	img, err := png.Decode(&out)
	assert.NoError(t, err)
	assert.Equal(t, img.Bounds().Size(), image.Point{X: 1200, Y: 700}, "%s", f.Name)
	return img
}

// colorPixels counts the pixels of one colour.
func colorPixels(img image.Image, c color.NRGBA) (n int) {
	for y := range img.Bounds().Dy() {
		for x := range img.Bounds().Dx() {
			if color.NRGBAModel.Convert(img.At(x, y)) == c {
				n++
			}
		}
	}
	return n
}

func TestPNG(t *testing.T) {
	for _, f := range Plots(reporttest.Training(24, 20, 4)) {
		img := pngOf(t, f)
		white := colorPixels(img, color.NRGBA{0xff, 0xff, 0xff, 0xff})
		all := 1200 * 700
		assert.That(t, white >= all/10 && white <= all*9/10, "%s: %d white pixels", f.Name, white)
		for _, c := range []color.NRGBA{figure.RequestedColor, figure.InternalColor} {
			n := colorPixels(img, c)
			assert.That(t, n >= 500, "%s: %d pixels of %v", f.Name, n, c)
		}
	}
}

func TestPNGOfLittle(t *testing.T) {
	for _, r := range []*analysis.Result{oneEvent(), {Devices: []analysis.DeviceResult{reporttest.Whole(analysis.DeviceResult{Memory: &analysis.Memory{Peak: never(), Chunks: &analysis.Chunks{}}})}}} {
		for _, f := range Plots(r) {
			n := colorPixels(pngOf(t, f), color.NRGBA{0xff, 0xff, 0xff, 0xff})
			assert.That(t, n != 1200*700, "%s is blank", f.Name)
		}
	}
}

// A peak of one event among a hundred thousand is on the paper at its height.
func TestDrawnPeak(t *testing.T) {
	r := oneEvent()
	d := &r.Devices[0]
	var points []analysis.Point
	for i := range int64(100_000) {
		flat := analysis.Range{Min: gib, Max: gib}
		points = append(points, analysis.Point{Start: i * 1000, End: i*1000 + 999, T: flat, C: flat, R: flat, Last: ledger.Instant{R: gib}})
	}
	points[70_123].R.Max = 4 * gib
	d.Series.Points = points
	d.MaxR = 4 * gib
	var canvas recorder.Canvas
	c := draw.NewCanvas(&canvas, figure.Width, figure.Height)
	axes := figure.TimeAxes(d)
	data := axes.DataCanvas(c)
	figure.Envelope{Points: figure.ReducePoints(points, figure.DrawnPoints), Curve: figure.CurveR}.Plot(data, axes)
	_, y := axes.Transforms(&data)
	highest := vg.Length(0)
	for _, action := range canvas.Actions {
		if stroke, ok := action.(*recorder.Stroke); ok {
			for _, step := range stroke.Path {
				highest = max(highest, step.Pos.Y)
			}
		}
	}
	want := y(float64(4 * gib))
	assert.That(t, highest == want, "the highest point drawn is at %v, the peak at %v", highest, want)
}

// silent is a device whose allocator works for a millisecond, between 1 and 6 GiB, and is silent
// for the next 98 with 2 GiB requested, 3 provided and 8 mapped, before the next millisecond.
func silent() *analysis.DeviceResult {
	point := func(start, low, high, last int64) analysis.Point {
		at := func(t int64) ledger.Instant {
			return ledger.Instant{T: t, C: t + gib, R: 8 * gib, Slack: gib, External: 7*gib - t}
		}
		return analysis.Point{
			Start: start, End: start + 1_000_000, T: analysis.Range{Min: low, Max: high},
			C: analysis.Range{Min: low + gib, Max: high + gib}, R: analysis.Range{Min: 8 * gib, Max: 8 * gib},
			At: at(high), Last: at(last),
		}
	}
	d := &analysis.DeviceResult{Memory: &analysis.Memory{Chunks: &analysis.Chunks{}, Peak: never(), MaxR: 8 * gib, MaxC: 7 * gib, MaxT: 6 * gib}}
	d.Series.Points = []analysis.Point{point(1_000_000_000, gib, 6*gib, 2*gib), point(1_099_000_000, gib, 4*gib, gib)}
	return d
}

// heights are the bytes, in whole GiB, at which each path drawn passes a time: first and last.
func heights(t *testing.T, d *analysis.DeviceResult, nanoseconds float64, plotter plot.Plotter) [][2]int64 {
	t.Helper()
	var canvas recorder.Canvas
	c := draw.NewCanvas(&canvas, figure.Width, figure.Height)
	axes := figure.TimeAxes(d)
	data := axes.DataCanvas(c)
	plotter.Plot(data, axes)
	x, y := axes.Transforms(&data)
	at := x(nanoseconds)
	var all [][2]int64
	for _, action := range canvas.Actions {
		var path vg.Path
		switch action := action.(type) {
		case *recorder.Stroke:
			path = action.Path
		case *recorder.Fill:
			path = action.Path
		}
		var over []int64
		for i := 1; i < len(path); i++ {
			a, b := path[i-1].Pos, path[i].Pos
			if min(a.X, b.X) < at && at < max(a.X, b.X) && a.Y == b.Y {
				over = append(over, int64(math.Round(float64((a.Y-y(0))/(y(float64(gib))-y(0)))))*gib)
			}
		}
		if len(over) > 0 {
			all = append(all, [2]int64{over[0], over[len(over)-1]})
		}
	}
	return all
}

// While nothing happens the band of what happened before is not drawn on: the value is the last.
func TestSilence(t *testing.T) {
	d := silent()
	points := figure.DrawnCourse(d)
	timeline := func(c figure.Curve) plot.Plotter { return figure.Envelope{Points: points, Curve: c} }
	const work, silence = 1_000_500_000, 1_050_000_000
	for _, test := range []struct {
		name    string
		at      float64
		plotter plot.Plotter
		want    [][2]int64 // of the band (upper, lower), its upper edge, its lower edge
	}{
		{"T at work", work, timeline(figure.CurveT), [][2]int64{{6 * gib, gib}, {6 * gib, 6 * gib}, {gib, gib}}},
		{"T in silence", silence, timeline(figure.CurveT), [][2]int64{{2 * gib, 2 * gib}, {2 * gib, 2 * gib}, {2 * gib, 2 * gib}}},
		{"C in silence", silence, timeline(figure.CurveC), [][2]int64{{3 * gib, 3 * gib}, {3 * gib, 3 * gib}, {3 * gib, 3 * gib}}},
		{"R in silence", silence, timeline(figure.CurveR), [][2]int64{{8 * gib, 8 * gib}, {8 * gib, 8 * gib}, {8 * gib, 8 * gib}}},
	} {
		diff := cmp.Diff(test.want, heights(t, d, test.at, test.plotter))
		assert.That(t, diff == "", "%s: %s", test.name, diff)
	}
}

func TestWritePlots(t *testing.T) {
	dir := t.TempDir()
	r := oneEvent()
	r.Process = "../a b"
	paths, err := WritePlots(dir, "", r)
	assert.NoError(t, err)
	var want []string
	for _, name := range []string{"timeline"} {
		for _, suffix := range []string{".png", ".svg"} {
			want = append(want, filepath.Join(dir, "_a_b-gpu1-"+name+suffix))
		}
	}
	assert.Diff(t, want, paths)
	for _, path := range paths {
		info, err := os.Stat(path)
		assert.That(t, err == nil && info.Size() >= 1000, "%s: %v, %v", path, info, err)
	}
}

func TestWritePlotsError(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	paths, err := WritePlots(missing, "x", oneEvent())
	assert.That(t, errors.Is(err, fs.ErrNotExist) && strings.Contains(err.Error(), missing) && len(paths) == 0,
		"%v, %v; want an error that names %s", paths, err, missing)
}
