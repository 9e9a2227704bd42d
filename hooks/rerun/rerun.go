// Package rerun makes a recording's requests again, through the CUDA API of the machine
// or, inside `memprof record`, through the capture hook that serves the process.
//
// It also asks a driver what it can do, for `memprof doctor` and for the choice between
// the real and the simulated driver. CUDA is opened at run time and never linked: the
// same binary runs where there is none.
package rerun

/*
#cgo CFLAGS: -std=c11 -Wall -Wextra -Werror -O2
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "cuda.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"unsafe"
)

// DriverName is what the dynamic linker looks for: the installed driver, or under
// `record --device sim` the simulated one.
const DriverName = "libcuda.so.1"

// ErrNoDriver is wrapped by errors that say a machine has no usable CUDA driver.
var ErrNoDriver = errors.New("no usable CUDA driver")

// Device is what a driver says of one GPU. Sizes are bytes; -1 stands for "would not say".
type Device struct {
	Name        string
	Total       int64
	Granularity int64 // of physical handles
	VMM         bool  // has the virtual memory management calls
	RDMA        bool  // GPUDirect RDMA works with them
}

// Probe opens the driver at path and describes its devices. The version is CUDA's,
// 1000*major + 10*minor.
func Probe(path string) (version int, devices []Device, err error) {
	cuda, err := open(path)
	if err != nil {
		return 0, nil, err
	}
	defer C.free(unsafe.Pointer(cuda))
	var count, number C.int
	if code := C.rerun_count(cuda, &number, &count); code != 0 {
		return 0, nil, fmt.Errorf("%w: cuDeviceGetCount: %s", ErrNoDriver, errorName(cuda, code))
	}
	for ordinal := range int(count) {
		var described C.struct_rerun_device
		C.rerun_describe(cuda, C.int(ordinal), &described)
		devices = append(devices, Device{
			Name:        C.GoString(&described.name[0]),
			Total:       int64(described.total),
			Granularity: int64(described.granularity),
			VMM:         described.vmm == 1,
			RDMA:        described.rdma == 1,
		})
	}
	return int(number), devices, nil
}

func open(path string) (*C.struct_rerun_cuda, error) {
	cuda := (*C.struct_rerun_cuda)(C.calloc(1, C.sizeof_struct_rerun_cuda))
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	why := (*C.char)(C.calloc(1, 512))
	defer C.free(unsafe.Pointer(why))
	switch code := C.rerun_open_driver(cuda, name, why, 512); {
	case code < 0:
		C.free(unsafe.Pointer(cuda))
		return nil, fmt.Errorf("%w: %s", ErrNoDriver, C.GoString(why))
	case code > 0:
		err := fmt.Errorf("%w: %s: cuInit: %s", ErrNoDriver, path, errorName(cuda, code))
		C.free(unsafe.Pointer(cuda))
		return nil, err
	}
	return cuda, nil
}

func errorName(cuda *C.struct_rerun_cuda, code C.int) string {
	return fmt.Sprintf("%s (%d)", C.GoString(C.rerun_error_name(cuda, code)), int(code))
}

// Requester makes requests. CUDA contexts belong to threads: the caller locks its goroutine
// to one (runtime.LockOSThread) for its life. It is never closed; its
// memory is the process's.
type Requester struct {
	cuda    *C.struct_rerun_cuda
	streams map[streamKey]unsafe.Pointer
	context string
	labels  map[string]*C.char // strings that were handed to C, kept: there are few
}

type streamKey struct {
	device int32
	number int64
}

// Open finds the driver, the runtime ($MEMPROF_CUDART, or libcudart under its usual names)
// and the hook. Errors wrap ErrNoDriver.
func Open() (*Requester, error) {
	cuda, err := open(DriverName)
	if err != nil {
		return nil, err
	}
	names := []string{"libcudart.so", "libcudart.so.13", "libcudart.so.12", "/usr/local/cuda/lib64/libcudart.so"}
	if own := os.Getenv("MEMPROF_CUDART"); own != "" {
		names = []string{own}
	}
	list := (**C.char)(C.calloc(C.size_t(len(names)+1), C.size_t(unsafe.Sizeof(uintptr(0)))))
	for i, name := range names { // never freed: the requester keeps the one that opened
		*(**C.char)(unsafe.Add(unsafe.Pointer(list), i*int(unsafe.Sizeof(uintptr(0))))) = C.CString(name)
	}
	C.rerun_open_allocators(cuda, list)
	C.free(unsafe.Pointer(list))
	return &Requester{cuda: cuda, streams: map[streamKey]unsafe.Pointer{}, labels: map[string]*C.char{}}, nil
}

// Through names what answers the requests.
func (s *Requester) Through() string {
	switch {
	case s.Hooked():
		return "the capture hook"
	case s.cuda.runtime != nil:
		return "cudaMalloc of " + C.GoString(s.cuda.runtime)
	}
	return "cuMemAlloc of " + DriverName
}

// Exit ends the process as a C program does. Under the hook this tells it that the process
// came to its end; Go's own exit looks to it like a kill.
func (s *Requester) Exit(code int) { C.exit(C.int(code)) }

// Hooked says whether the capture hook answers the requests.
func (s *Requester) Hooked() bool { return s.cuda.hooked != 0 }

// Malloc asks for bytes on a device, for the stream the recording knew by that number: 0
// is the default stream, each other number gets a stream of its own. The error says why
// the request was refused.
func (s *Requester) Malloc(device int32, stream, bytes int64) (uintptr, error) {
	handle, err := s.stream(device, stream)
	if err != nil {
		return 0, err
	}
	var address C.uintptr_t
	code := C.rerun_malloc(s.cuda, C.int(device), handle, C.size_t(bytes), &address)
	if code == 0 {
		return uintptr(address), nil
	}
	if s.Hooked() {
		return 0, errors.New(C.GoString(C.rerun_oom_message(s.cuda)))
	}
	return 0, errors.New(errorName(s.cuda, code))
}

// Free gives back what Malloc returned for the same device and stream.
func (s *Requester) Free(device int32, stream int64, address uintptr) error {
	handle, err := s.stream(device, stream)
	if err != nil {
		return err
	}
	if code := C.rerun_free(s.cuda, C.int(device), handle, C.uintptr_t(address)); code != 0 {
		return errors.New(errorName(s.cuda, code))
	}
	return nil
}

func (s *Requester) stream(device int32, number int64) (unsafe.Pointer, error) {
	if number == 0 {
		return nil, nil
	}
	key := streamKey{device, number}
	if handle, ok := s.streams[key]; ok {
		return handle, nil
	}
	var handle unsafe.Pointer
	if code := C.rerun_stream(s.cuda, C.int(device), &handle); code != 0 {
		return nil, fmt.Errorf("a stream for recorded stream %d: %s", number, errorName(s.cuda, code))
	}
	s.streams[key] = handle
	return handle, nil
}

// Iteration marks the end of an iteration, if a hook listens.
func (s *Requester) Iteration(label string) { C.rerun_iteration(s.cuda, s.text(label)) }

// PhaseBegin marks the beginning of a phase, if a hook listens.
func (s *Requester) PhaseBegin(name string) { C.rerun_phase(s.cuda, s.text(name), 1) }

// PhaseEnd marks the end of a phase, if a hook listens.
func (s *Requester) PhaseEnd(name string) { C.rerun_phase(s.cuda, s.text(name), 0) }

// SetContext says what the next requests belong to, if a hook listens.
func (s *Requester) SetContext(context string) {
	if context == s.context {
		return
	}
	s.context = context
	C.rerun_context(s.cuda, s.text(context))
}

func (s *Requester) text(value string) *C.char {
	if text, ok := s.labels[value]; ok {
		return text
	}
	text := C.CString(value)
	s.labels[value] = text
	return text
}
