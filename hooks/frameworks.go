package hooks

// A frameworkSetting is what a framework has to be told for a recording of it to work, or
// to show more than one large block.
type frameworkSetting struct {
	name, value string
	// wanted says whether a recording with these options needs it.
	wanted func(base []string, o Options) bool
}

var frameworkSettings = []frameworkSetting{
	// NCCL registers the buffers of CUDA graphs otherwise, which hangs or fails on memory of
	// the VMM calls.
	{"NCCL_GRAPH_REGISTER", "0", func(_ []string, o Options) bool { return o.Allocator != "native" }},
	// JAX takes three quarters of the device in one piece and cuts it up where nobody sees
	// it. Its other allocator asks the driver for each buffer. Who has chosen one keeps it.
	{"XLA_PYTHON_CLIENT_PREALLOCATE", "false", withoutJAXAllocator},
	{"XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_async", withoutJAXAllocator},
}

func withoutJAXAllocator(base []string, _ Options) bool {
	_, chosen := lookup(base, "XLA_PYTHON_CLIENT_ALLOCATOR")
	return !chosen
}

// FrameworkSettings are the NAME=value that [Installation.Environment] adds for the sake of
// frameworks: what changes how a job runs, and should be told. What base sets is not in it.
func FrameworkSettings(base []string, o Options) []string {
	var added []string
	for _, s := range frameworkSettings {
		if _, ok := lookup(base, s.name); !ok && s.wanted(base, o) {
			added = append(added, s.name+"="+s.value)
		}
	}
	return added
}
