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
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/recorder"
	"pgregory.net/rapid"

	"github.com/memprof/memprof/analysis"
)

func svgOf(t *testing.T, f Figure) string {
	t.Helper()
	var out bytes.Buffer
	if err := f.SVG(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestGoldenSVG(t *testing.T) {
	for _, f := range Plots(training(5, 3, 4)) {
		golden(t, f.Name+".svg", []byte(svgOf(t, f)))
	}
}

// Every figure of every fixture is well-formed XML that draws the same twice, without numbers that
// are none and without markup from names.
func TestSVG(t *testing.T) {
	for _, fixture := range fixtures() {
		for _, r := range fixture.results {
			for _, f := range Plots(r) {
				svg := svgOf(t, f)
				name := fixture.name + "/" + f.Name
				if again := svgOf(t, f); again != svg {
					t.Errorf("%s: drawn twice, two results", name)
				}
				decoder := xml.NewDecoder(strings.NewReader(svg))
				for {
					_, err := decoder.Token()
					if err == io.EOF {
						break
					}
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
				}
				checkSafe(t, strings.ReplaceAll(svg, "\t", " "))
				if strings.Contains(svg, "<script") {
					t.Errorf("%s: markup of the job got through", name)
				}
				if len(svg) > 600<<10 {
					t.Errorf("%s: %d KiB", name, len(svg)>>10)
				}
			}
		}
	}
}

func pngOf(t *testing.T, f Figure) image.Image {
	t.Helper()
	var out bytes.Buffer
	if err := f.PNG(&out); err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(&out)
	if err != nil {
		t.Fatal(err)
	}
	if size := img.Bounds().Size(); size != (image.Point{X: 1200, Y: 700}) {
		t.Errorf("%s: %v, want 1200 × 700", f.Name, size)
	}
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
	for _, f := range Plots(training(24, 20, 4)) {
		img := pngOf(t, f)
		white := colorPixels(img, color.NRGBA{0xff, 0xff, 0xff, 0xff})
		if all := 1200 * 700; white < all/10 || white > all*9/10 {
			t.Errorf("%s: %d white pixels", f.Name, white)
		}
		for _, c := range []color.NRGBA{requestedColor, internalColor} {
			if n := colorPixels(img, c); n < 500 {
				t.Errorf("%s: %d pixels of %v", f.Name, n, c)
			}
		}
	}
}

func TestPNGOfLittle(t *testing.T) {
	for _, r := range []*analysis.Result{oneEvent(), {Devices: []analysis.DeviceResult{{Peak: never()}}}} {
		for _, f := range Plots(r) {
			if n := colorPixels(pngOf(t, f), color.NRGBA{0xff, 0xff, 0xff, 0xff}); n == 1200*700 {
				t.Errorf("%s is blank", f.Name)
			}
		}
	}
}

// In the map at the peak every colour has the area of its bytes.
func TestMapToScale(t *testing.T) {
	const total = 16 * mib
	r := oneEvent()
	r.Devices[0].Map.Arenas = []analysis.ArenaMap{{Extent: total, Spans: []analysis.Span{
		{Start: 0, Bytes: 7 * mib, Kind: analysis.SpanLive}, {Start: 7 * mib, Bytes: 2 * mib, Kind: analysis.SpanSlack},
		{Start: 9 * mib, Bytes: 3 * mib, Kind: analysis.SpanHole}, {Start: 13 * mib, Bytes: 3 * mib, Kind: analysis.SpanUntouched},
	}}}
	img := pngOf(t, Plots(r)[3])
	unit := float64(colorPixels(img, requestedColor)) / 7 // pixels a MiB
	for _, test := range []struct {
		c   color.NRGBA
		mib float64
	}{{internalColor, 2}, {holeColor, 3}, {reserveColor, 3}, {unmappedColor, 1}} {
		if got := float64(colorPixels(img, test.c)) / unit; got < test.mib*0.97 || got > test.mib*1.03 {
			t.Errorf("%v has the area of %.3f MiB, want %v", test.c, got, test.mib)
		}
	}
}

func TestMapColumns(t *testing.T) {
	row := mapRow{start: 100, bytes: 40, spans: []analysis.Span{
		{Start: 90, Bytes: 20, Kind: analysis.SpanLive}, {Start: 110, Bytes: 5, Kind: analysis.SpanSlack}, {Start: 115, Bytes: 5, Kind: analysis.SpanHole},
		{Start: 130, Bytes: 100, Kind: analysis.SpanPending},
	}}
	got := row.colors(10, 100) // ten bytes a column
	want := []color.NRGBA{requestedColor, mixed([len(spanColors)]float64{analysis.SpanSlack: 0.5, analysis.SpanHole: 0.5}), unmappedColor, pendingColor}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if want[1] != (color.NRGBA{0xe0, 0x80, 0x00, 0xff}) {
		t.Errorf("half orange, half vermillion is %v", want[1])
	}
}

func TestRowBytes(t *testing.T) {
	for _, test := range []struct {
		extents     []int64
		bytes, rows int64
	}{
		{[]int64{256}, 4096, 1}, {[]int64{10 * gib}, 512 * mib, 20}, {[]int64{10 * gib, 1}, gib, 11},
	} {
		var arenas []analysis.ArenaMap
		for _, e := range test.extents {
			arenas = append(arenas, analysis.ArenaMap{Extent: e})
		}
		bytes, rows := rowBytes(arenas, 350)
		if bytes != test.bytes || rows != test.rows {
			t.Errorf("%v: %d rows of %d, want %d of %d", test.extents, rows, bytes, test.rows, test.bytes)
		}
	}
}

func TestDrawnArenas(t *testing.T) {
	d := &troubled().Devices[0]
	drawn, dropped, bytes := drawnArenas(d.Map)
	var ids []int32
	for _, a := range drawn {
		ids = append(ids, a.Arena)
	}
	if diff := cmp.Diff([]int32{0, 3, 4, 5, 6, 7}, ids); diff != "" || dropped != 2 {
		t.Errorf("%d dropped, kept %s", dropped, diff)
	}
	if want := (64 + 128) * mib * 5 / 8; bytes != want {
		t.Errorf("dropped %d bytes, want %d", bytes, want)
	}
	if drawn[1].Extent != 192*mib*3/4 {
		t.Errorf("the gap at the end is drawn: extent %d", drawn[1].Extent)
	}
}

// Whatever the course, the reduced one has the same greatest and least values, the same peak
// instant, and covers the same time in order.
func TestReduceKeepsPeaks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var points []analysis.Point
		now := rapid.Int64Range(0, 1e15).Draw(t, "start")
		value := rapid.Int64Range(0, 1000)
		for range rapid.IntRange(1, 300).Draw(t, "points") {
			least, greatest := value.Draw(t, "least"), value.Draw(t, "more")
			r := analysis.Range{Min: least, Max: least + greatest}
			p := analysis.Point{Start: now, End: now + rapid.Int64Range(0, 50).Draw(t, "length"), T: r, C: r, R: r}
			p.At = analysis.Instant{Time: now, R: value.Draw(t, "R"), T: value.Draw(t, "T")}
			p.Last = analysis.Instant{Seq: int64(len(points))}
			points = append(points, p)
			now = p.End + rapid.Int64Range(0, 1000).Draw(t, "gap")
		}
		n := rapid.IntRange(1, 100).Draw(t, "n")
		reduced := reducePoints(append([]analysis.Point(nil), points...), n)
		if len(reduced) > min(n, len(points)) {
			t.Fatalf("%d points became %d, at most %d wanted", len(points), len(reduced), n)
		}
		a, b := bounds(points), bounds(reduced)
		if diff := cmp.Diff(a, b); diff != "" {
			t.Fatal(diff)
		}
		for i := 1; i < len(reduced); i++ {
			if reduced[i].Start < reduced[i-1].End {
				t.Fatalf("point %d begins before the last ends", i)
			}
		}
		slice := (points[len(points)-1].Start-points[0].Start)/int64(n) + 1
		for i := 1; i < len(points); i++ {
			before, after := points[i-1], points[i]
			if after.Start-before.End <= slice {
				continue
			}
			k := slices.IndexFunc(reduced, func(p analysis.Point) bool { return p.Start == after.Start })
			if k < 1 || reduced[k-1].End != before.End || reduced[k-1].Last != before.Last {
				t.Fatalf("the silence from %d to %d is lost", before.End, after.Start)
			}
		}
	})
}

