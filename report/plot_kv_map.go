package report

import (
	"fmt"
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/memprof/memprof/analysis/kvcache"
)

// The block tables that the map has room for: sequences, and logical blocks of each.
const mapSequences, mapBlocks = 14, 12

// blockTint is the opacity of a block's colour, on which its number is read.
const blockTint = 0.55

// kvMapFigure draws the block tables of an instant at the left, and the physical blocks that they
// name at the right: how far each is filled, and how many tables name it.
func kvMapFigure(k *KV, r *kvcache.Result) Figure {
	m := r.Map
	f := Figure{
		Name: r.Policy + "-blocks", title: fmt.Sprintf("%s after step %s · %s", r.Policy, formatCount(m.Step), kvTitle(k)),
		subtitle: fmt.Sprintf("%s · %s of %d slots · left: request.sequence with its block table; right: physical blocks ×references",
			plural(int64(len(m.Sequences)), "sequence"), plural(int64(len(m.Blocks)), "physical block"), m.BlockSize),
		legend: []legendEntry{
			swatch(tint(requestedColor, blockTint), "filled"), swatch(tint(pendingColor, blockTint), "filled, in several tables"),
			swatch(tint(roundingColor, blockTint), "cached"), swatch(unmappedColor, "not filled"),
		},
	}
	f.body = func(c draw.Canvas) {
		middle := c.Min.X + (c.Max.X-c.Min.X)*0.55
		left, right := c, c
		left.Max.X, right.Min.X = middle-12, middle+12
		drawBlockTables(left, m)
		drawBlocks(right, m)
	}
	return f
}

// blockColor is of what a block holds.
func blockColor(b kvcache.BlockState) color.NRGBA {
	switch {
	case b.References > 1:
		return pendingColor
	case b.References == 1:
		return requestedColor
	case b.Cached:
		return roundingColor // the occupancy's sky blue is too near the tint of blue
	}
	return unmappedColor
}

// drawBlock fills a block from the left as far as it is filled, and writes into it what has room.
func drawBlock(c draw.Canvas, at vg.Rectangle, b kvcache.BlockState, size int, label string) {
	fillRect(c, unmappedColor, at.Min.X, at.Min.Y, at.Max.X, at.Max.Y)
	if b.References > 0 || b.Cached {
		width := (at.Max.X - at.Min.X) * vg.Length(b.Filled) / vg.Length(max(size, 1))
		fillRect(c, tint(blockColor(b), blockTint), at.Min.X, at.Min.Y, at.Min.X+width, at.Max.Y)
	}
	strokeRect(c, draw.LineStyle{Color: faintInkColor, Width: 0.5}, at.Min.X, at.Min.Y, at.Max.X, at.Max.Y)
	if at.Max.Y-at.Min.Y > 12 && labelLetters.Width(label) < at.Max.X-at.Min.X {
		c.FillText(aligned(labelLetters, draw.XCenter, draw.YCenter), vg.Point{X: (at.Min.X + at.Max.X) / 2, Y: (at.Min.Y + at.Max.Y) / 2}, label)
	}
}

func drawBlockTables(c draw.Canvas, m *kvcache.BlockMap) {
	const names, line = 110, 28
	cell := (c.Max.X - c.Min.X - names - 20) / mapBlocks
	y := c.Max.Y
	for i, q := range m.Sequences {
		if i == mapSequences {
			rest := "… " + plural(int64(len(m.Sequences)-i), "more sequence")
			c.FillText(aligned(smallLetters, draw.XLeft, draw.YTop), vg.Point{X: c.Min.X, Y: y}, rest)
			return
		}
		name := fmt.Sprintf("%d.%d: %d tokens", q.Request, q.Sequence, q.Tokens)
		c.FillText(aligned(smallLetters, draw.XLeft, draw.YCenter), vg.Point{X: c.Min.X, Y: y - line/2}, fit(smallLetters, name, names-6))
		// Of a long table the end is shown, which is where sequences part.
		first := max(0, len(q.Table)-mapBlocks)
		x := c.Min.X + names
		if first > 0 {
			c.FillText(aligned(smallLetters, draw.XRight, draw.YCenter), vg.Point{X: x - 2, Y: y - line/2}, "…")
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
}

// drawBlocks lays all physical blocks out in rows, as large as there is room.
func drawBlocks(c draw.Canvas, m *kvcache.BlockMap) {
	n := len(m.Blocks)
	if n == 0 {
		return
	}
	width, height := float64(c.Max.X-c.Min.X), float64(c.Max.Y-c.Min.Y)
	side := math.Sqrt(width * height / float64(n))
	columns := max(1, int(math.Ceil(width/min(side, 56))))
	rows := (n + columns - 1) / columns
	w, h := vg.Length(width)/vg.Length(columns), vg.Length(min(height/float64(rows), 28))
	gap := min(2, w/8)
	for i, b := range m.Blocks {
		x, y := c.Min.X+vg.Length(i%columns)*w, c.Max.Y-vg.Length(i/columns)*h
		label := ""
		if w > 34 {
			label = fmt.Sprintf("%d ×%d", i, b.References)
		}
		drawBlock(c, vg.Rectangle{Min: vg.Point{X: x, Y: y - h + gap}, Max: vg.Point{X: x + w - gap, Y: y}}, b, m.BlockSize, label)
	}
}
