package collect_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/collect"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// ringRun is a recording that keeps the last events only.
func ringRun(t *testing.T, failed func(requests int64)) *recordedLive {
	t.Helper()
	r := newRecordedLive(t)
	r.collector.Kill()
	var err error
	r.collector, err = collect.New(r.dir, collect.Options{RunID: r.info.ID, ClockBase: r.info.ClockBase, Ring: collect.RingLeast, Failed: failed})
	assert.NoError(t, err)
	return r
}

// checkRing compares what a ring kept with all events of the process, and what it states of those before with what
// was live after them.
func checkRing(t *testing.T, p *dataset.Process, events []trace.Event, texts []string) {
	t.Helper()
	first := p.Parts[0].FirstSeq
	assert.Must(t, p.Dropped() == first && p.Events == int64(len(events))-first,
		"%d events from %d on, %d dropped; want all of %d", p.Events, first, p.Dropped(), len(events))
	live := trace.NewLive()
	for i := range events[:first] {
		live.Add(&events[i])
	}
	restated := trace.NewLive()
	got, contexts := rows(t, p)
	at := slices.IndexFunc(got, func(e trace.Event) bool { return e.Seq >= first })
	for i := range got[:at] {
		restated.Add(&got[i])
	}
	a, b := live.Totals(), restated.Totals()
	assert.That(t, a.Requested == b.Requested && a.Provided == b.Provided && a.Reserved == b.Reserved, "before event %d %+v, restated %+v", first, a, b)
	for i, e := range got[at:] {
		want := events[first+int64(i)]
		want.Seq, want.Time, want.Context = first+int64(i), want.Time&^(dataset.TimeStep-1), 0
		assert.Must(t, e == want && contexts[at+i] == texts[events[want.Seq].Context], "event %d is %+v %q, want %+v", want.Seq, e, contexts[at+i], want)
	}
	sums := p.Rolling()
	for i := range got[at:] {
		sums.Add(&got[at+i], contexts[at+i])
	}
	assert.That(t, slices.Equal(sums.Finish(), p.Checksums()), "the checksums are not those of the events")
}

// A ring keeps the last events and what was live before them, at any time and after every end, in a bounded number
// of segments.
func TestRing(t *testing.T) {
	r := ringRun(t, nil)
	events, texts := tracetest.Training(700_000)
	most := 0
	for at := 0; at < 600_000; at += 25_000 {
		r.put(events[at:at+25_000], texts)
		must(t, r.collector.PollLive)
		most = max(most, segments(t, r.spool))
		if at%150_000 > 0 {
			continue
		}
		run, err := collect.OpenLive(r.dir)
		assert.NoError(t, err)
		checkRing(t, run.Processes[0], events[:at+25_000], texts)
	}
	// segments have 4 MiB; one is being filled, one is next
	assert.That(t, most <= collect.RingLeast>>22+2, "%d segments at a time", most)

	// A snapshot is a run of its own, which stays as it is.
	to := t.TempDir()
	if _, err := collect.WriteSnapshot(r.dir, to, "a test"); err != nil {
		t.Fatal(err)
	}
	// Held, the ring drops nothing.
	release := r.collector.Hold()
	r.put(events[600_000:], texts)
	must(t, r.collector.PollLive)
	held := segments(t, r.spool)
	release()
	if _, err := r.collector.PollLive(); err != nil || segments(t, r.spool) > held {
		t.Fatalf("%v, %d segments held, %d then", err, held, segments(t, r.spool))
	}
	snapshot, err := dataset.Open(to)
	assert.NoError(t, err)
	checkRing(t, snapshot.Processes[0], events[:600_000], texts)
	if s := snapshot.Info.Snapshot; s == nil || s.Why != "a test" || snapshot.Processes[0].Ending.State != dataset.StateStopped {
		t.Errorf("snapshot %+v, ending %+v", s, snapshot.Processes[0].Ending)
	}

	// Killed, it is recovered from the last part and the segments.
	r.collector.Kill()
	r.spool.SetState(tracetest.Closed)
	r.spool.Close()
	recovered(t, r.dir)
	run, err := dataset.Open(r.dir)
	assert.NoError(t, err)
	p := run.Processes[0]
	checkRing(t, p, events, texts)
	assert.That(t, p.Whole && p.Ending.State == dataset.StateClosed, "whole %t, %+v", p.Whole, p.Ending)
}

// A collector that ends converts what its ring holds; a short process is whole.
func TestRingEnds(t *testing.T) {
	for _, n := range []int{10, 400_000} {
		r := ringRun(t, nil)
		events, texts := tracetest.Training(n)
		for at := 0; at < n; at += 50_000 {
			r.put(events[at:min(at+50_000, n)], texts)
			must(t, r.collector.PollLive)
		}
		r.spool.SetState(tracetest.Closed)
		r.spool.Close()
		must(t, r.collector.Finish)
		run, err := dataset.Open(r.dir)
		assert.NoError(t, err)
		p := run.Processes[0]
		dropped := p.Dropped() > 0
		assert.That(t, dropped == (n > 262_144) && p.Whole, "%d events: %d dropped, whole %t", n, p.Dropped(), p.Whole)
		checkRing(t, p, events, texts)
	}
}

// If a ring was killed before it removed what a part supersedes, the process begins with that part.
func TestRingSuperseded(t *testing.T) {
	r := ringRun(t, nil)
	events, texts := tracetest.Training(600_000)
	var kept []byte
	for at := 0; at < len(events); at += 50_000 {
		r.put(events[at:at+50_000], texts)
		must(t, r.collector.PollLive)
		if text, err := os.ReadFile(filepath.Join(r.dir, "rank0-0000.parquet")); err == nil {
			kept = text
		} else if !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	assert.NoError(t, os.WriteFile(filepath.Join(r.dir, "rank0-0000.parquet"), kept, 0o600))
	run, err := collect.OpenLive(r.dir)
	assert.NoError(t, err)
	checkRing(t, run.Processes[0], events, texts)
	assert.Diff(t, 1, len(run.Processes))
	r.collector.Kill()
}

// Each failed request that a ring passes over is counted once.
func TestRingFailed(t *testing.T) {
	got, want := int64(0), int64(0)
	r := ringRun(t, func(requests int64) { got += requests })
	events, texts := tracetest.Training(300_000)
	for i := range events {
		if events[i].Kind == trace.KindIteration {
			events[i].Kind = trace.KindOOM
			want++
		}
	}
	for at := 0; at < len(events); at += 7_000 {
		r.put(events[at:min(at+7_000, len(events))], texts)
		must(t, r.collector.PollLive)
	}
	assert.That(t, want > 0 && got == want, "%d failed requests counted, %d written", got, want)
	run, err := collect.OpenLive(r.dir)
	assert.NoError(t, err)
	checkRing(t, run.Processes[0], events, texts)
	r.collector.Kill()
}
