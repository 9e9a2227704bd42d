package report

import (
	"fmt"
	"image/color"
	"sort"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/figure"
	"github.com/memprof/memprof/report/terms"
)

// Measures of the address map.
const (
	mapLabels    = vg.Length(66) // room for the addresses left of the rows
	mapAxis      = vg.Length(34) // room for the scale below them
	mapHeading   = vg.Length(19) // the line above each arena
	mapBetween   = vg.Length(8)  // between arenas
	mapLeastRow  = vg.Length(15) // height of a row with the gap below it
	mapMostRow   = vg.Length(36)
	mapLeastByte = int64(4096) // the shortest row

	// arenasDrawn bounds how many arenas share a figure: each needs a heading and a row.
	arenasDrawn = 6
)

// spanNames are the names in the legend, by analysis.SpanKind.
var spanNames = [...]string{
	ledger.SpanLive:         "live (requested)",
	ledger.SpanSlack:        "slack",
	ledger.SpanPending:      "pending",
	ledger.SpanReserve:      "reserve",
	ledger.SpanReusable:     "reusable",
	ledger.SpanExternal:     "external",
	ledger.SpanNotRequested: "not requested",
	ledger.SpanUnmapped:     "unmapped",
}

// addressFigures draw the addresses of each arena at the peak, to scale: every row of every arena has the
// same number of bytes.
func addressFigures(r *analysis.Result, d *analysis.DeviceResult) []figure.Figure {
	return []figure.Figure{mapFigure(r, d)}
}

func mapFigure(r *analysis.Result, d *analysis.DeviceResult) figure.Figure {
	f := figure.Figure{Name: "map", Title: "addresses at the peak"}
	layout, segments := d.Map, d.Chunks == nil
	if segments {
		layout = closedUp(layout)
	}
	arenas, dropped, droppedBytes := drawnArenas(layout)
	if len(arenas) == 0 {
		f.Subtitle = "no memory was mapped on this device"
		f.Body = figure.Message("nothing to draw: no memory was mapped on this device")
		return f
	}
	f.Subtitle = terms.Instant(d, d.Map.At) + "; colours of spans narrower than a pixel are mixed"
	if segments {
		f.Subtitle += "; gaps between segments are drawn short"
	}
	if dropped > 0 {
		f.Subtitle += fmt.Sprintf("; %s (%s) not drawn", plain.Counted(int64(dropped), "smaller arena"), plain.FormatSize(droppedBytes))
	}
	f.Legend = mapLegend(arenas, segments)
	f.Body = func(c draw.Canvas) { drawMap(c, r, arenas) }
	return f
}

// drawnArenas returns the arenas with mapped memory, in order, cut at their last mapped byte. If they are
// too many for a figure, the largest stay; dropped and droppedBytes count the others.
func drawnArenas(m ledger.AddressMap) (drawn []ledger.ArenaMap, dropped int, droppedBytes int64) {
	for _, a := range m.Arenas {
		a.Extent = 0
		for _, s := range a.Spans {
			if s.Kind != ledger.SpanUnmapped {
				a.Extent = max(a.Extent, s.Start+s.Bytes)
			}
		}
		if a.Extent > 0 {
			drawn = append(drawn, a)
		}
	}
	if len(drawn) <= arenasDrawn {
		return drawn, 0, 0
	}
	bySize := append([]ledger.ArenaMap(nil), drawn...)
	sort.SliceStable(bySize, func(i, j int) bool { return mappedBytes(bySize[i]) > mappedBytes(bySize[j]) })
	small := make(map[int32]bool)
	for _, a := range bySize[arenasDrawn:] {
		small[a.Arena] = true
		dropped++
		droppedBytes += mappedBytes(a)
	}
	kept := drawn[:0]
	for _, a := range drawn {
		if !small[a.Arena] {
			kept = append(kept, a)
		}
	}
	return kept, dropped, droppedBytes
}

// kindBytes sums the spans of an arena by kind. Bytes in no span are unmapped.
func kindBytes(a ledger.ArenaMap) (sums [len(spanNames)]int64) {
	rest := a.Extent
	for _, s := range a.Spans {
		if s.Kind < ledger.SpanUnmapped {
			sums[s.Kind] += s.Bytes
			rest -= s.Bytes
		}
	}
	sums[ledger.SpanUnmapped] = max(rest, 0)
	return sums
}

func mappedBytes(a ledger.ArenaMap) int64 {
	sums := kindBytes(a)
	return a.Extent - sums[ledger.SpanUnmapped]
}

