package collect_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// Text that is not UTF-8 keeps nothing from being recovered, and is UTF-8 in the trace.
func TestTextOfAnyEncoding(t *testing.T) {
	dir, spool := newRun(t)
	s := tracetest.NewSpool(t, spool, 4711, 0)
	s.Text("command", "job caf\xe9 "+strings.Repeat("層", 400)[:1000]) // cut inside a character
	s.Text("frameworks", "torch \xff")
	s.Problem("n\xe3o")
	long := strings.Repeat("a\xff", 2048)
	s.Append(trace.Event{Kind: trace.KindAlloc, Addr: 256, Requested: 1, Provided: 256}, "layer\xe9\xe8")
	s.Append(trace.Event{Kind: trace.KindAlloc, Addr: 512, Requested: 1, Provided: 256}, long)
	recovered(t, dir)
	p := tracetest.One(t, dir)
	want := "job caf\uFFFD " + strings.Repeat("層", 333) + "\uFFFD"
	assert.Equal(t, p.Command, want, "command")
	assert.That(t, p.Frameworks == "torch \uFFFD" && fmt.Sprint(p.Ending.Problems) == "[n\uFFFDo]",
		"frameworks %q, problems %q", p.Frameworks, p.Ending.Problems)
	var contexts []string
	err := p.Each(func(e *trace.Event) error {
		contexts = append(contexts, p.Strings().Text(e.Context))
		return nil
	})
	assert.NoError(t, err)
	assert.That(t, len(contexts) == 2 && contexts[0] == "layer\uFFFD" && contexts[1] == strings.Repeat("a\uFFFD", 2048), "contexts %q", contexts)
}

// The strings of deleted segments are kept, even if they became longer than the hook could make them.
func TestValidTextsAreKept(t *testing.T) {
	dir, spool := newRun(t)
	s := tracetest.NewSpool(t, spool, 4711, 0)
	long := strings.Repeat("a\xff", 2048)
	c := newCollector(t, dir, dataset.WriterOptions{PartEvents: tracetest.SegmentRecords})
	for range tracetest.SegmentRecords + 10 {
		s.Append(trace.Event{Kind: trace.KindIteration, Device: trace.NoDevice, Arena: trace.NoArena}, long)
	}
	for range 3 {
		must(t, c.PollLive)
	}
	c.Kill()
	s.Append(trace.Event{Kind: trace.KindIteration, Device: trace.NoDevice, Arena: trace.NoArena}, long)
	recovered(t, dir)
	p := tracetest.One(t, dir)
	n := 0
	err := p.Each(func(e *trace.Event) error {
		n++
		if text := p.Strings().Text(e.Context); !utf8.ValidString(text) || len(text) != 4*2048 {
			return fmt.Errorf("event %d: %d bytes", n, len(text))
		}
		return nil
	})
	assert.That(t, err == nil && n == tracetest.SegmentRecords+11, "%d events, %v", n, err)
}
