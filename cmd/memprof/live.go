package main

import (
	"fmt"
	"io"
	"time"

	"github.com/memprof/memprof/trace"
)

// drawEvery is how often the live line is drawn at most.
const drawEvery = 200 * time.Millisecond

// liveLine is the one line on a terminal that shows how a recording goes. Off a terminal
// it draws nothing.
type liveLine struct {
	w     io.Writer
	off   bool
	drawn time.Time
}

func newLiveLine(w io.Writer, quiet bool) *liveLine {
	return &liveLine{w: w, off: quiet || !terminal(w)}
}

// draw shows the numbers in place of the last ones.
func (l *liveLine) draw(totals trace.Totals) {
	if l.off || totals.Events == 0 || time.Since(l.drawn) < drawEvery {
		return
	}
	l.drawn = time.Now()
	fmt.Fprintf(l.w, "\r%s\x1b[K", cut(liveText(totals), width(l.w)-1))
}

// clear leaves the line to whoever prints next.
func (l *liveLine) clear() {
	if !l.drawn.IsZero() {
		fmt.Fprint(l.w, "\r\x1b[K")
	}
}

func liveText(t trace.Totals) string {
	return fmt.Sprintf("memprof: %s · requested %s · provided %s · reserved %s · peak %s",
		counted(t.Events, "event"), formatSize(t.Requested), formatSize(t.Provided), formatSize(t.Reserved), formatSize(t.PeakReserved))
}

// cut shortens text to so many columns; a terminal that does not tell its width gets all.
func cut(text string, columns int) string {
	runes := []rune(text)
	if columns <= 0 || len(runes) <= columns {
		return text
	}
	return string(runes[:columns])
}