// mapLegend names the colours and how many bytes have them. Pending and unmapped, and for the native
// allocator also terms that are not known, are left out if they have no bytes.
func mapLegend(arenas []ledger.ArenaMap, native bool) []figure.LegendEntry {
	var total [len(spanNames)]int64
	for _, a := range arenas {
		for kind, bytes := range kindBytes(a) {
			total[kind] += bytes
		}
	}
	var entries []figure.LegendEntry
	for kind, bytes := range total {
		rare := native
		switch ledger.SpanKind(kind) {
		case ledger.SpanPending, ledger.SpanNotRequested, ledger.SpanUnmapped:
			rare = true
		}
		if bytes > 0 || !rare {
			name := spanNames[kind] + " " + plain.FormatSize(bytes)
			if native && ledger.SpanKind(kind) == ledger.SpanUnmapped {
				name = spanNames[kind] // closed up
			}
			entries = append(entries, figure.Swatch(spanColors[kind], name))
		}
	}
	return entries
}

// rowBytes is the smallest number of bytes of a row, a power of two, for which the arenas fit a height.
func rowBytes(arenas []ledger.ArenaMap, height vg.Length) (bytes, rows int64) {
	height -= vg.Length(len(arenas)) * (mapHeading + mapBetween)
	for bytes = mapLeastByte; ; bytes *= 2 {
		rows = 0
		for _, a := range arenas {
			rows += (a.Extent-1)/bytes + 1
		}
		if vg.Length(rows)*mapLeastRow <= height || bytes > 1<<61 {
			return bytes, rows
		}
	}
}

func drawMap(c draw.Canvas, r *analysis.Result, arenas []ledger.ArenaMap) {
	rowsRoom := draw.Crop(c, mapLabels, -figure.Pixel, mapAxis, 0)
	height := rowsRoom.Max.Y - rowsRoom.Min.Y
	bytes, rows := rowBytes(arenas, height)
	pitch := (height - vg.Length(len(arenas))*(mapHeading+mapBetween)) / vg.Length(rows)
	pitch = min(pitch, mapMostRow)
	// columns lie on pixels, so that the edges of the image's rectangles are sharp.
	columns := int((rowsRoom.Max.X - rowsRoom.Min.X) / figure.Pixel)
	y := rowsRoom.Max.Y
	for _, a := range arenas {
		c.FillText(figure.Aligned(figure.BoldLetters, draw.XLeft, draw.YTop), vg.Point{X: c.Min.X, Y: y - 2}, figure.Fit(figure.BoldLetters, arenaTitle(r, a), c.Max.X-c.Min.X))
		y -= mapHeading
		spans := a.Spans
		for start := int64(0); start < a.Extent; start += bytes {
			for len(spans) > 0 && spans[0].Start+spans[0].Bytes <= start {
				spans = spans[1:]
			}
			row := mapRow{start: start, bytes: min(bytes, a.Extent-start), spans: spans}
			row.draw(rowsRoom, y, pitch*0.8, columns, bytes)
			c.FillText(figure.Aligned(figure.SmallLetters, draw.XRight, draw.YCenter), vg.Point{X: rowsRoom.Min.X - 6, Y: y - pitch*0.4}, "+"+plain.FormatSize(start))
			y -= pitch
		}
		y -= mapBetween
	}
	drawMapScale(rowsRoom, y+mapBetween, columns, bytes)
}

// arenaTitle names an arena and gives its sums.
func arenaTitle(r *analysis.Result, a ledger.ArenaMap) string {
	title := fmt.Sprintf("arena %d", a.Arena)
	for _, info := range r.Arenas {
		if info.ID != a.Arena {
			continue
		}
		title += fmt.Sprintf(" · stream %d", info.Stream)
		for _, key := range []string{"pool", "tag"} {
			if value := info.Options[key]; value != "" && value != "0" {
				title += " · " + key + " " + plain.Shorten(value, 32)
			}
		}
		break
	}
	mapped := mappedBytes(a)
	sums := kindBytes(a)
	rest, of := "external", sums[ledger.SpanExternal]
	if sums[ledger.SpanNotRequested] > 0 {
		rest, of = "not requested", sums[ledger.SpanNotRequested]
	}
	return title + fmt.Sprintf(" · base %#x · %s mapped, %s live, %s %s", uint64(a.Base), plain.FormatSize(mapped),
		plain.FormatPercent(plain.Ratio(sums[ledger.SpanLive], mapped)), plain.FormatPercent(plain.Ratio(of, mapped)), rest)
}

// drawMapScale draws the byte scale below the last row.
func drawMapScale(c draw.Canvas, y vg.Length, columns int, bytes int64) {
	const ticks = 8
	width := vg.Length(columns) * figure.Pixel
	sty := draw.LineStyle{Color: figure.FaintInkColor, Width: 0.75}
	c.StrokeLine2(sty, c.Min.X, y, c.Min.X+width, y)
	for k := int64(0); k <= ticks; k++ {
		x := c.Min.X + width*vg.Length(k)/ticks
		c.StrokeLine2(sty, x, y, x, y-4)
		text := figure.Aligned(figure.LabelLetters, draw.XCenter, draw.YTop)
		if k == ticks {
			text.XAlign = draw.XRight
		}
		c.FillText(text, vg.Point{X: x, Y: y - 6}, "+"+plain.FormatSize(bytes*k/ticks))
	}
	c.FillText(figure.Aligned(figure.SmallLetters, draw.XLeft, draw.YTop), vg.Point{X: c.Min.X, Y: y - 21},
		fmt.Sprintf("bytes from the start of the row; a row is %s, a pixel %s", plain.FormatSize(bytes), plain.FormatSize(bytes/int64(columns))))
}

