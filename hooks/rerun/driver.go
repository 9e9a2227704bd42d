// Package rerun repeats the allocations of a recording, through the capture hook that `memprof record` has put into
// the process.
//
// It also reads the properties of a driver, for `memprof doctor` and for the choice between the
// real and the simulated driver. CUDA is loaded at run time and never linked, so the same binary
// runs on machines without CUDA.
package rerun

import "errors"

// DriverName is the library that the dynamic linker finds: the installed driver, or under
// `record --device sim` the simulated one.
const DriverName = "libcuda.so.1"

// ErrNoDriver: the machine has no usable CUDA driver.
var ErrNoDriver = errors.New("no usable CUDA driver")

// ErrNoHook: nothing would serve the requests.
var ErrNoHook = errors.New("memprof record does not run this process")

// Device has the properties of one GPU. Sizes are bytes; -1 if the driver does not give one.
type Device struct {
	Name        string
	Total       int64
	Granularity int64 // of physical handles
	VMM         bool  // has the virtual memory management calls
	RDMA        bool  // GPUDirect RDMA works with them
}

// ErrNoGlibc is that of a memprof that was built without cgo, so that it runs where there is no glibc: on Alpine, say.
var ErrNoGlibc = errors.New("this is the static memprof, for machines without glibc: the capture hook and NVIDIA's libraries " +
	"need glibc, so it cannot record or rerun, but it reads recordings (report, check, verify, diff, fit); " +
	"on a machine with glibc 2.28 or newer, use the other memprof")
