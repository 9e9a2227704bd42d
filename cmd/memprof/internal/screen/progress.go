package screen

import (
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/memprof/memprof/trace/dataset"
)

// progressAfter is how long reading takes before a bar is shown.
const progressAfter = time.Second

// Progress is a bar on a terminal for reading that takes longer than a second. A nil Progress draws nothing.
type Progress struct {
	w       io.Writer
	what    string
	total   int64
	started time.Time

	mu   sync.Mutex
	done int64
	bar  *progressbar.ProgressBar // nil while nothing is drawn
}

// NewProgress returns a bar for so many events; nil if w is no terminal.
func NewProgress(w io.Writer, what string, total int64) *Progress {
	if !Terminal(w) || os.Getenv("TERM") == "dumb" || total == 0 {
		return nil
	}
	return &Progress{w: w, what: what, total: total, started: time.Now()}
}

// Follow makes the readers of a run's processes move the bar.
func (p *Progress) Follow(run *dataset.Run) {
	for _, process := range run.Processes {
		process.Advance = p.advance
	}
}

// advance moves the bar by so many events. With 0 it removes the bar: the reader has read all that is there.
func (p *Progress) advance(events int) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += int64(events)
	switch {
	case events == 0 || p.done >= p.total:
		p.clear()
	case p.bar != nil:
		p.bar.Set64(p.done) // an error is one of the terminal, which loses the bar only
	case time.Since(p.started) >= progressAfter:
		p.bar = progressbar.NewOptions64(p.total,
			progressbar.OptionSetWriter(p.w), progressbar.OptionSetDescription("memprof: "+p.what),
			progressbar.OptionSetWidth(24), progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(true),
			progressbar.OptionThrottle(DrawEvery), progressbar.OptionClearOnFinish())
		p.bar.Set64(p.done)
	}
}

func (p *Progress) clear() {
	if p.bar != nil {
		p.bar.Finish()
		p.bar = nil
	}
}
