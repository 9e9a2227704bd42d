package collect_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/collect"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/spool"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// recordedLive is a run whose events a test hands out.
type recordedLive struct {
	dir       string
	info      *dataset.Info
	spool     *tracetest.Spool
	collector *collect.Collector
}

func newRecordedLive(t *testing.T) *recordedLive {
	t.Helper()
	r := &recordedLive{dir: t.TempDir(), info: &dataset.Info{ID: tracetest.RunID, ClockBase: 1_000_000}}
	spoolDir := filepath.Join(r.dir, spool.Name)
	r.spool = tracetest.NewSpool(t, spoolDir, 4711, 0)
	assert.NoError(t, dataset.WriteInfo(r.dir, r.info))
	var err error
	r.collector, err = collect.New(r.dir, collect.Options{
		RunID: r.info.ID, ClockBase: r.info.ClockBase, Writer: dataset.WriterOptions{PartEvents: 30_000},
	})
	assert.NoError(t, err)
	return r
}

// put writes events to the spool.
func (r *recordedLive) put(events []trace.Event, texts []string) {
	for _, e := range events {
		e.Time += r.info.ClockBase
		r.spool.Append(e, texts[e.Context])
	}
}

// rows are the events of a process with the texts of their contexts.
func rows(t *testing.T, p *dataset.Process) (events []trace.Event, texts []string) {
	t.Helper()
	events, err := p.ReadAll()
	assert.NoError(t, err)
	for i := range events {
		texts = append(texts, p.Strings().Text(events[i].Context))
		events[i].Context = 0
	}
	return events, texts
}

// A recording in progress is opened with every event that was written so far, whatever of them is in
// parts already; it can be read twice, its checksums hold, and nothing of it is touched.
func TestOpenLive(t *testing.T) {
	r := newRecordedLive(t)
	events, texts := tracetest.Training(100_000)
	done := 0
	for _, step := range []struct {
		upTo int
		poll bool
	}{{10, false}, {29_999, true}, {30_001, true}, {70_000, false}, {70_000, true}, {95_000, true}, {100_000, false}} {
		r.put(events[done:step.upTo], texts)
		done = step.upTo
		if step.poll {
			must(t, r.collector.Poll)
		}
		if busy, err := spool.InProgress(r.dir); busy == "" || err != nil {
			t.Fatalf("in progress: %q, %v", busy, err)
		}
		before := listing(t, r.dir)
		run, err := collect.OpenLive(r.dir)
		assert.NoError(t, err)
		assert.That(t, maps.Equal(before, listing(t, r.dir)), "opening changed files")
		p := run.Processes[0]
		if !run.Live || !p.Live || p.Name != "rank0" || p.PID != 4711 || p.Events != int64(done) || !p.Whole || len(run.Processes) != 1 {
			t.Fatalf("%d processes, the first %+v; want %d events", len(run.Processes), p, done)
		}
		for range 2 {
			got, contexts := rows(t, p)
			assert.Must(t, len(got) == done, "%d events, want %d", len(got), done)
			for i, e := range got {
				want := events[i]
				want.Seq, want.Time, want.Context = int64(i), want.Time&^(dataset.TimeStep-1), 0
				if e != want || contexts[i] != texts[events[i].Context] {
					t.Fatalf("event %d is %+v %q, want %+v %q", i, e, contexts[i], want, texts[events[i].Context])
				}
			}
		}
		sums := p.Rolling()
		reader, err := p.NewReader()
		assert.NoError(t, err)
		for {
			batch, err := reader.Next()
			if err != nil {
				break
			}
			sums.AddBatch(batch, p.Strings())
		}
		reader.Close()
		assert.That(t, slices.Equal(sums.Finish(), p.Checksums()), "the checksums of %d events are not those of what was read", done)
	}
	r.spool.SetState(tracetest.Closed)
	r.spool.Close()
	must(t, r.collector.Finish)
	busy, err := spool.InProgress(r.dir)
	assert.That(t, busy == "" && err == nil, "in progress when it is over: %q, %v", busy, err)
}

// A collector that completes parts and takes segments away meanwhile costs nothing: what is opened is
// always the recording up to some event.
func TestOpenLiveMoving(t *testing.T) {
	r := newRecordedLive(t)
	n := 600_000
	if testing.Short() {
		n = 150_000
	}
	events, texts := tracetest.Training(n)
	var job sync.WaitGroup
	job.Add(1)
	ended := make(chan struct{})
	go func() {
		defer job.Done()
		defer close(ended)
		for at := 0; at < len(events); at += 5000 {
			r.put(events[at:min(at+5000, len(events))], texts)
			if _, err := r.collector.Poll(); err != nil {
				t.Error(err)
			}
		}
	}()
	defer job.Wait()
	opened, last := 0, int64(0)
	for going := true; going; {
		select {
		case <-ended:
			going = false
		default:
		}
		run, err := collect.OpenLive(r.dir)
		if errors.Is(err, trace.ErrEmpty) {
			continue
		}
		assert.NoError(t, err)
		p := run.Processes[0]
		seq, parts := int64(0), p.Parts
		var wrong string
		err = p.Each(func(e *trace.Event) error {
			if text := p.Strings().Text(e.Context); wrong == "" && (e.Seq != seq || text != texts[events[seq].Context] || e.Addr != events[seq].Addr) {
				wrong = cmp.Diff(events[seq], *e) + text
			}
			seq++
			return nil
		})
		assert.Must(t, err == nil && wrong == "" && seq == p.Events && seq >= last,
			"%d events in %d parts, %d after %d: %v %s", p.Events, len(parts), seq, last, err, wrong)
		opened, last = opened+1, seq
	}
	assert.That(t, opened >= 2 && last == int64(len(events)), "opened %d times, at last with %d events, want %d", opened, last, len(events))
}

func TestInProgressNothing(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "nothing")} {
		busy, err := spool.InProgress(path)
		assert.That(t, busy == "" && err == nil, "%s: %q, %v", path, busy, err)
	}
}

// TestInProgressEnding: a recording that ends while it is looked at is no error.
func TestInProgressEnding(t *testing.T) {
	for range 100 {
		dir, spoolDir := newRun(t)
		removed := make(chan error)
		go func() { removed <- os.Remove(spoolDir) }()
		for ended := false; !ended; {
			select {
			case err := <-removed:
				assert.NoError(t, err)
				ended = true
			default:
			}
			busy, err := spool.InProgress(dir)
			assert.Must(t, busy == "" && err == nil, "in progress: %q, %v", busy, err)
			if _, err := dataset.Open(dir); !errors.Is(err, trace.ErrEmpty) {
				t.Fatalf("open: %v", err)
			}
		}
	}
}
