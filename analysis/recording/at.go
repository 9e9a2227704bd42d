package recording

import (
	"fmt"
	"slices"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/keyframes"
	"github.com/memprof/memprof/trace/dataset"
)

// behind is how many events after those of a span are read: phases end there, and labels are given.
const behind = 1 << 14

// At returns what the devices of a process were like right after each of some events, in ascending order. It reads the whole
// process: then categories and phases are those of a report.
func At(process *dataset.Process, seqs ...int64) ([]*analysis.Moment, error) {
	first := process.Parts[0].FirstSeq
	moments, err := between(process, first, first+process.Events-1, seqs)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", process.Name, err)
	}
	return moments, nil
}

// InParts is [At] for events whose categories and phases do not matter: of each part with such an event it reads only what comes up to
// the last one.
func InParts(process *dataset.Process, seqs ...int64) ([]*analysis.Moment, error) {
	var all []*analysis.Moment
	for len(seqs) > 0 {
		n := len(seqs)
		if next := slices.IndexFunc(process.Parts, func(p dataset.Part) bool { return p.FirstSeq > seqs[0] }); next >= 0 {
			n, _ = slices.BinarySearch(seqs, process.Parts[next].FirstSeq)
		}
		moments, err := between(process, seqs[0], seqs[n-1], seqs[:n])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", process.Name, err)
		}
		all, seqs = append(all, moments...), seqs[n:]
	}
	return all, nil
}

// between is [At], but reads from the part with the event first up to the event last.
func between(process *dataset.Process, first, last int64, seqs []int64) ([]*analysis.Moment, error) {
	reader, opt, err := from(process, first, last)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	return analysis.At(reader, opt, seqs...)
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
	opt.Recovered = opt.Recovered || last < process.Parts[0].FirstSeq+process.Events-1
	opt.FirstSeq, opt.Marks = part.FirstSeq, int(part.Marks-process.Parts[0].Marks)
	return reader, opt, err
}
