package rerun

/*
#include <stdlib.h>
#include "cuda.h"
#include "hook.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"
)

// belong sets the tag of requests from now on; "" is none.
func (s *Requester) belong(tag string) {
	if s.tag == tag {
		return
	}
	if s.tag != "" {
		C.rerun_hook_region_end()
	}
	if s.tag = tag; tag != "" {
		C.rerun_hook_region_begin(s.name(tag), 0)
	}
}

// Restore modes of memprof.h.
const restoreHost, restoreDiscard = 1, 5

// Pause unmaps the memory of a tag, and copies its content to the host if the tag has a backup. Without one, memory
// of graphs is paused, too: the recording did it, and nothing reads the content here.
func (s *Requester) Pause(tag string, backedUp bool) error {
	restore := C.int(restoreDiscard)
	if backedUp {
		restore = restoreHost
	}
	C.rerun_hook_region_begin(s.name(tag), restore)
	C.rerun_hook_region_end()
	if C.rerun_hook_pause(s.name(tag)) != 0 {
		return errors.New(C.GoString(C.rerun_hook_pause_message()))
	}
	return nil
}

// Resume maps memory for a tag again.
func (s *Requester) Resume(tag string) error {
	if C.rerun_hook_resume(s.name(tag)) != 0 {
		return errors.New(C.GoString(C.rerun_hook_pause_message()))
	}
	return nil
}

// PoolBegin holds a pool, and marks that the program allocates from it from now on.
func (s *Requester) PoolBegin(device int32, pool Pool) {
	C.rerun_hook_pool_begin(C.int(device), C.uint64_t(pool[0]), C.uint64_t(pool[1]))
}

// PoolEnd marks the end of that. The pool is still held.
func (s *Requester) PoolEnd(device int32, pool Pool) {
	C.rerun_hook_pool_end(C.int(device), C.uint64_t(pool[0]), C.uint64_t(pool[1]))
}

// ReleasePool ends a pool, however often it is held.
func (s *Requester) ReleasePool(device int32, pool Pool) {
	C.rerun_hook_release_pool(C.int(device), C.uint64_t(pool[0]), C.uint64_t(pool[1]))
}

// Checkpoint records the number of live blocks of a pool and their bytes.
func (s *Requester) Checkpoint(device int32, pool Pool, blocks, bytes int64) {
	C.rerun_hook_checkpoint(C.int(device), C.uint64_t(pool[0]), C.uint64_t(pool[1]), C.uint64_t(blocks), C.uint64_t(bytes))
}

// Restored is a block of a checkpoint, by what Malloc and Provided returned for it.
type Restored struct {
	Arena               *Arena
	Address             uintptr
	Provided, Requested int64
}

// Restore frees all blocks of a pool, and makes these live again at their addresses.
func (s *Requester) Restore(device int32, pool Pool, blocks []Restored) error {
	if len(blocks) == 0 {
		return nil
	}
	list := make([]C.struct_rerun_restored, len(blocks))
	for i, b := range blocks {
		list[i] = C.struct_rerun_restored{
			stream: C.uintptr_t(b.Arena.stream), address: C.uint64_t(b.Address), bytes: C.uint64_t(b.Provided), requested: C.uint64_t(b.Requested),
		}
	}
	if C.rerun_hook_restore(C.int(device), C.uint64_t(pool[0]), C.uint64_t(pool[1]), &list[0], C.size_t(len(list))) == 0 {
		return fmt.Errorf("a checkpoint of %d blocks has no place", len(blocks))
	}
	return nil
}

// Capture is a CUDA graph that is being captured.
type Capture struct {
	device int32
	stream uintptr
}

// CaptureBegin begins a capture on a recorded stream, in which no work is captured. Allocations meanwhile
// come from the pool. inputs are bytes of persistent inputs, 0 if unknown.
func (s *Requester) CaptureBegin(device int32, stream int64, name string, pool Pool, inputs int64) (*Capture, error) {
	if stream == 0 { // the default stream of another thread
		stream = -1
	}
	handle, err := s.stream(device, stream)
	if err != nil {
		return nil, err
	}
	text := C.CString(name)
	C.rerun_hook_capture_name(text, C.uint64_t(pool[0]), C.uint64_t(pool[1]), C.uint64_t(inputs))
	C.free(unsafe.Pointer(text))
	defer C.rerun_hook_capture_name(nil, 0, 0, 0)
	if code := C.rerun_capture_begin(s.cuda, C.int(device), C.uintptr_t(handle)); code != 0 {
		return nil, fmt.Errorf("cuStreamBeginCapture: %s", errorName(s.cuda, code))
	}
	return &Capture{device, handle}, nil
}

// End ends a capture.
func (s *Requester) CaptureEnd(c *Capture) error {
	if code := C.rerun_capture_end(s.cuda, C.int(c.device), C.uintptr_t(c.stream)); code != 0 {
		return fmt.Errorf("cuStreamEndCapture: %s", errorName(s.cuda, code))
	}
	return nil
}

// GraphMemory is the hook's number of a physical memory for the graphs of many shapes.
type GraphMemory uint32

// GraphMemoryOpen makes one. Each of its ranges has `reservation` bytes of addresses.
func (s *Requester) GraphMemoryOpen(device int32, reservation int64) (GraphMemory, error) {
	number := C.rerun_hook_graph_memory_open(C.int(device), C.uint64_t(reservation))
	if number == 0 {
		return 0, errors.New(C.GoString(C.rerun_hook_graph_message()))
	}
	return GraphMemory(number), nil
}

// GraphMemoryClose closes one. It ends with its last range.
func (s *Requester) GraphMemoryClose(device int32, memory GraphMemory) {
	if memory != 0 {
		C.rerun_hook_graph_memory_close(C.int(device), C.uint32_t(memory))
	}
}

// GraphShape gives a pool a range of a graph memory. The pool must have had no request yet.
func (s *Requester) GraphShape(device int32, memory GraphMemory, name string, pool Pool) error {
	if C.rerun_hook_graph_shape(C.int(device), C.uint32_t(memory), s.name(name), C.uint64_t(pool[0]), C.uint64_t(pool[1])) != 0 {
		return errors.New(C.GoString(C.rerun_hook_graph_message()))
	}
	return nil
}
