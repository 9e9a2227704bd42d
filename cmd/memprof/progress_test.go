package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// A bar shows on a terminal, after a second, and leaves the line as it was.
func TestProgress(t *testing.T) {
	keyboard, tty := openTerminal(t)
	t.Setenv("TERM", "xterm")
	var shown screen
	go shown.watch(keyboard)
	wait := func(text string) {
		t.Helper()
		for deadline := time.Now().Add(5 * time.Second); !strings.Contains(shown.String(), text); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("no %q on %q", text, shown.String())
			}
		}
	}
	p := newProgress(tty, "reading run", 1000)
	p.advance(100)
	if got := shown.String(); got != "" {
		t.Errorf("within the first second: %q", got)
	}
	p.started = p.started.Add(-progressAfter)
	p.advance(300)
	wait("memprof: reading run")
	wait("40%")
	p.advance(0)
	wait("\r")
	if p.bar != nil {
		t.Error("the bar stays when there are no more events")
	}
	if lines := strings.Count(shown.String(), "\n"); lines > 0 {
		t.Errorf("%d lines are left on %q", lines, shown.String())
	}
}

// Off a terminal, and on one that cannot draw, there is no bar, which can be told all the same.
func TestNoProgress(t *testing.T) {
	var p *progress = newProgress(&bytes.Buffer{}, "reading", 10)
	p.advance(5)
	if p != nil {
		t.Error("a bar off a terminal")
	}
	_, tty := openTerminal(t)
	t.Setenv("TERM", "dumb")
	if newProgress(tty, "reading", 10) != nil {
		t.Error("a bar on a dumb terminal")
	}
}
