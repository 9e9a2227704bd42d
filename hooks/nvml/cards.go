// Package nvml asks the NVIDIA management library what the GPUs of the machine are and what they have in
// use, and writes that beside a recording while its job runs.
package nvml

// Cards answers for the GPUs of the machine, in the order of run.json's list.
type Cards interface {
	Count() int
	// Memory returns the bytes in use on a GPU, by all processes, and its size.
	Memory(gpu int) (used, total int64, err error)
	// Processes returns the bytes of each process on a GPU, by process id. In a container the driver may list
	// none, or ids from outside. It is nil if the driver does not list them.
	Processes(gpu int) map[int]int64
	Close()
}
