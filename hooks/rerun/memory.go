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

// Pool names a private pool of memory as a framework does; the zero Pool is none.
type Pool [2]uint64

// Arena identifies a recorded arena in this process. Requests go to arenas.
type Arena struct {
	device int32
	stream uintptr
	pool   Pool
	tag    string
}

// Arena returns the arena of a device, a stream, a pool and a tag. Stream 0 is the default stream; each
// other number of the recording gets a new stream.
func (s *Requester) Arena(device int32, stream int64, pool Pool, tag string) (*Arena, error) {
	handle, err := s.stream(device, stream)
	if err != nil {
		return nil, err
	}
	return &Arena{device, handle, pool, tag}, nil
}

// Malloc allocates bytes. The error says why that failed.
func (s *Requester) Malloc(a *Arena, bytes int64, context Context) (uintptr, error) {
	if err := s.enter(a.device); err != nil {
		return 0, err
	}
	s.belong(a.tag)
	address := C.rerun_hook_malloc(C.size_t(bytes), C.int(a.device), C.uintptr_t(a.stream), C.uint64_t(a.pool[0]), C.uint64_t(a.pool[1]), C.uint32_t(context))
	if address == 0 {
		return 0, errors.New(C.GoString(C.rerun_hook_oom_message()))
	}
	return uintptr(address), nil
}

// Free frees what Malloc returned for the same arena.
func (s *Requester) Free(a *Arena, address uintptr) error {
	if err := s.enter(a.device); err != nil {
		return err
	}
	C.rerun_hook_free(C.uint64_t(address))
	return nil
}

// Provided returns the size in bytes of the chunk at an address that Malloc returned.
func (s *Requester) Provided(address uintptr) int64 {
	return int64(C.rerun_hook_provided(C.uint64_t(address)))
}

// UseOn: the block is also used on a recorded stream.
func (s *Requester) UseOn(device int32, address uintptr, stream int64) error {
	handle, err := s.stream(device, stream)
	if err == nil {
		C.rerun_hook_record_stream(C.uint64_t(address), C.uintptr_t(handle))
	}
	return err
}

// EmptyCache unmaps the free memory of a device's arenas, like torch.cuda.empty_cache.
func (s *Requester) EmptyCache(device int32) {
	C.rerun_hook_empty_cache(C.int(device))
}

// enter makes the context of a device current, unless it is.
func (s *Requester) enter(device int32) error {
	if s.cuda.current == C.int(device) {
		return nil
	}
	if code := C.rerun_enter(s.cuda, C.int(device)); code != 0 {
		return fmt.Errorf("GPU %d: %s", device, errorName(s.cuda, code))
	}
	return nil
}

type streamKey struct {
	device int32
	number int64
}

func (s *Requester) stream(device int32, number int64) (uintptr, error) {
	if number == 0 {
		return 0, nil
	}
	key := streamKey{device, number}
	if handle, ok := s.streams[key]; ok {
		return handle, nil
	}
	var handle C.uintptr_t
	if code := C.rerun_stream(s.cuda, C.int(device), &handle); code != 0 {
		return 0, fmt.Errorf("a stream for recorded stream %d: %s", number, errorName(s.cuda, code))
	}
	s.streams[key] = uintptr(handle)
	return uintptr(handle), nil
}

// Memory is a kind of memory that libraries allocate from the driver.
type Memory int

// Kinds of Memory, by the call that allocates them.
const (
	DeviceMemory  Memory = C.RERUN_DEVICE  // cuMemAlloc
	ManagedMemory Memory = C.RERUN_MANAGED // cuMemAllocManaged
	HostMemory    Memory = C.RERUN_HOST    // cuMemHostAlloc
	PoolMemory    Memory = C.RERUN_POOL    // cuMemAllocAsync
)

// LibraryMemory is memory that a library allocated from the driver.
type LibraryMemory struct {
	device  int32
	memory  Memory
	stream  uintptr
	address C.uintptr_t
}

// Take allocates memory as a library did. The hook records it with the given context (call=,
// library=) in place of this program's.
func (s *Requester) Take(device int32, memory Memory, stream, bytes int64, context string) (*LibraryMemory, error) {
	handle, err := s.streamOfOthers(device, stream)
	if err != nil {
		return nil, err
	}
	f := &LibraryMemory{device: device, memory: memory, stream: handle}
	defer s.callAs(context)()
	var address C.uintptr_t
	if code := C.rerun_take(s.cuda, C.int(device), uint32(memory), C.uintptr_t(handle), C.size_t(bytes), &address); code != 0 {
		return nil, errors.New(errorName(s.cuda, code))
	}
	f.address = address
	return f, nil
}

// Give frees what Take allocated.
func (s *Requester) Give(f *LibraryMemory, context string) error {
	defer s.callAs(context)()
	if code := C.rerun_give(s.cuda, C.int(f.device), uint32(f.memory), C.uintptr_t(f.stream), f.address); code != 0 {
		return errors.New(errorName(s.cuda, code))
	}
	return nil
}

// streamOfOthers keeps handles that mean the same stream in every process.
func (s *Requester) streamOfOthers(device int32, number int64) (uintptr, error) {
	const perThread = 2
	if number >= 0 && number <= perThread {
		return uintptr(number), nil
	}
	return s.stream(device, number)
}

// callAs has the hook record CUDA calls of this thread with a context, until the returned function is
// called.
func (s *Requester) callAs(context string) func() {
	text := C.CString(context)
	C.rerun_hook_call_as(text)
	C.free(unsafe.Pointer(text))
	return func() { C.rerun_hook_call_as(nil) }
}
