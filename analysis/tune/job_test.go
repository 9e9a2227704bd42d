package tune

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

const mib = 1 << 20

// source gives events in batches of a few.
type source struct {
	events []trace.Event
	texts  []string // by context
	size   int
	at     int
}

func (s *source) Next() (*trace.Batch, error) {
	if s.at == len(s.events) {
		return nil, io.EOF
	}
	b := &trace.Batch{}
	for ; s.at < len(s.events) && b.Len() < s.size; s.at++ {
		e := &s.events[s.at]
		b.Seq, b.Time, b.Kind = append(b.Seq, e.Seq), append(b.Time, e.Time), append(b.Kind, e.Kind)
		b.Device, b.Arena, b.Thread = append(b.Device, e.Device), append(b.Arena, e.Arena), append(b.Thread, e.Thread)
		b.Stream, b.Addr = append(b.Stream, e.Stream), append(b.Addr, e.Addr)
		b.Requested, b.Provided, b.Context = append(b.Requested, e.Requested), append(b.Provided, e.Provided), append(b.Context, e.Context)
	}
	return b, nil
}

func (s *source) text(context int32) string { return s.texts[context] }

// job writes events: a millisecond passes with each.
type job struct {
	source
	now int64
}

func newJob() *job { return &job{source: source{texts: []string{""}, size: 3}} }

func (j *job) event(kind trace.Kind, arena int32, e trace.Event) *job {
	e.Seq, e.Time, e.Kind, e.Arena = int64(len(j.events)), j.now, kind, arena
	j.events = append(j.events, e)
	j.now += 1e6
	return j
}

func (j *job) arena(number int32, limit int64, options string) *job {
	j.texts = append(j.texts, options)
	return j.event(trace.KindArena, number, trace.Event{Addr: 1 << 40, Requested: limit, Provided: 16 << 30, Context: int32(len(j.texts) - 1)})
}

// device is a main arena on a device of so many bytes.
func (j *job) device(bytes int64) *job {
	j.arena(0, bytes, mainArena)
	j.events[len(j.events)-1].Provided = bytes
	return j
}

// arenaOf is one of another stream.
func (j *job) arenaOf(stream int64, number int32, options string) *job {
	j.arena(number, 0, options)
	j.events[len(j.events)-1].Stream = stream
	return j
}

const mainArena = "growth=double headroom=0 granularity=2097152 pool=0.0 tag= main=1"

// address is that of a numbered block of an arena; no two arenas have an address in common.
func address(arena int32, number int64) int64 { return int64(arena)<<40 + number }

// alloc is of a block with a number; in this package no placement of it counts.
func (j *job) alloc(arena int32, number, bytes int64) *job {
	return j.event(trace.KindAlloc, arena, trace.Event{Addr: address(arena, number), Requested: bytes, Provided: bytes})
}

func (j *job) free(arena int32, numbers ...int64) *job {
	for _, number := range numbers {
		j.event(trace.KindFree, arena, trace.Event{Addr: address(arena, number)})
	}
	return j
}

func (j *job) mark() *job { return j.event(trace.KindIteration, trace.NoArena, trace.Event{}) }

// wait lets time pass before the next event.
func (j *job) wait(d time.Duration) *job {
	j.now += d.Nanoseconds()
	return j
}

// policyOf reads "PRESET TRIM". Compact has pages of 2 MiB, in which sizes are simple.
func policyOf(t *testing.T, text string) bfc.Policy {
	t.Helper()
	name, trim, _ := strings.Cut(text, " ")
	preset, err := bfc.ParsePreset(name)
	assert.NoError(t, err)
	p := preset.Policy()
	if p.Trim, err = bfc.ParseTrim(trim, bfc.ParseNanoseconds); err != nil {
		t.Fatal(err)
	}
	if preset == bfc.Compact {
		p.Handle = 2 * mib
	}
	return p
}

// withText adds an event without an arena.
func withText(j *job, kind trace.Kind, text string) *job {
	j.texts = append(j.texts, text)
	return j.event(kind, trace.NoArena, trace.Event{Context: int32(len(j.texts) - 1)})
}

func (j *job) tune(t *testing.T, limit uint64, policies ...string) []Outcome {
	t.Helper()
	o := Options{Limit: limit, Text: j.text}
	for _, text := range policies {
		o.Policies = append(o.Policies, policyOf(t, text))
	}
	j.at = 0
	result, err := Run(context.Background(), &j.source, o)
	assert.NoError(t, err)
	return result.Outcomes
}
