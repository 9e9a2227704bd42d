package keyframes

// Band is a stretch of time in which one phase was the innermost.
type Band struct {
	Start, End int64 // time
	// Phase is "other" outside of all; "" where so many phases took turns within a short time that
	// they count as one.
	Phase string
}

// maxBands bounds how many bands are kept.
const maxBands = 8192

// Bands follows the phases over time. When there are too many, neighbours that are both
// shorter than a width become one band of several phases; the width doubles until that is enough.
type Bands struct {
	limit int
	width int64
	all   []Band // the last one has not ended
}

// NewBands is a Bands without phases.
func NewBands() *Bands { return &Bands{limit: maxBands} }

// Enter makes a phase the innermost one.
func (b *Bands) Enter(phase string, time int64) {
	if n := len(b.all); n > 0 {
		last := &b.all[n-1]
		last.End = max(last.Start, time)
		switch {
		case last.Phase == phase:
			return
		case last.End == last.Start: // it lasted no time
			b.all = b.all[:n-1]
		}
	}
	b.all = append(b.all, Band{time, time, phase})
	if len(b.all) < b.limit {
		return
	}
	for b.join(); len(b.all) > b.limit*3/4; b.join() {
		b.width = max(1024, 2*b.width)
	}
}

// join joins neighbours that are shorter than the width. It leaves the band that has not ended.
func (b *Bands) join() {
	n, last := 0, len(b.all)-1
	for i := 1; i < last; i++ {
		p, o := &b.all[n], &b.all[i]
		if p.End-p.Start < b.width && o.End-o.Start < b.width {
			p.End, p.Phase = o.End, ""
			continue
		}
		n++
		b.all[n] = *o
	}
	b.all[n+1] = b.all[last]
	b.all = b.all[:n+2]
}

// Finish ends the last band.
func (b *Bands) Finish(time int64) []Band {
	if n := len(b.all); n > 0 {
		b.all[n-1].End = max(b.all[n-1].Start, time)
	}
	return b.all
}
