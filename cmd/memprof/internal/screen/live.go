package screen

import (
	"fmt"
	"io"
	"time"

	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/trace"
)

// DrawEvery is the least time between two drawings of a line on the terminal.
const DrawEvery = 200 * time.Millisecond

// LiveLine is the line on a terminal that shows the progress of a recording. Elsewhere nothing is drawn.
type LiveLine struct {
	w     io.Writer
	off   bool
	drawn time.Time
}

// NewLiveLine draws on w, unless quiet.
func NewLiveLine(w io.Writer, quiet bool) *LiveLine {
	return &LiveLine{w: w, off: quiet || !Terminal(w)}
}

// Draw replaces the line, unless it was drawn a moment ago.
func (l *LiveLine) Draw(totals trace.Totals) {
	if l.off || totals.Events == 0 || time.Since(l.drawn) < DrawEvery {
		return
	}
	l.drawn = time.Now()
	fmt.Fprintf(l.w, "\r%s\x1b[K", Cut(liveText(totals), Width(l.w)-1))
}

// Clear removes the line.
func (l *LiveLine) Clear() {
	if !l.drawn.IsZero() {
		fmt.Fprint(l.w, "\r\x1b[K")
	}
}

func liveText(t trace.Totals) string {
	return fmt.Sprintf("memprof: %s · requested %s · provided %s · reserved %s · peak %s",
		plain.Counted(t.Events, "event"), plain.FormatSize(t.Requested), plain.FormatSize(t.Provided), plain.FormatSize(t.Reserved), plain.FormatSize(t.PeakReserved))
}
