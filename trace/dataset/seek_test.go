package dataset_test

import (
	"slices"
	"testing"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// A part is read alone, up to an event. It says when it begins and
// how many iterations ended before.
func TestReadFromTheMiddle(t *testing.T) {
	dir := t.TempDir()
	made, texts := tracetest.Training(2500)
	for _, at := range []int{3, 699, 700, 1500} {
		made[at].Kind = trace.KindIteration
	}
	tracetest.WriteRun(t, dir, tracetest.Process{Events: made, Texts: texts, Options: dataset.WriterOptions{PartEvents: 700, RowGroup: 90}})
	p := tracetest.One(t, dir)
	all := tracetest.Events(t, p)
	for _, seq := range []int64{0, 1, 89, 90, 699, 700, 701, 1399, 1400, 2000, 2499} {
		r, part, err := p.NewReaderBetween(seq, seq)
		assert.NoError(t, err)
		first, marks := seq/700*700, int64(0)
		for i := range all[:first] {
			if all[i].Kind == trace.KindIteration {
				marks++
			}
		}
		assert.Equal(t, [3]int64{part.FirstSeq, part.FirstTime, part.Marks}, [3]int64{first, all[first].Time, marks}, "event %d: the part's first event, its time and the marks before it", seq)
		var events []trace.Event
		for b, err := r.Next(); err == nil; b, err = r.Next() {
			for i := range b.Seq {
				e := b.Event(i)
				if e.Seq >= first {
					events = append(events, e)
				}
			}
		}
		r.Close()
		assert.Diff(t, all[first:seq+1], events, "up to event %d", seq)
		got, err := p.EventAt(all[seq].Time)
		assert.NoError(t, err)
		last := slices.IndexFunc(all, func(e trace.Event) bool { return e.Time > all[seq].Time }) - 1
		if last < 0 {
			last = len(all) - 1
		}
		assert.Equal(t, got, int64(last), "the last event at the time of event %d", seq)
	}
	got, err := p.EventAt(-1)
	assert.NoError(t, err)
	assert.Equal(t, got, 0, "the event before all")
}
