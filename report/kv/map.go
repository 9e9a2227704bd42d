package kv

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/figure"
)

// The most sequences, logical blocks of a sequence, and physical blocks that a figure has room for.
// More physical blocks would be smaller than a pixel.
const mapSequences, mapBlocks, mapPhysical = 13, 12, 8192

// blockTint is the opacity of a block's colour, low enough for its number to be read.
const blockTint = 0.55

// blockMapFigure draws the block tables after one step at the left. At the right it draws the physical
// blocks: how far each is filled, and how many tables name it.
func blockMapFigure(k *Simulation, r *kvcache.Result) figure.Figure {
	m := r.Map
	f := figure.Figure{
		Name: r.Policy + "-blocks", Title: fmt.Sprintf("%s after step %s · %s", r.Policy, plain.FormatCount(m.Step), titleOf(k)),
		Subtitle: fmt.Sprintf("%s · %s of %d slots",
			plain.Counted(int64(len(m.Sequences)), "sequence"), plain.Counted(m.Count, "physical block"), m.BlockSize),
		Legend: blockLegend(m),
	}
	f.Body = func(c draw.Canvas) {
		middle := c.Min.X + (c.Max.X-c.Min.X)*0.55
		left, right := c, c
		left.Max.X, right.Min.X = middle-12, middle+12
		drawBlockTables(left, m)
		drawBlocks(right, m)
	}
	return f
}

// blockLegend has the colours of this map.
func blockLegend(m *kvcache.BlockMap) []figure.LegendEntry {
	legend := []figure.LegendEntry{
		figure.Swatch(figure.Tint(figure.RequestedColor, blockTint), "filled"), figure.Swatch(figure.Tint(figure.PendingColor, blockTint), "filled, shared"),
		figure.Swatch(figure.UnmappedColor, "not filled"),
	}
	if slices.ContainsFunc(m.Blocks, func(b kvcache.BlockState) bool { return b.Cached }) {
		legend = append(legend, figure.Swatch(figure.Tint(roundingColor, blockTint), "cached"))
	}
	if slices.ContainsFunc(m.Blocks, func(b kvcache.BlockState) bool { return b.Null }) {
		legend = append(legend, figure.Swatch(figure.Tint(figure.FaintInkColor, blockTint), "null block"))
	}
	return legend
}

// blockColor is the colour of a block's content.
func blockColor(b kvcache.BlockState) color.NRGBA {
	switch {
	case b.Null:
		return figure.FaintInkColor
	case b.References > 1:
		return figure.PendingColor
	case b.References == 1:
		return figure.RequestedColor
	case b.Cached:
		return roundingColor // the occupancy's sky blue is too near the tint of blue
	}
	return figure.UnmappedColor
}

// drawBlock paints the filled part of a block from its left, or all of the null block, and writes the
// label if it fits.
func drawBlock(c draw.Canvas, at vg.Rectangle, b kvcache.BlockState, size int, label string) {
	figure.FillRect(c, figure.UnmappedColor, at.Min.X, at.Min.Y, at.Max.X, at.Max.Y)
	if b.References > 0 || b.Cached || b.Null {
		width := (at.Max.X - at.Min.X) * vg.Length(b.Filled) / vg.Length(max(size, 1))
		if b.Null {
			width = at.Max.X - at.Min.X
		}
		figure.FillRect(c, figure.Tint(blockColor(b), blockTint), at.Min.X, at.Min.Y, at.Min.X+width, at.Max.Y)
	}
	figure.StrokeRect(c, draw.LineStyle{Color: figure.FaintInkColor, Width: 0.5}, at.Min.X, at.Min.Y, at.Max.X, at.Max.Y)
	letters, width := figure.LabelLetters, at.Max.X-at.Min.X
	if letters.Width(label)+3 >= width {
		letters = figure.SmallLetters
		letters.Color = figure.LabelLetters.Color
	}
	if at.Max.Y-at.Min.Y > 12 && letters.Width(label) < width {
		c.FillText(figure.Aligned(letters, draw.XCenter, draw.YCenter), vg.Point{X: (at.Min.X + at.Max.X) / 2, Y: (at.Min.Y + at.Max.Y) / 2}, label)
	}
}

// headLine is the height of a line of text above the tables and blocks.
const headLine = 15

