package tracetest

import (
	"fmt"
	"slices"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// Tester is what tests and properties have in common.
type Tester interface {
	Helper()
	Error(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// One is the process of a run that has exactly one.
func One(t Tester, path string) *dataset.Process {
	t.Helper()
	run, err := dataset.Open(path)
	assert.NoError(t, err)
	assert.Must(t, len(run.Processes) == 1, "%d processes, want 1", len(run.Processes))
	return run.Processes[0]
}

// Events are those of a process, the opening rows of its first part included.
func Events(t Tester, p *dataset.Process) []trace.Event {
	t.Helper()
	events, err := p.ReadAll()
	assert.NoError(t, err)
	return events
}

// WithTexts is how events compare across processes: contexts by text.
func WithTexts(events []trace.Event, text func(id int32) string) []string {
	lines := make([]string, len(events))
	for i, e := range events {
		s := text(e.Context)
		e.Context = 0
		lines[i] = fmt.Sprintf("%+v %q", e, s)
	}
	return lines
}

// Same fails the test unless a process has these events, whose contexts index texts, and the checksums of what it has.
func Same(t Tester, p *dataset.Process, events []trace.Event, texts []string) {
	t.Helper()
	want := WithTexts(events, func(id int32) string { return texts[id] })
	got := WithTexts(Events(t, p), p.Strings().Text)
	for i := range min(len(want), len(got)) {
		if want[i] != got[i] {
			t.Errorf("event %d is %s, want %s", i, got[i], want[i])
			break
		}
	}
	assert.That(t, len(got) == len(want), "%d events, want %d", len(got), len(want))
	assert.That(t, slices.Equal(Rolling(t, p), p.Checksums()), "checksums differ")
}

// Rolling computes the checksums of the events of a process.
func Rolling(t Tester, p *dataset.Process) []uint64 {
	t.Helper()
	sums := p.Rolling()
	for _, e := range Events(t, p) {
		if e.Seq >= p.Parts[0].FirstSeq {
			sums.Add(&e, p.Strings().Text(e.Context))
		}
	}
	if p.Whole {
		return sums.Finish()
	}
	return sums.Checksums()
}
