package hooks

// A FrameworkSetting is an environment variable that a framework must have for a recording of it
// to work, or to show more than one large block.
type FrameworkSetting struct {
	Name, Value string
	// Library is what reads it: "NCCL" or "XLA".
	Library string
	// Why it is set, to be read after "because".
	Why string

	// wanted says whether a recording with these options needs it.
	wanted func(base []string, o Options) bool
}

var frameworkSettings = []FrameworkSetting{
	{"NCCL_GRAPH_REGISTER", "0", "NCCL",
		"it registers the buffers of CUDA graphs otherwise, which hangs or fails on memory that memprof maps",
		func(_ []string, o Options) bool { return o.Allocator != "native" }},
	// Who has chosen an allocator of JAX's keeps it.
	{"XLA_PYTHON_CLIENT_PREALLOCATE", "false", "XLA",
		"JAX takes three quarters of the device in one piece otherwise, and divides it where memprof cannot look", withoutJAXAllocator},
	{"XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_async", "XLA",
		"with this allocator JAX asks the driver for each buffer, which memprof records", withoutJAXAllocator},
}

func withoutJAXAllocator(base []string, _ Options) bool {
	_, chosen := lookup(base, "XLA_PYTHON_CLIENT_ALLOCATOR")
	return !chosen
}

// FrameworkSettings are what [Installation.Environment] adds for the sake of frameworks: what
// changes how a job runs, and should be reported. What base sets is not in it.
func FrameworkSettings(base []string, o Options) []FrameworkSetting {
	var added []FrameworkSetting
	for _, s := range frameworkSettings {
		if _, ok := lookup(base, s.Name); !ok && s.wanted(base, o) {
			added = append(added, s)
		}
	}
	return added
}
