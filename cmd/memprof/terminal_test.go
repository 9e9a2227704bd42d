package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal makes a pseudo-terminal: what is written to keyboard is typed, what the
// screen shows is read from it too.
func openTerminal(t *testing.T) (keyboard, tty *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { keyboard.Close() })
	if err := unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	return keyboard, tty
}

// screen collects what a terminal shows.
type screen struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *screen) watch(terminal *os.File) {
	buffer := make([]byte, 4096)
	for {
		n, err := terminal.Read(buffer)
		s.mu.Lock()
		s.text.Write(buffer[:n])
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// TestTerminal records in a terminal: a live line is drawn and cleared, and Ctrl-C reaches
// the job once, though memprof gets it as well.
func TestTerminal(t *testing.T) {
	b := newBench(t)
	keyboard, tty := openTerminal(t)
	cmd, _ := b.memprof("record", "--device", "sim", "-o", b.path("run"), "--", b.job,
		"catch", "alloc", "a", "3M", "touch", b.path("ready"), "sleep", "20000", "sleep", "300", "exit", "4")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	shown := &screen{}
	go shown.watch(keyboard)
	const live = "memprof: 4 events · requested 3 MiB · provided 4 MiB · reserved 4 MiB · peak 4 MiB"
	b.waitUntil("the live line is drawn", func() bool { return b.exists("ready") && strings.Contains(shown.String(), "peak") })
	if _, err := keyboard.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	if code := exitOf(cmd.Wait()); code != 4 {
		t.Errorf("exit code %d, want the job's 4", code)
	}
	b.waitUntil("the last line is shown", func() bool { return strings.Contains(shown.String(), "next: memprof report") })
	text := shown.String()
	if n := strings.Count(text, "signal 2"); n != 1 {
		t.Errorf("the job got %d interrupts of one Ctrl-C", n)
	}
	if !strings.Contains(text, "\r"+live+"\x1b[K") {
		t.Errorf("no live line %q on the screen:\n%q", live, text)
	}
	if !strings.Contains(text, "\r\x1b[Kmemprof: the job ended with exit code 4") {
		t.Errorf("the live line is not cleared before the summary:\n%q", text)
	}
}
