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

// belong has requests belong to a tag, "" for none, from now on.
func (s *Requester) belong(tag string) {
	if s.tag == tag {
		return
	}
	if s.tag != "" {
		C.rerun_hook_region_end(s.hook)
	}
	if s.tag = tag; tag != "" {
		C.rerun_hook_region_begin(s.hook, s.name(tag), 0)
	}
}

// Pause unmaps the memory of a tag, with a copy of its content on the host if it is backed up. Without a hook there are no tags.
func (s *Requester) Pause(tag string, backedUp bool) error {
	if s.hook == nil {
		return nil
	}
	if backedUp {
		C.rerun_hook_region_begin(s.hook, s.name(tag), 1)
		C.rerun_hook_region_end(s.hook)
	}
	if C.rerun_hook_pause(s.hook, s.name(tag)) != 0 {
		return errors.New(C.GoString(C.rerun_hook_pause_message(s.hook)))
	}
	return nil
}

// Resume takes memory for a tag again.
func (s *Requester) Resume(tag string) error {
	if s.hook != nil && C.rerun_hook_resume(s.hook, s.name(tag)) != 0 {
		return errors.New(C.GoString(C.rerun_hook_pause_message(s.hook)))
	}
	return nil
}

// PoolBegin holds a pool, from where a stretch of the program allocates.
func (s *Requester) PoolBegin(device int32, pool Pool) {
	if s.hook != nil {
		C.rerun_hook_pool_begin(s.hook, C.int(device), C.uint64_t(pool[0]), C.uint64_t(pool[1]))
	}
}

// PoolEnd ends the stretch; the pool is still held.
func (s *Requester) PoolEnd(device int32, pool Pool) {
	if s.hook != nil {
		C.rerun_hook_pool_end(s.hook, C.int(device), C.uint64_t(pool[0]), C.uint64_t(pool[1]))
	}
}

// ReleasePool ends a pool, whoever holds it.
func (s *Requester) ReleasePool(device int32, pool Pool) {
	if s.hook != nil {
		C.rerun_hook_release_pool(s.hook, C.int(device), C.uint64_t(pool[0]), C.uint64_t(pool[1]))
	}
}

// Checkpoint notes the live blocks of a pool, how many and their bytes.
func (s *Requester) Checkpoint(device int32, pool Pool, blocks, bytes int64) {
	if s.hook != nil {
		C.rerun_hook_checkpoint(s.hook, C.int(device), C.uint64_t(pool[0]), C.uint64_t(pool[1]), C.uint64_t(blocks), C.uint64_t(bytes))
	}
}

// Restored is a block of a checkpoint: what Malloc and Provided returned for it.
type Restored struct {
	Arena               *Arena
	Address             uintptr
	Provided, Requested int64
}

// Restore makes blocks of a pool live at their places again, after all of its blocks were freed.
func (s *Requester) Restore(device int32, pool Pool, blocks []Restored) error {
	if s.hook == nil || len(blocks) == 0 {
		return nil
	}
	list := make([]C.struct_rerun_restored, len(blocks))
	for i, b := range blocks {
		list[i] = C.struct_rerun_restored{
			stream: C.uintptr_t(b.Arena.stream), address: C.uint64_t(b.Address), bytes: C.uint64_t(b.Provided), requested: C.uint64_t(b.Requested),
		}
	}
	if C.rerun_hook_restore(s.hook, C.int(device), C.uint64_t(pool[0]), C.uint64_t(pool[1]), &list[0], C.size_t(len(list))) == 0 {
		return fmt.Errorf("a checkpoint of %d blocks has no place", len(blocks))
	}
	return nil
}

// Capture is a CUDA graph that is being captured.
type Capture struct {
	device int32
	stream uintptr
}

// CaptureBegin begins a capture on a recorded stream, of nothing: what matters is when it is.
// It allocates from the pool; inputs are bytes of persistent inputs, 0 if that is not known.
func (s *Requester) CaptureBegin(device int32, stream int64, name string, pool Pool, inputs int64) (*Capture, error) {
	if stream == 0 { // the default stream of another thread
		stream = -1
	}
	handle, err := s.stream(device, stream)
	if err != nil {
		return nil, err
	}
	if s.hook != nil {
		text := C.CString(name)
		C.rerun_hook_capture_name(s.hook, text, C.uint64_t(pool[0]), C.uint64_t(pool[1]), C.uint64_t(inputs))
		C.free(unsafe.Pointer(text))
		defer C.rerun_hook_capture_name(s.hook, nil, 0, 0, 0)
	}
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

// GraphMemory is one physical memory for the graphs of many shapes, by the hook's number for it.
type GraphMemory uint32

// GraphMemoryOpen makes one, each of whose ranges has so many bytes of addresses.
func (s *Requester) GraphMemoryOpen(device int32, reservation int64) (GraphMemory, error) {
	if s.hook == nil {
		return 0, nil
	}
	number := C.rerun_hook_graph_memory_open(s.hook, C.int(device), C.uint64_t(reservation))
	if number == 0 {
		return 0, errors.New(C.GoString(C.rerun_hook_graph_message(s.hook)))
	}
	return GraphMemory(number), nil
}

// GraphMemoryClose ends one, with its last range.
func (s *Requester) GraphMemoryClose(device int32, memory GraphMemory) {
	if s.hook != nil && memory != 0 {
		C.rerun_hook_graph_memory_close(s.hook, C.int(device), C.uint32_t(memory))
	}
}

// GraphShape gives a pool a range of a graph memory, before its first request.
func (s *Requester) GraphShape(device int32, memory GraphMemory, name string, pool Pool) error {
	if s.hook != nil && C.rerun_hook_graph_shape(s.hook, C.int(device), C.uint32_t(memory), s.name(name), C.uint64_t(pool[0]), C.uint64_t(pool[1])) != 0 {
		return errors.New(C.GoString(C.rerun_hook_graph_message(s.hook)))
	}
	return nil
}
