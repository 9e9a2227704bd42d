package spool

import (
	"errors"
	"fmt"
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

// Worker names who works on the recording: "its recorder", or "process 4711", which records; "" if there is none.
func (p *Spool) Worker() (string, error) {
	held, err := p.collecting()
	if err != nil {
		return "", trace.IgnoreMissing(err)
	}
	if held {
		return "its recorder", nil
	}
	names, err := p.Names()
	if err != nil {
		return "", trace.IgnoreMissing(err)
	}
	for _, name := range names {
		process, err := p.Readable(name)
		if err != nil {
			return "", err
		}
		if process == nil {
			continue // damaged, so no process can be writing it
		}
		alive, err := process.Alive()
		process.Close()
		if err != nil {
			return "", err
		}
		if alive {
			return fmt.Sprintf("process %d", process.Header.PID), nil
		}
	}
	return "", nil
}

// InProgress names a process that still works on the recording in dir: "its recorder" or "process 4711"; "" if there is
// none. A process that may still begin to record counts.
func InProgress(dir string) (string, error) {
	p, err := Find(dir)
	if err != nil || p == nil {
		return "", err
	}
	defer p.Close()
	worker, err := p.Worker()
	if err != nil || worker != "" {
		return worker, err
	}
	if waiting := p.Starters(); len(waiting) > 0 {
		return waiting[0].String(), nil
	}
	return "", nil
}
