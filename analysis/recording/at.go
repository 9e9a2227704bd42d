package recording

import (
	"fmt"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/keyframes"
	"github.com/memprof/memprof/trace/dataset"
)

// behind is how many events after those of a span are read: phases end there, and labels are given.
const behind = 1 << 14

// At is what the devices of a process are like right after an event. It reads the part that has the event, up to there.
func At(process *dataset.Process, seq int64) (*analysis.Moment, error) {
	first := process.Parts[0].FirstSeq
	if last := first + process.Events - 1; seq < first || seq > last {
		return nil, fmt.Errorf("%s: %w", process.Name, &analysis.NoEventError{Seq: seq, First: first, Last: last})
	}
	reader, opt, err := from(process, seq, seq)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	moment, err := analysis.At(reader, opt, seq)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", process.Name, err)
	}
	return moment, nil
}

// Events has the devices of a process after each event of a span, from the part that has the first of them on, and after the
// keyframes that chosen has there, unless it is nil.
func Events(process *dataset.Process, span keyframes.Span, chosen *analysis.Result) (*analysis.Result, error) {
	reader, opt, err := from(process, span.From, span.To-1+behind)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	return analysis.Revisit(reader, opt, []keyframes.Span{span}, chosen)
}

// from reads a process from the part on that has the event seq, behind which only the marks before the part are missing.
func from(process *dataset.Process, seq, last int64) (*dataset.Reader, analysis.Options, error) {
	opt := OptionsOf(process)
	reader, part, err := process.NewReaderBetween(seq, last)
	if err == nil && part.Marks < 0 { // written before parts had it
		reader.Close()
		reader, part, err = process.NewReaderBetween(opt.FirstSeq, last)
	}
	opt.FirstSeq, opt.Marks = part.FirstSeq, int(part.Marks-process.Parts[0].Marks)
	return reader, opt, err
}