// bounds joins all points into one.
func bounds(points []analysis.Point) analysis.Point {
	all := points[0]
	for _, p := range points[1:] {
		all.End = max(all.End, p.End)
		all.T, all.C, all.R = hull(all.T, p.T), hull(all.C, p.C), hull(all.R, p.R)
		if p.At.R > all.At.R || p.At.R == all.At.R && p.At.T > all.At.T {
			all.At = p.At
		}
		all.Last = p.Last
	}
	return all
}

// A peak of one event among a hundred thousand is on the paper at its height.
func TestDrawnPeak(t *testing.T) {
	r := oneEvent()
	d := &r.Devices[0]
	var points []analysis.Point
	for i := range int64(100_000) {
		flat := analysis.Range{Min: gib, Max: gib}
		points = append(points, analysis.Point{Start: i * 1000, End: i*1000 + 999, T: flat, C: flat, R: flat, Last: analysis.Instant{R: gib}})
	}
	points[70_123].R.Max = 4 * gib
	d.Series.Points = points
	d.MaxR = 4 * gib
	var canvas recorder.Canvas
	c := draw.NewCanvas(&canvas, figureWidth, figureHeight)
	axes := timeAxes(d)
	data := axes.DataCanvas(c)
	envelope{points: reducePoints(points, drawnPoints), curve: curveR}.Plot(data, axes)
	_, y := axes.Transforms(&data)
	highest := vg.Length(0)
	for _, action := range canvas.Actions {
		if stroke, ok := action.(*recorder.Stroke); ok {
			for _, step := range stroke.Path {
				highest = max(highest, step.Pos.Y)
			}
		}
	}
	if want := y(float64(4 * gib)); highest != want {
		t.Errorf("the highest point drawn is at %v, the peak at %v", highest, want)
	}
}

