package spool

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/memprof/memprof/trace"
)

// [Spool.collecting] holds the lock for a moment. A collector therefore tries for 100 ms.
const (
	lockTries = 20
	lockPause = 5 * time.Millisecond
)

// Lock takes the lock of the spool for a collector. It is held while the returned file is open. The error is [trace.ErrBusy] if
// another collector holds it.
func (p *Spool) Lock() (*os.File, error) {
	f, err := p.root.Open(".")
	if err != nil {
		return nil, err
	}
	for range lockTries {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) {
			break
		}
		time.Sleep(lockPause)
	}
	if err != nil {
		f.Close()
		return nil, &trace.PathError{Path: p.path(), Err: trace.ErrBusy, Detail: err.Error(), Remedy: "wait for it to end"}
	}
	return f, nil
}

// collecting says whether a collector holds the lock.
func (p *Spool) collecting() (bool, error) {
	f, err := p.root.Open(".")
	if err != nil {
		return false, err
	}
	defer f.Close() // releases the lock
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// Alive says whether the process is alive, by the lock on its process file. The hook takes a lock of the open
// file description (F_OFD_SETLK); older hooks took a POSIX lock. F_GETLK reports both. On kernels without
// F_OFD_SETLK (gVisor) the hook takes a lock by flock.
func (p *Process) Alive() (bool, error) {
	lock := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart}
	fd := p.file.Fd()
	if err := syscall.FcntlFlock(fd, syscall.F_GETLK, &lock); err != nil {
		return false, fmt.Errorf("%s: read its lock: %w", p.file.Name(), err)
	}
	if lock.Type != syscall.F_UNLCK {
		return true, nil
	}
	err := syscall.Flock(int(fd), syscall.LOCK_SH|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	if err == nil {
		err = syscall.Flock(int(fd), syscall.LOCK_UN)
	}
	if errors.Is(err, syscall.ENOLCK) || errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EOPNOTSUPP) {
		err = nil // the file system has no such locks, so the hook has none either
	}
	if err != nil {
		return false, fmt.Errorf("%s: read its lock: %w", p.file.Name(), err)
	}
	return false, nil
}
