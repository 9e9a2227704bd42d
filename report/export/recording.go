package export

import (
	"cmp"
	"fmt"
	"io"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/trace"
)

// Recording is what is exported. A format may take several passes over its events.
type Recording struct {
	Run *trace.Run
}

// analyze passes over the events of a process with package analysis, which demands that
// they add up.
func (r *Recording) analyze(process *trace.Process, opt analysis.Options) (*analysis.Result, error) {
	reader, err := process.NewReader()
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	opt.Process, opt.Text = process.Name, process.Strings().Text
	opt.FirstSeq = process.Parts[0].FirstSeq
	opt.Live = process.Live
	opt.Recovered = process.Ending.State != trace.StateClosed
	result, err := analysis.Run(reader, opt)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", process.Name, err)
	}
	return result, nil
}

// writer keeps the first error of its destination, so that formats can write without asking.
type writer struct {
	to  io.Writer
	buf []byte
	err error
}

// flushAt is how much is gathered before it is written.
const flushAt = 64 << 10

func (w *writer) add(bytes []byte) {
	w.buf = append(w.buf, bytes...)
	if len(w.buf) >= flushAt {
		w.flush()
	}
}

func (w *writer) addString(text string) {
	w.buf = append(w.buf, text...)
	if len(w.buf) >= flushAt {
		w.flush()
	}
}

// flush writes what is gathered and returns the first error there was.
func (w *writer) flush() error {
	if w.err == nil && len(w.buf) > 0 {
		_, w.err = w.to.Write(w.buf)
	}
	w.buf = w.buf[:0]
	return w.err
}

// requesterName is what an allocation is called where there is room for one name.
func requesterName(context string) string {
	name, _ := analysis.RequesterOf(context)
	return cmp.Or(name, "(no module)")
}