// silent is a device whose allocator works for a millisecond, between 1 and 6 GiB, and is silent
// for the next 98 with 2 GiB requested, 3 provided and 8 mapped, before the next millisecond.
func silent() *analysis.DeviceResult {
	point := func(start, low, high, last int64) analysis.Point {
		at := func(t int64) analysis.Instant {
			return analysis.Instant{T: t, C: t + gib, R: 8 * gib, Slack: gib, External: 7*gib - t}
		}
		return analysis.Point{
			Start: start, End: start + 1_000_000, T: analysis.Range{Min: low, Max: high},
			C: analysis.Range{Min: low + gib, Max: high + gib}, R: analysis.Range{Min: 8 * gib, Max: 8 * gib},
			At: at(high), Last: at(last),
		}
	}
	d := &analysis.DeviceResult{Peak: never(), MaxR: 8 * gib, MaxC: 7 * gib, MaxT: 6 * gib}
	d.Series.Points = []analysis.Point{point(1_000_000_000, gib, 6*gib, 2*gib), point(1_099_000_000, gib, 4*gib, gib)}
	return d
}

// heights are the bytes, in whole GiB, at which each path drawn passes a time: first and last.
func heights(t *testing.T, d *analysis.DeviceResult, nanoseconds float64, plotter plot.Plotter) [][2]int64 {
	t.Helper()
	var canvas recorder.Canvas
	c := draw.NewCanvas(&canvas, figureWidth, figureHeight)
	axes := timeAxes(d)
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
	points := drawnCourse(d)
	timeline := func(c curve) plot.Plotter { return envelope{points: points, curve: c} }
	split := stacked{points, layers(&analysis.DeviceResult{}, points)}
	const work, silence = 1_000_500_000, 1_050_000_000
	for _, test := range []struct {
		name    string
		at      float64
		plotter plot.Plotter
		want    [][2]int64 // of the band (upper, lower), its upper edge, its lower edge
	}{
		{"T at work", work, timeline(curveT), [][2]int64{{6 * gib, gib}, {6 * gib, 6 * gib}, {gib, gib}}},
		{"T in silence", silence, timeline(curveT), [][2]int64{{2 * gib, 2 * gib}, {2 * gib, 2 * gib}, {2 * gib, 2 * gib}}},
		{"C in silence", silence, timeline(curveC), [][2]int64{{3 * gib, 3 * gib}, {3 * gib, 3 * gib}, {3 * gib, 3 * gib}}},
		{"R in silence", silence, timeline(curveR), [][2]int64{{8 * gib, 8 * gib}, {8 * gib, 8 * gib}, {8 * gib, 8 * gib}}},
		// From the top: reserve, the line of R, external, internal, requested; of areas the upper edge.
		{"split at work", work, split, [][2]int64{{8 * gib, 8 * gib}, {8 * gib, 8 * gib}, {8 * gib, 8 * gib}, {7 * gib, 7 * gib}, {6 * gib, 6 * gib}}},
		{"split in silence", silence, split, [][2]int64{{8 * gib, 8 * gib}, {8 * gib, 8 * gib}, {8 * gib, 8 * gib}, {3 * gib, 3 * gib}, {2 * gib, 2 * gib}}},
	} {
		if diff := cmp.Diff(test.want, heights(t, d, test.at, test.plotter)); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

// A point of one event is a pixel wide, and many beside each other keep their places.
func TestStrips(t *testing.T) {
	var points []analysis.Point
	for i := range int64(1000) {
		points = append(points, analysis.Point{Start: 11 * i, End: 11 * i})
	}
	x := func(t float64) vg.Length { return vg.Length(t) * pixel / 10 } // 1.1 pixels apart
	places := strips(points, x, x(12_000))
	for i, s := range places {
		from, next := x(float64(11*i)), x(float64(11*i+11))
		if i == 999 {
			next = x(12_000)
		}
		if s.from != from || s.to != from+pixel || s.next != next {
			t.Fatalf("strip %d is [%v, %v] and holds to %v, want [%v, %v] and %v", i, s.from, s.to, s.next, from, from+pixel, next)
		}
	}
	points = []analysis.Point{{Start: 108, End: 109}, {Start: 110, End: 125}, {Start: 130, End: 130}}
	var got []float64
	for _, s := range strips(points, x, x(130)) {
		got = append(got, float64(s.from/pixel), float64(s.to/pixel), float64(s.next/pixel))
	}
	want := []float64{10.8, 11.8, 11.8, 11.8, 12.8, 13, 13, 14, 14}
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Error(diff)
	}
}

func TestNiceTicks(t *testing.T) {
	for _, test := range []struct {
		low, high float64
		n         int
		scale     float64
		want      string
	}{
		{0, 10, 5, 1, "0 2 4 6 8 10"}, {0, 11.6 * float64(gib), 7, float64(gib), "0 2 4 6 8 10"}, {0.3, 1.3, 10, 1, "0.3 0.4 0.5 0.6 0.7 0.8 0.9 1.0 1.1 1.2 1.3"},
		{-1, 1, 2, 1, "-1 0 1"}, {5, 5, 4, 1, "5"}, {0, 0, 4, 1, "0"}, {1e11, 1e11 + 2e6, 5, 1e6, "100000.0 100000.5 100001.0 100001.5 100002.0"},
	} {
		var labels []string
		for _, tick := range niceTicks(test.low, test.high, test.n, test.scale, fixed) {
			labels = append(labels, tick.Label)
		}
		if got := strings.Join(labels, " "); got != test.want {
			t.Errorf("ticks of [%v, %v] are %q, want %q", test.low, test.high, got, test.want)
		}
	}
}

func TestIterationStep(t *testing.T) {
	for _, test := range []struct{ n, most, want int }{
		{0, 10, 1}, {10, 10, 1}, {11, 10, 5}, {54, 10, 5}, {59, 10, 10}, {60, 10, 10}, {110, 10, 20}, {300, 10, 50}, {600, 10, 100}, {2000, 10, 200}, {1_000_000, 60, 20000},
	} {
		if got := iterationStep(test.n, test.most); got != test.want {
			t.Errorf("iterationStep(%d, %d) = %d, want %d", test.n, test.most, got, test.want)
		}
	}
}

func TestWritePlots(t *testing.T) {
	dir := t.TempDir()
	r := oneEvent()
	r.Process = "../a b"
	paths, err := WritePlots(dir, "", r)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, name := range []string{"timeline", "iterations", "split", "map"} {
		for _, suffix := range []string{".png", ".svg"} {
			want = append(want, filepath.Join(dir, "_a_b-gpu1-"+name+suffix))
		}
	}
	if diff := cmp.Diff(want, paths); diff != "" {
		t.Error(diff)
	}
	for _, path := range paths {
		if info, err := os.Stat(path); err != nil || info.Size() < 1000 {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
}

func TestWritePlotsError(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	paths, err := WritePlots(missing, "x", oneEvent())
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), missing) || len(paths) != 0 {
		t.Errorf("%v, %v; want an error that names %s", paths, err, missing)
	}
}

// A plot that could not be drawn to its end leaves no file behind.
func TestWriteFileRemoves(t *testing.T) {
	path := filepath.Join(t.TempDir(), "half.png")
	err := writeFile(path, func(w io.Writer) error {
		if _, err := io.WriteString(w, "half"); err != nil {
			return err
		}
		return errFull
	})
	if !errors.Is(err, errFull) || !strings.Contains(err.Error(), path) {
		t.Errorf("%v; want %v and the path", err, errFull)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the half-written file is there: %v", err)
	}
}
