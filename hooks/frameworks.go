package hooks

// A FrameworkSetting is an environment variable without which a framework cannot be recorded, or its
// recording shows one large block.
type FrameworkSetting struct {
	Name, Value string
	// Library reads the variable: "NCCL" or "XLA".
	Library string
	// Why it is set, a text that follows "because".
	Why string

	// wanted returns whether a recording with these options needs it.
	wanted func(base []string, o Options) bool
}

var frameworkSettings = []FrameworkSetting{
	{"NCCL_GRAPH_REGISTER", "0", "NCCL",
		"NCCL would register the buffers of CUDA graphs, which hangs or fails on memory that memprof maps",
		func(_ []string, o Options) bool { return o.Allocator != "native" }},
	// An allocator of JAX that the user has chosen stays.
	{"XLA_PYTHON_CLIENT_PREALLOCATE", "false", "XLA",
		"JAX would allocate three quarters of the device as one block, and divide it where memprof cannot see", withoutJAXAllocator},
	{"XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_async", "XLA",
		"with this allocator JAX allocates each buffer from the driver, which memprof records", withoutJAXAllocator},
}

func withoutJAXAllocator(base []string, _ Options) bool {
	_, chosen := lookup(base, "XLA_PYTHON_CLIENT_ALLOCATOR")
	return !chosen
}

// FrameworkSettings returns the settings that [Installation.Environment] adds for frameworks. They
// change how a job runs, so `record` reports them. A variable that base sets is left as it is.
func FrameworkSettings(base []string, o Options) []FrameworkSetting {
	var added []FrameworkSetting
	for _, s := range frameworkSettings {
		if _, ok := lookup(base, s.Name); !ok && s.wanted(base, o) {
			added = append(added, s)
		}
	}
	return added
}
