// Package nvmltest has GPUs for tests.
package nvmltest

import (
	"errors"
	"sync/atomic"
)

// Cards are GPUs that say what a test wants.
type Cards struct {
	Used   []int64
	Shown  []map[int]int64
	Fail   bool
	Asked  int                           // calls of Memory
	Stuck  atomic.Pointer[chan struct{}] // calls wait until it is closed
	Slow   func()                        // called by Processes, if set
	Closed bool
}

func (f *Cards) Count() int { return len(f.Used) }
func (f *Cards) Memory(gpu int) (used, total int64, err error) {
	f.Asked++
	if stuck := f.Stuck.Load(); stuck != nil {
		<-*stuck
	}
	if f.Fail {
		return 0, 0, errors.New("the GPU fell off the bus")
	}
	return f.Used[gpu], 1000, nil
}
func (f *Cards) Processes(gpu int) map[int]int64 {
	if f.Slow != nil {
		f.Slow()
	}
	if f.Shown == nil {
		return nil
	}
	return f.Shown[gpu]
}
func (f *Cards) Close() { f.Closed = true }
