package oomtext

const (
	gib = 1 << 30

	largestDevice  = 288e9       // bytes of the largest GPUs sold, 2025
	contextBytes   = 1 * gib     // more than a CUDA context takes with its kernels, cuBLAS and cuDNN: 0.5 to 0.8 GiB
	unlistedBytes  = 3 * gib / 2 // below that, what is in no figure may be the driver's own, or a desktop's
	unlistedShare  = 0.15
	startableShare = 0.85 // vLLM starts at such a utilization if as much is free
)

// judge sets the verdict.
func (f *Finding) judge() {
	if f.Total == nil && f.Framework == VLLM {
		f.Total = f.Settings.total
	}
	f.Verdict = f.verdict()
}

func (f *Finding) verdict() Verdict {
	r := or(f.Requested, 0)
	switch {
	case f.Vendor != "" || f.Framework == Host:
		return NotGPU
	case f.Framework == VLLM || f.Framework == SGLang:
		return f.engineVerdict()
	case f.absurd || r >= 1<<40 || f.Total == nil && float64(r) > largestDevice || f.Total != nil && f.Dump == nil && r/10 > *f.Total:
		return BugSize
	case f.Kind == ArenaLimit || f.Kind == PrefillTokens:
		return Limit
	case f.Dump != nil:
		return f.dumpVerdict(r)
	case f.Framework == TensorFlow:
		return f.startVerdict(r)
	case f.Framework == JAX && f.Available != nil: // XLA's plan needs more than the device has
		return Capacity
	case f.Framework == Torch && f.Total != nil && f.Requested != nil:
		return f.torchVerdict(r)
	}
	return Unknown
}

// engineVerdict: the fraction binds, unless others hold so much that no usual fraction would do.
func (f *Finding) engineVerdict() Verdict {
	if f.Kind == StartupFree && float64(*f.Free) < startableShare*float64(*f.Total) {
		return OtherProcess
	}
	return Limit
}

// torchVerdict follows the order of the package comment.
func (f *Finding) torchVerdict(r int64) Verdict {
	total, free := *f.Total, or(f.Free, 0)
	live, cached, others := or(f.Allocated, 0), or(f.ReservedUnallocated, 0), or(f.OtherProcesses, 0)
	if f.Allowed != nil && *f.Allowed < total {
		if refuses := live+cached+r > *f.Allowed-*f.Allowed/100; f.Free != nil && free >= r || f.Free == nil && refuses {
			return Limit
		}
	}
	if f.Free == nil || f.Allocated == nil {
		return Unknown
	}
	nearly := max(total/100, 64<<20)
	if free >= r+nearly {
		return Unknown
	}
	missing := r - free
	if missing <= 0 {
		missing = r
	}
	if f.Available != nil { // cudaMallocAsync: what its pool caches is in no figure
		if live+r > total-contextBytes {
			return Capacity
		}
		return Unknown
	}
	if others >= missing && (others >= total/10 || cached < r) {
		return OtherProcess
	}
	unlisted := f.Unlisted()
	crowded := unlisted >= missing && unlisted >= unlistedBytes && float64(unlisted) >= unlistedShare*float64(total)
	switch {
	case crowded && f.ThisProcess != nil:
		return OtherProcess
	case cached >= r && live <= total:
		return Fragmentation
	case f.Outside()-contextBytes >= missing:
		return OutsideFramework
	case crowded:
		return OtherProcess
	}
	return Capacity
}

// Outside is what this process has outside the framework, 0 where the text does not tell.
func (f *Finding) Outside() int64 {
	if f.ThisProcess == nil || f.Allocated == nil {
		return 0
	}
	return max(*f.ThisProcess-*f.Allocated-or(f.ReservedUnallocated, 0), 0)
}

// Unlisted is what is neither free nor in any figure of a process, 0 where the text does not tell.
func (f *Finding) Unlisted() int64 {
	if f.Total == nil || f.Free == nil || f.Allocated == nil || f.Dump != nil {
		return 0
	}
	own := *f.Allocated + or(f.ReservedUnallocated, 0)
	return max(*f.Total-*f.Free-or(f.ThisProcess, own)-or(f.OtherProcesses, 0), 0)
}

// dumpVerdict: what the allocator has free is in chunks that are all too small, or too little; or the driver refused it more,
// though its limit has room.
func (f *Finding) dumpVerdict(r int64) Verdict {
	cached := f.Dump.Free()
	switch missing := r - cached; {
	case r == 0:
		return Unknown
	case cached >= r:
		return Fragmentation
	case f.takenAtStart(missing):
		return OtherProcess
	case f.limited(missing):
		return Limit
	case f.Dump.Unmapped >= missing:
		return Unknown
	}
	return Capacity
}

// limited says whether TensorFlow's own limit is far below what the device had free, which would have held the request.
func (f *Finding) limited(missing int64) bool {
	room := or(f.Free, or(f.Total, 0))
	return f.Total != nil && *f.Total != f.Dump.Limit && f.Dump.Unmapped < missing && float64(f.Dump.Limit) < 0.7*float64(room) && room-f.Dump.Limit >= missing+contextBytes
}

// startVerdict is of TensorFlow's errors without a dump: what was taken when it started, or nothing, explains them.
func (f *Finding) startVerdict(r int64) Verdict {
	if f.Free != nil && r > 0 && r >= *f.Free-*f.Free/50 && f.takenAtStart(1) {
		return OtherProcess
	}
	return Unknown
}

// takenAtStart says whether others held what is missing when TensorFlow listed the device.
func (f *Finding) takenAtStart(missing int64) bool {
	if f.Total == nil || f.Free == nil {
		return false
	}
	taken := *f.Total - *f.Free
	return taken >= missing && taken >= unlistedBytes && float64(taken) >= unlistedShare*float64(*f.Total)
}
