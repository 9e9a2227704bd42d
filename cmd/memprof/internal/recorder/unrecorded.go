package recorder

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/memprof/memprof/cmd/memprof/internal/process"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
)

// Unrecordable is an error of the machine that was found before the job was started. The user asked for
// nothing wrong, so the job can run without being recorded.
type Unrecordable struct{ Err error }

func (u Unrecordable) Error() string { return u.Err.Error() }

func (u Unrecordable) Unwrap() error { return u.Err }

// RunUnrecorded replaces this process by the job, without the hook. It returns only if that fails.
func RunUnrecorded(stderr io.Writer, program string, command []string, why error) error {
	screen.Remark(stderr, "warning", fmt.Sprintf("the job runs unrecorded: %v", why))
	return process.StartError(program, unix.Exec(program, command, os.Environ()))
}
