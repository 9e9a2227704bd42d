package dataset_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
)

// A process can be read from any event on: the rows that restate the state before it, packed or not, and then the events.
func TestReadFromTheMiddle(t *testing.T) {
	dir := t.TempDir()
	w := dataset.NewWriter(dir, dataset.ProcessMeta{RunID: "1", Name: "rank0", Rank: -1}, dataset.WriterOptions{PartEvents: 700, RowGroup: 90})
	made, texts := tracetest.Training(2500)
	ids := make([]int32, len(texts))
	for i, text := range texts {
		ids[i] = w.Intern(text)
	}
	for i := range made {
		made[i].Seq, made[i].Context = int64(i), ids[made[i].Context]
		if err := w.Append(&made[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Finish(dataset.Ending{State: dataset.StateClosed}); err != nil {
		t.Fatal(err)
	}
	p := tracetest.One(t, dir)
	all := tracetest.Events(t, p)
	if diff := cmp.Diff([]int64{0, 700, 1400, 2100}, p.PartStarts()); diff != "" {
		t.Fatal(diff)
	}
	read := func(r *dataset.Reader, err error) (events []trace.Event) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for {
			b, err := r.Next()
			if err != nil {
				return events
			}
			for i := range b.Seq {
				events = append(events, b.Event(i))
			}
		}
	}
	for _, seq := range []int64{0, 1, 89, 90, 699, 700, 701, 1399, 1400, 2000, int64(len(made)) - 1} {
		if diff := cmp.Diff(all[seq:], read(p.NewReaderAt(seq))); diff != "" {
			t.Errorf("from event %d on (-want +got):\n%s", seq, diff)
		}
	}
	if got := read(p.NewReaderAt(int64(len(made)))); len(got) != 0 {
		t.Errorf("behind the last event are %d", len(got))
	}
	// What the second part opens with is what an Opener says that followed the first.
	o := dataset.NewOpener(p.Strings())
	for i := range all[:700] {
		o.Add(&all[i])
	}
	opens := read(p.NewReaderOfPart(900))
	want := append(o.Rows(), all[700:]...)
	if diff := cmp.Diff(want, opens); diff != "" {
		t.Errorf("from the second part on (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(o.Rows(), trace.UnpackEvents(trace.PackEvents(o.Rows()))); diff != "" {
		t.Errorf("packed (-want +got):\n%s", diff)
	}
	b := trace.BatchOf(o.Rows())
	for i, row := range o.Rows() {
		if b.Event(i) != row {
			t.Errorf("row %d of the batch is %+v, want %+v", i, b.Event(i), row)
		}
	}
}
