package oomtext

// Framework is whose error text it is: the allocator or engine that wrote it, not the program around it.
type Framework string

const (
	Torch      Framework = "torch"
	VLLM       Framework = "vllm"
	SGLang     Framework = "sglang"
	JAX        Framework = "jax"
	TensorFlow Framework = "tensorflow"
	NCCL       Framework = "nccl"
	CUDA       Framework = "cuda" // the runtime, the driver, cuBLAS, cuDNN
	Host       Framework = "host" // the memory of the host
	Other      Framework = "other"
)

// Verdict is the cause that the figures of a text show. The package comment defines each.
type Verdict string

const (
	Capacity         Verdict = "capacity"
	Fragmentation    Verdict = "fragmentation"
	OtherProcess     Verdict = "other_process"
	OutsideFramework Verdict = "outside_framework"
	Limit            Verdict = "limit"
	BugSize          Verdict = "bug_size"
	NotGPU           Verdict = "not_gpu"
	Unknown          Verdict = "unknown"
)

// Finding is one error text and what it says. Figures are bytes, nil where the text does not tell them.
type Finding struct {
	Framework Framework `json:"framework"`
	Verdict   Verdict   `json:"verdict"`
	Line      int       `json:"-"` // of the log, from 1, where the error begins
	Errors    int       `json:"-"` // in the log, this one included
	Device    string    `json:"-"` // its number in the error; "" if the text names none
	Vendor    string    `json:"-"` // of a device that is not CUDA's: "HIP", "XPU", "TPU", …; "" otherwise

	Requested           *int64 `json:"requested"`
	Total               *int64 `json:"total"`                // of the device; of TensorFlow's allocator where only that is known
	Free                *int64 `json:"free"`                 // on the device
	Allocated           *int64 `json:"allocated"`            // by the framework, live
	ReservedUnallocated *int64 `json:"reserved_unallocated"` // by the framework, not live: its cache, its free chunks
	ThisProcess         *int64 `json:"this_process"`         // on the device, with what is outside the framework
	OtherProcesses      *int64 `json:"other_processes"`      // those that the text lists, together
	Allowed             *int64 `json:"-"`                    // by a setting
	Available           *int64 `json:"-"`                    // of KV cache, or of what the allocator's limit leaves unmapped
	SameSized           int    `json:"-"`                    // the most other processes with a context that hold the same number of bytes

	Kind     Kind     `json:"-"`
	Settings Settings `json:"-"`
	Dump     *Dump    `json:"-"` // of a BFC allocator; nil without one

	class  int
	absurd bool // the text itself says that the size cannot be
}

// Kind is which text it is, where advice depends on more than the verdict.
type Kind int

const (
	Allocation    Kind = iota // a request to an allocator of device memory
	KVBlocks                  // vLLM has nothing left for its KV cache
	KVLength                  // vLLM's KV cache does not hold one sequence of the greatest length
	StartupFree               // vLLM found less free memory than its fraction
	WarmUp                    // vLLM's sampler, after its KV cache was allocated
	StaticPool                // SGLang has nothing left for its KV cache
	GraphCapture              // SGLang, after its KV cache was allocated
	TokenPool                 // SGLang's KV cache has too few free slots
	PrefillTokens             // text-generation-inference
	ArenaLimit                // ONNX Runtime, RMM, Paddle: a limit that is set
	Library                   // NCCL, cuBLAS, cuDNN: outside the framework's allocator
	HostMemory
	HostKilled // the kernel killed a process
)

// Settings are what the log says of the job's configuration.
type Settings struct {
	Expandable  bool    // expandable_segments:True is set, not only advised
	NotHere     bool    // expandable segments are not supported: Windows, or PyTorch says so
	Variable    string  // the variable of PyTorch's allocator that the text names
	SplitSize   bool    // the text is of PyTorch before 2.1, which has no expandable segments
	Utilization float64 // vLLM's gpu_memory_utilization; 0 if unknown
	Static      float64 // SGLang's mem_fraction_static; 0 if unknown
	Fraction    float64 // of Paddle; 0 if unknown
	Graphs      *int64  // set aside for CUDA graphs by vLLM's estimate, in bytes; nil if unknown
	Length      int64   // greatest length that vLLM says would fit; 0 if unknown
	Engine      Framework
	Training    bool // a backward pass is in the log

	total           *int64 // of the device, as vLLM's profile says it
	jax, tensorflow bool   // whose program the log is of
}

func known(n int64) *int64 { return &n }

// or returns the figure, or a default where the text does not tell it.
func or(figure *int64, otherwise int64) int64 {
	if figure == nil {
		return otherwise
	}
	return *figure
}
