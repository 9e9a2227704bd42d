package nvml

import "fmt"

// State is what the management library says of the machine.
type State struct {
	Driver string // version
	GPUs   []GPU
}

// GPU is one card. Sizes are bytes.
type GPU struct {
	Name, UUID  string
	Total, Used int64
	Sliced      bool // in MIG mode: a job sees a slice of it
}

// FormatCUDA writes a version of CUDA: "13.0" for 13000.
func FormatCUDA(version int) string {
	return fmt.Sprintf("%d.%d", version/1000, version%1000/10)
}
