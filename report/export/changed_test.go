package export

import (
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestChangedEvents: of recordings whose events were changed one by one, and whose checksums are
// right all the same, every format is written, or there is an error that names an event.
func TestChangedEvents(t *testing.T) {
	if testing.Short() {
		t.Skip("700 recordings are exported")
	}
	formats := map[string]func(r *Recording) error{
		"pprof":    func(r *Recording) error { return Pprof(io.Discard, r, PprofOptions{At: AtEnd}) },
		"csv":      func(r *Recording) error { return CSV(io.Discard, r) },
		"snapshot": func(r *Recording) error { return TorchSnapshot(io.Discard, r, r.Run.Processes[0]) },
	}
	whole := job()
	refused := map[string]int{}
	dir := t.TempDir()
	try := func(events []trace.Event, what string, at int) {
		tracetest.WriteRun(t, dir, tracetest.Process{Events: events, Texts: whole.texts})
		run, err := dataset.Open(dir)
		assert.NoError(t, err)
		for name, write := range formats {
			err := write(&Recording{Run: run})
			var event *ledger.EventError
			assert.That(t, err == nil || errors.As(err, &event), "%s of event %d: %s: error %v, want one that names an event", what, at, name, err)
			if err != nil {
				refused[name]++
			}
		}
	}
	try(whole.events, "no change", 0)
	assert.Must(t, len(refused) <= 0, "refused as it is: %v", refused)
	changed := func(at int, change func(e *trace.Event)) []trace.Event {
		events := slices.Clone(whole.events)
		change(&events[at])
		return events
	}
	for at := range whole.events {
		try(slices.Delete(slices.Clone(whole.events), at, at+1), "loss", at)
		for _, kind := range []trace.Kind{trace.KindArena, trace.KindAlloc, trace.KindFree, trace.KindMap, trace.KindUnmap, trace.KindPoolRelease, trace.KindPause, trace.KindResume} {
			try(changed(at, func(e *trace.Event) { e.Kind = kind }), "kind "+kind.String(), at)
		}
		for _, number := range []int32{2, 1<<31 - 1} {
			try(changed(at, func(e *trace.Event) { e.Device = number }), "device", at)
			try(changed(at, func(e *trace.Event) { e.Arena = number }), "arena", at)
		}
		for _, number := range []int64{-1, 1 << 62} {
			try(changed(at, func(e *trace.Event) { e.Addr = number }), "address", at)
			try(changed(at, func(e *trace.Event) { e.Provided = number }), "size", at)
		}
	}
	assert.That(t, refused["snapshot"] >= 200 && refused["csv"] <= 0, "refused: %v, want at least 200 by snapshot and none by csv", refused)
}
