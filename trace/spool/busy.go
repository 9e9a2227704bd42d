package spool

import (
	"fmt"

	"github.com/memprof/memprof/trace"
)

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
