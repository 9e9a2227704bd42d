package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/memprof/memprof/cmd/memprof/internal/screen/screentest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestTerminal records in a terminal: a live line is drawn and cleared, and Ctrl-C reaches
// the job once, though memprof gets it as well.
func TestTerminal(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	keyboard, tty := screentest.OpenTerminal(t)
	cmd, _ := b.memprof("record", "--device", "sim", "-o", b.path("run"), "--", b.job,
		"catch", "alloc", "a", "3M", "touch", b.path("ready"), "sleep", "20000", "sleep", "300", "exit", "4")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	assert.NoError(t, cmd.Start())
	var shown screentest.Shown
	go shown.Watch(keyboard)
	const live = "memprof: 4 events · requested 3 MiB · provided 4 MiB · reserved 4 MiB · peak 4 MiB"
	b.waitUntil("the live line is drawn", func() bool { return b.exists("ready") && strings.Contains(shown.String(), live) })
	if _, err := keyboard.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	assert.Equal(t, exitOf(cmd.Wait()), 4, "exit code")
	b.waitUntil("the last line is shown", func() bool { return strings.Contains(shown.String(), "next: memprof report") })
	text := shown.String()
	n := strings.Count(text, "signal 2")
	assert.That(t, n == 1, "the job got %d interrupts of one Ctrl-C", n)
	assert.That(t, strings.Contains(text, "\r"+live+"\x1b[K"), "no live line %q on the screen:\n%q", live, text)
	assert.That(t, strings.Contains(text, "\r\x1b[Kmemprof: the job ended with exit code 4"), "the live line is not cleared before the summary:\n%q", text)
}