// mapRow is the bytes [start, start+bytes) of an arena.
type mapRow struct {
	start, bytes int64
	spans        []ledger.Span // from the first that may reach into the row on
}

// draw fills the row as runs of columns of equal colour; full is the bytes of a whole row.
func (r mapRow) draw(c draw.Canvas, top, height vg.Length, columns int, full int64) {
	colors := r.colors(columns, full)
	for i := 0; i < len(colors); {
		end := i + 1
		for end < len(colors) && colors[end] == colors[i] {
			end++
		}
		figure.FillRect(c, colors[i], c.Min.X+vg.Length(i)*figure.Pixel, top-height, c.Min.X+vg.Length(end)*figure.Pixel, top)
		i = end
	}
	figure.StrokeRect(c, draw.LineStyle{Color: figure.Tint(figure.InkColor, 0.45), Width: 0.5}, c.Min.X, top-height, c.Min.X+vg.Length(len(colors))*figure.Pixel, top)
}

// colors returns a colour for each column of the row: the mean of the colours of its bytes.
func (r mapRow) colors(columns int, full int64) []color.NRGBA {
	perColumn := float64(full) / float64(columns)
	used := max(int(float64(r.bytes)/perColumn+0.5), 1)
	mix := make([][len(spanColors)]float64, used)
	for _, s := range r.spans {
		if s.Start >= r.start+r.bytes {
			break
		}
		if s.Kind >= ledger.SpanUnmapped {
			continue
		}
		from := float64(max(s.Start, r.start)-r.start) / perColumn
		to := float64(min(s.Start+s.Bytes, r.start+r.bytes)-r.start) / perColumn
		for i := int(from); i < used && float64(i) < to; i++ {
			mix[i][s.Kind] += min(to, float64(i+1)) - max(from, float64(i))
		}
	}
	colors := make([]color.NRGBA, used)
	for i := range mix {
		colors[i] = mixed(mix[i])
	}
	return colors
}

// mixed is the weighted mean of the span colours; what the weights lack to 1 is unmapped. Mixtures are
// rounded, so that neighbours of similar colour become one rectangle.
func mixed(weights [len(spanColors)]float64) color.NRGBA {
	var sum float64
	for _, w := range weights {
		sum += w
	}
	weights[ledger.SpanUnmapped] += max(1-sum, 0)
	sum = max(sum, 1)
	for kind, w := range weights {
		if w > 0.99 {
			return spanColors[kind]
		}
	}
	var red, green, blue float64
	for kind, w := range weights {
		red += w / sum * float64(spanColors[kind].R)
		green += w / sum * float64(spanColors[kind].G)
		blue += w / sum * float64(spanColors[kind].B)
	}
	return color.NRGBA{rounded(red), rounded(green), rounded(blue), 0xff}
}

// rounded is the nearest of 32 steps of a colour channel.
func rounded(channel float64) uint8 { return uint8(min(int(channel+4)/8*8, 0xff)) }

// closedUp shortens the gaps of a map. The driver places the segments of the native allocator hundreds
// of GiB apart: a figure to scale would show gaps alone. A gap gets at most a 64th of the bytes mapped in
// its arena, and all gaps together a quarter.
func closedUp(m ledger.AddressMap) ledger.AddressMap {
	arenas := make([]ledger.ArenaMap, len(m.Arenas))
	for i, a := range m.Arenas {
		gaps := int64(0)
		for _, s := range a.Spans {
			if s.Kind == ledger.SpanUnmapped {
				gaps++
			}
		}
		longest := mappedBytes(a) / max(64, 4*gaps)
		at := int64(0)
		spans := make([]ledger.Span, len(a.Spans))
		for k, s := range a.Spans {
			s.Start = at
			if s.Kind == ledger.SpanUnmapped {
				s.Bytes = min(s.Bytes, longest)
			}
			at += s.Bytes
			spans[k] = s
		}
		a.Spans, a.Extent = spans, at
		arenas[i] = a
	}
	m.Arenas = arenas
	return m
}

// spanColors are the colours, by analysis.SpanKind.
var spanColors = [...]color.NRGBA{
	ledger.SpanLive:         figure.RequestedColor,
	ledger.SpanSlack:        figure.InternalColor,
	ledger.SpanPending:      figure.PendingColor,
	ledger.SpanReserve:      figure.ReserveColor,
	ledger.SpanReusable:     figure.ReusableColor,
	ledger.SpanExternal:     figure.ExternalColor,
	ledger.SpanNotRequested: figure.ExternalColor,
	ledger.SpanUnmapped:     figure.UnmappedColor,
}
