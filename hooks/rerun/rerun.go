package rerun

/*
#cgo CFLAGS: -std=c11 -Wall -Wextra -Werror -O2
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "cuda.h"
#include "hook.h"
*/
import "C"

import (
	"fmt"
	"unsafe"
)

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

// Requester makes requests. CUDA contexts belong to threads, so the caller must lock its goroutine to
// one (runtime.LockOSThread) for good. A Requester is never closed.
type Requester struct {
	cuda    *C.struct_rerun_cuda
	streams map[streamKey]uintptr
	tag     string             // the tag of requests now
	names   map[string]*C.char // C strings of phases and tags, kept, since there are few
}

// Open finds the driver and the hook that serves this process. Errors wrap ErrNoDriver or are ErrNoHook.
func Open() (*Requester, error) {
	cuda, err := open(DriverName)
	if err != nil {
		return nil, err
	}
	if C.rerun_hook_open() == 0 {
		return nil, ErrNoHook
	}
	return &Requester{cuda: cuda, streams: map[streamKey]uintptr{}, names: map[string]*C.char{}}, nil
}

// Exit ends the process as a C program does, so that the hook records a regular end. Go's own exit
// would look like a kill.
func (s *Requester) Exit(code int) { C.exit(C.int(code)) }

// Devices returns the number of devices. Their ordinals are 0 to Devices-1.
func (s *Requester) Devices() int {
	var count, version C.int
	if code := C.rerun_count(s.cuda, &version, &count); code != 0 {
		return 0
	}
	return int(count)
}