func drawBlockTables(c draw.Canvas, m *kvcache.BlockMap) {
	const names, line = 116, 28
	cell := (c.Max.X - c.Min.X - names - 20) / mapBlocks
	shown := m.Sequences[:min(len(m.Sequences), mapSequences)]
	c.FillText(figure.Aligned(figure.LabelLetters, draw.XLeft, draw.YTop), vg.Point{X: c.Min.X, Y: c.Max.Y}, "block tables: logical block → physical block")
	c.FillText(figure.Aligned(figure.SmallLetters, draw.XLeft, draw.YTop), vg.Point{X: c.Min.X, Y: c.Max.Y - headLine}, "request.sequence")
	var longest int
	for _, q := range shown {
		longest = max(longest, len(q.Table))
	}
	if longest <= mapBlocks { // else the columns are other blocks in each table
		for j := range longest {
			at := vg.Point{X: c.Min.X + names + vg.Length(j)*cell + (cell-3)/2, Y: c.Max.Y - headLine}
			c.FillText(figure.Aligned(figure.SmallLetters, draw.XCenter, draw.YTop), at, strconv.Itoa(j))
		}
	}
	y := c.Max.Y - 2*headLine
	for _, q := range shown {
		name := fmt.Sprintf("%d.%d: %d tokens", q.Request, q.Sequence, q.Tokens)
		c.FillText(figure.Aligned(figure.SmallLetters, draw.XLeft, draw.YCenter), vg.Point{X: c.Min.X, Y: y - line/2}, figure.Fit(figure.SmallLetters, name, names-26))
		// A long table is cut at its start, because sequences differ at their ends.
		first := max(0, len(q.Table)-mapBlocks)
		x := c.Min.X + names
		if first > 0 {
			c.FillText(figure.Aligned(figure.SmallLetters, draw.XRight, draw.YCenter), vg.Point{X: x - 3, Y: y - line/2}, fmt.Sprintf("%d …", first))
		}
		for _, physical := range q.Table[first:] {
			at := vg.Rectangle{Min: vg.Point{X: x, Y: y - line + 4}, Max: vg.Point{X: x + cell - 3, Y: y}}
			var state kvcache.BlockState
			if int(physical) < len(m.Blocks) && physical >= 0 {
				state = m.Blocks[physical]
			}
			drawBlock(c, at, state, m.BlockSize, strconv.Itoa(int(physical)))
			x += cell
		}
		y -= line
	}
	if rest := len(m.Sequences) - len(shown); rest > 0 {
		c.FillText(figure.Aligned(figure.SmallLetters, draw.XLeft, draw.YTop), vg.Point{X: c.Min.X, Y: y}, "… "+plain.Counted(int64(rest), "more sequence"))
	}
}

// drawBlocks draws the physical blocks in rows, as large as they fit.
func drawBlocks(c draw.Canvas, m *kvcache.BlockMap) {
	n, head := drawnBlocks(m)
	if n == 0 {
		return
	}
	c.FillText(figure.Aligned(figure.LabelLetters, draw.XLeft, draw.YTop), vg.Point{X: c.Min.X, Y: c.Max.Y}, head)
	top := c.Max.Y - 2*headLine
	width, height := float64(c.Max.X-c.Min.X), float64(top-c.Min.Y)
	side := math.Sqrt(width * height / float64(n))
	columns := max(1, int(math.Ceil(width/min(side, 56))))
	rows := (n + columns - 1) / columns
	w, h := vg.Length(width)/vg.Length(columns), vg.Length(min(height/float64(rows), 28))
	gap := min(2, w/8)
	between := max(1, int(math.Ceil(float64(headLine/h)))) // rows, so that numbers at the left lie apart
	for i, b := range m.Blocks[:n] {
		x, y := c.Min.X+vg.Length(i%columns)*w, top-vg.Length(i/columns)*h
		drawBlock(c, vg.Rectangle{Min: vg.Point{X: x, Y: y - h + gap}, Max: vg.Point{X: x + w - gap, Y: y}}, b, m.BlockSize, blockLabel(i, b, w))
		if w <= numbered && i%(columns*between) == 0 { // blocks have no numbers of their own then
			c.FillText(figure.Aligned(figure.SmallLetters, draw.XRight, draw.YCenter), vg.Point{X: x - 4, Y: y - (h-gap)/2}, strconv.Itoa(i))
		}
	}
}

// drawnBlocks is how many blocks are drawn, from the first, and the text above them. Free blocks at the
// end are left out if they would make the others small.
func drawnBlocks(m *kvcache.BlockMap) (n int, head string) {
	const few = 128 // have room for their numbers
	n = len(m.Blocks)
	for n > few && m.Blocks[n-1] == (kvcache.BlockState{}) {
		n--
	}
	head = "physical blocks ×references"
	switch {
	case n > mapPhysical:
		n = mapPhysical
		head += fmt.Sprintf(", the first %s of %s", plain.FormatCount(int64(n)), plain.FormatCount(m.Count))
	case int64(n) < m.Count:
		head += fmt.Sprintf(", the first %s of %s; the others are free", plain.FormatCount(int64(n)), plain.FormatCount(m.Count))
	}
	return n, head
}

// numbered is the least width at which a block's number fits.
const numbered = 34

// blockLabel is the number of a physical block and its references, as far as they fit the width.
func blockLabel(i int, b kvcache.BlockState, width vg.Length) string {
	switch {
	case b.Null && width > numbered:
		return "null"
	case width > numbered:
		return fmt.Sprintf("%d ×%d", i, b.References)
	case b.References > 1:
		return fmt.Sprintf("×%d", b.References)
	}
	return ""
}
