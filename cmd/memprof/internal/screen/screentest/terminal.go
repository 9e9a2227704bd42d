// Package screentest opens pseudo-terminals for tests, and collects what they show.
package screentest

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// OpenTerminal makes a pseudo-terminal: what is written to keyboard is typed, what the
// screen shows is read from it too.
func OpenTerminal(t *testing.T) (keyboard, tty *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { keyboard.Close() })
	assert.NoError(t, unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	assert.NoError(t, err)
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	assert.NoError(t, err)
	t.Cleanup(func() { tty.Close() })
	return keyboard, tty
}

// Shown collects what a terminal shows.
type Shown struct {
	mu   sync.Mutex
	text strings.Builder
}

// Watch reads what the terminal shows, until it is closed.
func (s *Shown) Watch(terminal *os.File) {
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

// String is all that was shown.
func (s *Shown) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}
