package report

import (
	"fmt"
	"math"

	"github.com/memprof/memprof/analysis/oomtext"
	"github.com/memprof/memprof/analysis/plain"
)

// Commands that show what a text does not tell.
const (
	whoHolds   = "nvidia-smi --query-compute-apps=pid,used_memory --format=csv"
	recordLive = "memprof record --stacks python -o run -- python3 train.py && memprof report run"
	recordFit  = "memprof record --allocator native -o run -- python3 train.py && memprof fit run"
)

// ExplainAdvice is what follows from an error text, the most useful first. Nothing in it is what the text contradicts.
func ExplainAdvice(f *oomtext.Finding) []Advice {
	switch f.Verdict {
	case oomtext.Fragmentation:
		return adviseFragmentation(f)
	case oomtext.OtherProcess:
		return adviseOthers(f)
	case oomtext.OutsideFramework:
		return append(adviseEngine(f), Advice{"See which libraries hold it", recordLive})
	case oomtext.Limit:
		return adviseLimit(f)
	case oomtext.BugSize:
		return []Advice{{"Print the shapes that the size is computed from; a kernel that failed earlier may have garbled them", "CUDA_LAUNCH_BLOCKING=1 python3 train.py"}}
	case oomtext.NotGPU:
		return adviseNotGPU(f)
	case oomtext.Capacity:
		return adviseCapacity(f)
	}
	return adviseUnknown(f)
}

func adviseFragmentation(f *oomtext.Finding) []Advice {
	proof := Advice{"Compare the settings on the job's own requests", recordFit}
	switch s := f.Settings; {
	case f.Dump != nil:
		return []Advice{
			{"Let the CUDA driver place the chunks: it joins pages that lie apart", "TF_GPU_ALLOCATOR=cuda_malloc_async python3 train.py"},
			{"Free the long-lived chunks between the free ones, or make sizes repeat", "memprof record -o run -- python3 train.py && memprof report run"},
		}
	case s.Expandable:
		return []Advice{{
			"Segments are expandable already: the free bytes are another stream's or a graph pool's; a snapshot shows whose",
			"memprof import snapshot.pickle -o run && memprof report run",
		}, proof}
	case s.NotHere || s.SplitSize:
		return []Advice{{"Keep large blocks whole", variable(f) + "=max_split_size_mb:128 python3 train.py"}, proof}
	}
	return []Advice{{"Let PyTorch's segments grow in place, so that free bytes join", variable(f) + "=expandable_segments:True python3 train.py"}, proof}
}

// variable is the one that configures PyTorch's allocator, as the text names it.
func variable(f *oomtext.Finding) string {
	if f.Settings.Variable != "" {
		return f.Settings.Variable
	}
	return "PYTORCH_CUDA_ALLOC_CONF"
}

func adviseOthers(f *oomtext.Finding) []Advice {
	advice := []Advice{{"Stop the other processes, or use another device", whoHolds}}
	if f.Kind == oomtext.StartupFree {
		return append(advice, utilization(f))
	}
	if f.SameSized >= 2 {
		advice = append(advice, Advice{
			"Processes of one size are often ranks with a context on this device: set the device before the first CUDA call",
			"memprof doctor -- python3 train.py",
		})
	}
	return advice
}

// utilization is the greatest fraction that what is free allows, with a hundredth to spare.
func utilization(f *oomtext.Finding) Advice {
	fits := math.Floor(plain.Ratio(*f.Free, *f.Total)*100)/100 - 0.01
	return Advice{"Or claim no more than is free", fmt.Sprintf("vllm serve MODEL --gpu-memory-utilization %.2f", max(fits, 0.01))}
}

