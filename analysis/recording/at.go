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

// At is what the devices of a process are like right after each of some events, ascending by seq. Of each part that has some of
// them it reads what comes up to the last one.
func At(process *dataset.Process, seqs ...int64) ([]*analysis.Moment, error) {
	first := process.Parts[0].FirstSeq
	var all []*analysis.Moment
	for len(seqs) > 0 {
		if last := first + process.Events - 1; seqs[0] < first || seqs[0] > last {
			return nil, fmt.Errorf("%s: %w", process.Name, &analysis.NoEventError{Seq: seqs[0], First: first, Last: last})
		}
		n := len(seqs)
		if next := slices.IndexFunc(process.Parts, func(p dataset.Part) bool { return p.FirstSeq > seqs[0] }); next >= 0 {
			n, _ = slices.BinarySearch(seqs, process.Parts[next].FirstSeq)
		}
		moments, err := inPart(process, seqs[:n])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", process.Name, err)
		}
		all, seqs = append(all, moments...), seqs[n:]
	}
	return all, nil
}

// inPart is [At] for events of one part.
func inPart(process *dataset.Process, seqs []int64) ([]*analysis.Moment, error) {
	reader, opt, err := from(process, seqs[0], seqs[len(seqs)-1])
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
	opt.FirstSeq, opt.Marks = part.FirstSeq, int(part.Marks-process.Parts[0].Marks)
	return reader, opt, err
}
