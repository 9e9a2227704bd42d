package oomtext

import (
	"bytes"
	"regexp"
	"slices"
	"sync"
)

// Classes of errors, by how much their text says.
const (
	hint        = iota + 1 // words that usually mean it
	bare                   // that memory ran out
	growth                 // that the driver refused the allocator more, which it may survive
	withSize               // how much was requested
	program                // what another program says of its own memory
	withFigures            // the device's figures, or what a refusal means
	wrapping               // vLLM's and SGLang's errors that another one caused
)

// pattern compiles at its first use. Every command starts with this package, and few commands read a text.
type pattern func() *regexp.Regexp

func compiled(text string) pattern {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// form is one kind of error. Its anchor is searched in text without white space, so it has none, and it begins with constant text,
// which regexp finds quickly.
type form struct {
	class  int
	anchor pattern
	read   func(*match) *Finding // nil if it is none after all
}

// match is where an anchor was found.
type match struct {
	groups []string
	before []byte // at most lookBehind bytes
	after  []byte // from the anchor on, at most errorBytes
}

func (m *match) size(group int) *int64 { return parseSize(m.groups[group]) }

func anchored(class int, anchor string, read func(*match) *Finding) form {
	return form{class, compiled(anchor), read}
}

// bareError is an error without figures.
func bareError(framework Framework, vendor string, kind Kind) func(*match) *Finding {
	return func(*match) *Finding { return &Finding{Framework: framework, Vendor: vendor, Kind: kind} }
}

// requests is an error whose first group is the size of the request, in bytes without a unit or with one.
func requests(framework Framework, vendor string, kind Kind) func(*match) *Finding {
	return func(m *match) *Finding {
		f := &Finding{Framework: framework, Vendor: vendor, Kind: kind}
		if f.Requested = wholeBytes(m.groups[0]); f.Requested == nil {
			f.Requested = m.size(0)
		}
		return f
	}
}

var forms = slices.Concat(torchForms, engineForms, xlaForms, driverForms, hostForms, otherForms)

// driverForms are errors of NCCL and of CUDA itself.
var driverForms = []form{
	anchored(withSize, `FailedtoCUDA[mc]alloc(?:async)?(\d+)bytes`, func(m *match) *Finding {
		return &Finding{Framework: NCCL, Kind: Library, Requested: wholeBytes(m.groups[0])}
	}),
	anchored(growth, `Cudafailure(?:2)?'outofmemory'`, bareError(NCCL, "", Library)),
	anchored(bare, `CUDA(?:driver|runtime)?error(?:\(2\))?:outofmemory`, bareError(CUDA, "", Allocation)),
	anchored(bare, `cudaruntimeerr(?:or)?\(2\):outofmemory`, bareError(CUDA, "", Allocation)),
	anchored(bare, `error=2:outofmemory`, bareError(CUDA, "", Allocation)),
	anchored(bare, `CUDA_ERROR_OUT_OF_MEMORY`, bareError(CUDA, "", Allocation)),
	anchored(bare, `cudaErrorMemoryAllocation`, bareError(CUDA, "", Allocation)),
	anchored(bare, `CUDA(?:driver|runtime)?(?:[eE]rror|failure)\W{0,2}(?:code)?\W?2\W.{0,60}?outofmemory`, bareError(CUDA, "", Allocation)),
	anchored(bare, `CUDAfailedwitherroroutofmemory`, bareError(CUDA, "", Allocation)),
	anchored(bare, `cudaMallocfailed:outofmemory`, bareError(CUDA, "", Allocation)),
	anchored(bare, `CUBLAS_STATUS_ALLOC_FAILED`, bareError(CUDA, "", Library)),
	anchored(bare, `CUDNN_STATUS_ALLOC_FAILED`, bareError(CUDA, "", Library)),
	anchored(hint, `utofmemory`, func(m *match) *Finding {
		near := bytes.ToLower(slices.Concat(m.before[max(len(m.before)-60, 0):], m.after[:min(len(m.after), 60)]))
		if !nearDevice().Match(near) || survived(m) {
			return nil
		}
		return &Finding{Framework: CUDA}
	}),
	anchored(bare, `HIPerror:outofmemory`, bareError(Torch, "HIP", Allocation)),
	anchored(bare, `hipErrorOutOfMemory`, bareError(Other, "HIP", Allocation)),
	anchored(bare, `UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY`, bareError(Torch, "XPU", Allocation)),
}

var nearDevice = compiled(`cuda|gpu|cumem|vram`)

// hostForms are refusals of the host's memory.
var hostForms = []form{
	anchored(withFigures, `DefaultCPUAllocator:(?:can'tallocatememory|notenoughmemory):youtriedtoallocate(\d+)bytes`, requests(Host, "", HostMemory)),
	anchored(program, `Unabletoallocate(\d+\.?\d*[KMGTP]iB)foranarray`, requests(Host, "", HostMemory)),
	anchored(program, `failedtoalloc(?:ate)?(\d+)bytesonhost`, requests(Host, "", HostMemory)),
	anchored(program, `failedtoallocate([\d.,]+MiB)ofpinnedmemory`, requests(Host, "", HostMemory)),
	anchored(program, `iskilledbysignal:Killed`, bareError(Host, "", HostKilled)),
	anchored(program, `iskilledbysignal:Buserror`, bareError(Host, "", HostMemory)),
	anchored(program, `Outofmemory:Kill(?:ed)?process`, bareError(Host, "", HostKilled)),
	anchored(program, `Memorycgroupoutofmemory`, bareError(Host, "", HostKilled)),
	anchored(program, `oom-kill(?::|event)`, bareError(Host, "", HostKilled)),
	anchored(program, `requiresmoresystemmemory\(`+size+`\)thanisavailable\(`+size+`\)`, func(m *match) *Finding {
		return &Finding{Framework: Host, Kind: HostMemory, Requested: m.size(0), Free: m.size(1)}
	}),
	anchored(program, `killedduetothenoderunninglowonmemory`, bareError(Host, "", HostKilled)),
	anchored(program, `insufficientsharedmemory`, bareError(Host, "", HostMemory)),
	anchored(program, `OutOfMemoryError:Javaheapspace`, bareError(Host, "", HostMemory)),
	anchored(hint, `exitcode:-9`, bareError(Host, "", HostKilled)),
	anchored(hint, `Signal9\(SIGKILL\)`, bareError(Host, "", HostKilled)),
	anchored(hint, `Killedpython`, bareError(Host, "", HostKilled)),
	anchored(program, `oom_killevent`, bareError(Host, "", HostKilled)),
	anchored(program, `OOMKilled`, bareError(Host, "", HostKilled)),
	anchored(bare, `Cannotallocatememory`, bareError(Host, "", HostMemory)),
	anchored(bare, `MemoryError`, func(m *match) *Finding {
		if n := len(m.before); n > 0 && (m.before[n-1] >= 'a' && m.before[n-1] <= 'z' || m.before[n-1] >= 'A' && m.before[n-1] <= 'Z') {
			return nil // torch.OutOfMemoryError
		}
		return &Finding{Framework: Host, Kind: HostMemory}
	}),
	anchored(bare, `std::bad_alloc`, bareError(Host, "", HostMemory)),
}

// otherForms are errors of other programs on CUDA devices.
var otherForms = []form{
	anchored(program, `allocating([\d.]+MiB)ondevice(\d+):cudaMallocfailed:outofmemory(?:.{0,80}?failedtoallocate(CUDA|ROCm)\d+bufferofsize(\d+))?`, func(m *match) *Finding {
		f := &Finding{Framework: Other, Requested: m.size(0), Device: m.groups[1]}
		if m.groups[3] != "" {
			f.Requested = wholeBytes(m.groups[3])
		}
		if m.groups[2] == "ROCm" {
			f.Vendor = "HIP"
		}
		return f
	}),
	anchored(program, `utofmemorytoallocate(\d+)bytes(?:\(total(\d+)bytes(,limitsetto)?)?`, cupy), // CuPy 4 to 6
	anchored(program, `utofmemoryallocating([\d,]+)bytes\(allocatedsofar:([\d,]+)bytes(,limitsetto)?`, cupy),
	anchored(program, `utofmemoryerroron([GXN]PU)(\d+)\.Cannotallocate`+size+`(?:GPU)?memory(?:on[GXN]PU\d+)?,(?:`+size+`memoryhasbeenallocatedand)?availablememoryis(?:only)?`+size, func(m *match) *Finding {
		f := &Finding{Framework: Other, Device: m.groups[1], Requested: m.size(2), Allocated: m.size(3), Free: m.size(4)}
		if m.groups[0] != "GPU" {
			f.Vendor = m.groups[0]
		}
		if paddleFraction().Match(m.after) {
			f.Kind = ArenaLimit
		}
		return f
	}),
	anchored(program, `AllocateRawInternal.{0,120}?Availablememoryof(\d+)issmallerthanrequestedbytesof(\d+)`, func(m *match) *Finding {
		return &Finding{Framework: Other, Kind: ArenaLimit, Requested: wholeBytes(m.groups[1]), Available: wholeBytes(m.groups[0])}
	}),
	anchored(program, `AllocateRawInternal.{0,120}?Failedtoallocatememoryforrequestedbufferofsize(\d+)`, requests(Other, "", Allocation)),
	anchored(program, `RequestedamountofGPUmemory\((\d+)bytes\)couldnotbeallocated`, requests(Other, "", Allocation)),
	anchored(program, `Requestedsizewas(\d+)bytes`, requests(Other, "", Allocation)),
	anchored(program, `Devicememoryallocationofsize(\d+)failed`, requests(Other, "", Allocation)),
	anchored(program, `Maximumpoolsizeexceeded`, bareError(Other, "", ArenaLimit)),
	anchored(program, `Notenoughmemorytohandle\d+(?:totaltokenswith\d+)?prefilltokens`, bareError(Other, "", PrefillTokens)),
}

var paddleFraction = compiled(`FLAGS_fraction_of_gpu_memory_to_useis0`)

// cupy has the request, what its pool holds, and whether a limit is set.
func cupy(m *match) *Finding {
	f := &Finding{Framework: Other, Requested: wholeBytes(m.groups[0]), Allocated: wholeBytes(m.groups[1])}
	if m.groups[2] != "" {
		f.Kind = ArenaLimit
	}
	return f
}