// adviseEngine lowers the fraction of an engine that fills the device by design.
func adviseEngine(f *oomtext.Finding) []Advice {
	switch f.Settings.Engine {
	case oomtext.VLLM:
		return []Advice{{"vLLM fills the device up to its fraction: leave more beside it", "vllm serve MODEL --gpu-memory-utilization " + lower(f.Settings.Utilization, 0.9)}}
	case oomtext.SGLang:
		return []Advice{{"SGLang fills the device up to its fraction: leave more beside it", "python3 -m sglang.launch_server --mem-fraction-static " + lower(f.Settings.Static, 0.88)}}
	}
	return nil
}

// lower is a fraction five hundredths below the set one, or below the default.
func lower(set, otherwise float64) string {
	if set == 0 {
		set = otherwise
	}
	return fmt.Sprintf("%.2f", max(set-0.05, 0.05))
}

func adviseLimit(f *oomtext.Finding) []Advice {
	length := Advice{"Serve shorter sequences: the KV cache of one must fit", "vllm serve MODEL --max-model-len 8192"}
	if f.Settings.Length > 0 {
		length = Advice{"Serve sequences that fit", fmt.Sprintf("vllm serve MODEL --max-model-len %d", f.Settings.Length)}
	}
	raise := Advice{"Or let vLLM use more of the device", "vllm serve MODEL --gpu-memory-utilization 0.95"}
	divide := Advice{"Or divide the model over more devices", "vllm serve MODEL --tensor-parallel-size 2"}
	if f.Dump != nil {
		return []Advice{{"Raise the fraction, or the memory limit, that the program sets", "grep -rn -e memory_fraction -e memory_limit -e MEM_FRACTION ."}}
	}
	high := f.Settings.Utilization >= 0.95
	estimate := adviseEstimate(f)
	switch f.Kind {
	case oomtext.KVBlocks:
		if high {
			return append(estimate, divide, length)
		}
		if len(estimate) == 0 {
			raise.Text = "Let vLLM use more of the device"
		}
		return append(estimate, raise, divide)
	case oomtext.KVLength:
		if high {
			return append(estimate, length, divide)
		}
		return append(estimate, length, raise)
	case oomtext.StartupFree:
		a := utilization(f)
		a.Text = "Claim no more than is free"
		return []Advice{a, {"See what holds the rest", whoHolds}}
	case oomtext.WarmUp:
		return []Advice{
			{"Leave more beside the KV cache", "vllm serve MODEL --gpu-memory-utilization " + lower(f.Settings.Utilization, 0.9)},
			{"Or sample for fewer sequences at once", "vllm serve MODEL --max-num-seqs 256"},
		}
	case oomtext.StaticPool:
		return adviseStatic(f)
	case oomtext.GraphCapture:
		return []Advice{
			{"Leave more beside the KV cache", "python3 -m sglang.launch_server --mem-fraction-static " + lower(f.Settings.Static, 0.88)},
			{"Or capture fewer shapes", "python3 -m sglang.launch_server --cuda-graph-max-bs 32"},
		}
	case oomtext.TokenPool:
		return []Advice{{"Run fewer requests at once", "python3 -m sglang.launch_server --max-running-requests 32"}}
	case oomtext.PrefillTokens:
		return []Advice{{"Lower the tokens of a batch", "text-generation-launcher --max-batch-prefill-tokens 2048"}}
	case oomtext.ArenaLimit:
		return []Advice{{"Raise the limit of the program's allocator, if the device has more", whoHolds}}
	}
	return []Advice{{
		fmt.Sprintf("Raise torch.cuda.set_per_process_memory_fraction: %s are allowed, %s of the device are free", plain.FormatSize(*f.Allowed), plain.FormatSize(*f.Free)),
		whoHolds,
	}}
}

// adviseEstimate leaves out vLLM's estimate of its CUDA graphs, where that takes what the KV cache lacks. The estimate grows with the number of
// graphs, as if each had a pool of its own; they share one.
func adviseEstimate(f *oomtext.Finding) []Advice {
	missing := int64(1 << 30)
	if f.Requested != nil && f.Available != nil {
		missing = *f.Requested - *f.Available
	}
	if f.Settings.Graphs == nil || *f.Settings.Graphs < missing {
		return nil
	}
	return []Advice{{
		"An estimate sets " + plain.FormatSize(*f.Settings.Graphs) + " aside for CUDA graphs, often far too much: leave it out, and room for the graphs",
		"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0 vllm serve MODEL --gpu-memory-utilization " + lower(f.Settings.Utilization, 0.9),
	}}
}

