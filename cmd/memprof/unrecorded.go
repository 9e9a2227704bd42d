package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/report/units"
)

// unrecordable is trouble of the machine's, found before the job was started: not with
// what the user asked for, and no reason for the job not to run.
type unrecordable struct{ error }

func (u unrecordable) Unwrap() error { return u.error }

// recorderFiles are the descriptors that memprof and the hook need beside the job's.
const recorderFiles = 32

// tooTight says which limit leaves no room for recording. It opens no file.
func tooTight() error {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil && limit.Max < recorderFiles {
		return unrecordable{fmt.Errorf("only %d files may be open (raise ulimit -n to 4096)", limit.Max)}
	}
	if unix.Getrlimit(unix.RLIMIT_FSIZE, &limit) == nil && limit.Cur < smallestFile {
		return unrecordable{fmt.Errorf("files may have at most %s (raise ulimit -f: a recording needs %s)", units.FormatSize(int64(limit.Cur)), units.FormatSize(smallestFile))}
	}
	return nil
}

// scarce says whether starting a process failed for want of something that memprof itself
// uses up: descriptors, memory, room for the environment.
func scarce(err error) bool {
	for _, errno := range []syscall.Errno{unix.EMFILE, unix.ENFILE, unix.EAGAIN, unix.ENOMEM, unix.E2BIG} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// runUnrecorded makes this process the job, as if it had been started without memprof, and
// returns only when that is impossible.
func runUnrecorded(stderr io.Writer, program string, command []string, why error) error {
	screen.Remark(stderr, "warning", fmt.Sprintf("the job runs unrecorded: %v", why))
	return startError(program, unix.Exec(program, command, os.Environ()))
}
