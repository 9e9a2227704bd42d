package screen

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/memprof/memprof/cmd/memprof/internal/screen/screentest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// A bar shows on a terminal, after a second, and leaves the line as it was.
func TestProgress(t *testing.T) {
	keyboard, tty := screentest.OpenTerminal(t)
	t.Setenv("TERM", "xterm")
	var shown screentest.Shown
	go shown.Watch(keyboard)
	wait := func(text string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !strings.Contains(shown.String(), text); time.Sleep(5 * time.Millisecond) {
			assert.Must(t, !time.Now().After(deadline), "no %q on %q", text, shown.String())
		}
	}
	p := NewProgress(tty, "reading run", 1000)
	p.started = time.Now().Add(time.Hour) // the first second lasts as long as it takes
	p.advance(100)
	assert.Equal(t, shown.String(), "", "within the first second")
	p.started = time.Now().Add(-progressAfter)
	p.advance(300)
	wait("memprof: reading run")
	wait("40%")
	p.advance(0)
	wait("\r")
	assert.That(t, p.bar == nil, "the bar stays when there are no more events")
	lines := strings.Count(shown.String(), "\n")
	assert.That(t, lines <= 0, "%d lines are left on %q", lines, shown.String())
}

// Off a terminal, and on one that cannot draw, there is no bar, and its methods do nothing.
func TestNoProgress(t *testing.T) {
	var p *Progress = NewProgress(&bytes.Buffer{}, "reading", 10)
	p.advance(5)
	assert.That(t, p == nil, "a bar off a terminal")
	_, tty := screentest.OpenTerminal(t)
	t.Setenv("TERM", "dumb")
	assert.That(t, NewProgress(tty, "reading", 10) == nil, "a bar on a dumb terminal")
}