func adviseStatic(f *oomtext.Finding) []Advice {
	if f.Settings.Static >= 0.95 {
		return []Advice{{"Divide the model over more devices", "python3 -m sglang.launch_server --tp 2"}}
	}
	set := f.Settings.Static
	if set == 0 {
		set = 0.88
	}
	return []Advice{
		{"Give weights and KV cache more of the device", fmt.Sprintf("python3 -m sglang.launch_server --mem-fraction-static %.2f", min(set+0.05, 0.95))},
		{"Or divide the model over more devices", "python3 -m sglang.launch_server --tp 2"},
	}
}

func adviseNotGPU(f *oomtext.Finding) []Advice {
	switch {
	case f.Vendor != "":
		return []Advice{{"memprof profiles CUDA devices only: ask the vendor's own tool what holds the memory", vendorTool(f.Vendor)}}
	case f.Kind == oomtext.HostKilled:
		return []Advice{{"See whom the kernel killed; use fewer workers, or give the job more host memory", "dmesg -T | grep -i 'out of memory'"}}
	}
	return []Advice{{"Load less at once, use fewer workers, or give the job more host memory", "free -h"}}
}

func vendorTool(vendor string) string {
	switch vendor {
	case "HIP":
		return "rocm-smi --showmeminfo vram --showpids"
	case "XPU":
		return "xpu-smi ps"
	case "NPU":
		return "npu-smi info"
	case "MPS":
		return "top -o mem"
	}
	return "ps aux"
}

func adviseCapacity(f *oomtext.Finding) []Advice {
	if advice := adviseEngine(f); len(advice) > 0 {
		return append(advice, Advice{"See which modules and lines hold what is live", recordLive})
	}
	first := Advice{"Make what is live smaller: batch, sequence length, precision", recordLive}
	switch {
	case f.Requested != nil && f.Total != nil && *f.Requested >= *f.Total/5:
		first.Text = "Make this one tensor smaller, or compute it in parts: batch, sequence length, resolution"
	case f.Settings.Training:
		first.Text = "Make what is live smaller: batch, activation checkpointing, sharded optimizer"
	}
	advice := []Advice{first}
	if s := f.Settings; f.Framework == oomtext.Torch && !s.Expandable && !s.NotHere && !s.SplitSize && f.ReservedUnallocated != nil && f.Free != nil &&
		*f.Free+*f.ReservedUnallocated >= *f.Requested {
		advice = append(advice, Advice{"Free and cached together would hold it: segments that grow in place may, too", variable(f) + "=expandable_segments:True python3 train.py"})
	}
	return advice
}

func adviseUnknown(f *oomtext.Finding) []Advice {
	advice := append(adviseEngine(f), Advice{"See what holds the device while the job runs", whoHolds})
	switch f.Framework {
	case oomtext.JAX:
		advice = append(advice, Advice{"Let XLA log the state of its allocator, and explain that log", "TF_CPP_MIN_LOG_LEVEL=0 python3 train.py 2>&1 | memprof explain"})
	case oomtext.TensorFlow:
		if f.Dump == nil {
			advice = append(advice, Advice{"Keep the whole log: TensorFlow writes the state of its allocator before the error", "python3 train.py 2>&1 | memprof explain"})
		}
	case oomtext.NCCL, oomtext.CUDA:
		advice = append(advice, Advice{"Record who allocates, libraries too", recordLive})
	case oomtext.Torch:
		if f.Allocated == nil {
			advice = append(advice, Advice{"Keep the whole line of the error: its figures tell whose the bytes are", "python3 train.py 2>&1 | memprof explain"})
		}
	}
	return advice
}
