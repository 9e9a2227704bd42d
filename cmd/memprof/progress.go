package main

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
)

// progressAfter is how long something takes before it shows how far it is.
const progressAfter = time.Second

// progress is a bar on a terminal for what takes longer than a second. Elsewhere it draws
// nothing. A nil one does nothing.
type progress struct {
	w       io.Writer
	what    string
	total   int64
	done    int64
	started time.Time
	bar     *progressbar.ProgressBar // nil before the first second is over
}

// newProgress is for what has so many events to go; nil where w is no terminal.
func newProgress(w io.Writer, what string, total int64) *progress {
	if !terminal(w) || os.Getenv("TERM") == "dumb" || total == 0 {
		return nil
	}
	return &progress{w: w, what: what, total: total, started: time.Now()}
}

// advance says that so many more events are done.
func (p *progress) advance(events int) {
	if p == nil {
		return
	}
	p.done += int64(events)
	if p.bar == nil {
		if time.Since(p.started) < progressAfter {
			return
		}
		p.bar = progressbar.NewOptions64(p.total,
			progressbar.OptionSetWriter(p.w), progressbar.OptionSetDescription("memprof: "+p.what),
			progressbar.OptionSetWidth(24), progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(true),
			progressbar.OptionThrottle(drawEvery), progressbar.OptionClearOnFinish())
	}
	p.bar.Set64(min(p.done, p.total)) // an error is one of the terminal, which loses the bar only
}

// finish leaves the line to whoever prints next.
func (p *progress) finish() {
	if p != nil && p.bar != nil {
		p.bar.Finish()
	}
}
