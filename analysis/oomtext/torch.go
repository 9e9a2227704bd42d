package oomtext

import "bytes"

// torchForms are the errors of PyTorch's allocators. The request comes first in all versions; what follows differs:
//
//	1.0 to 1.3   (GPU 0; T total capacity; A already allocated; F free; C cached)       C is reserved and not allocated
//	1.4 to 2.0   (GPU 0; T total capacity; A already allocated; F free; R reserved in total by PyTorch)
//	2.1 on       GPU 0 has a total capacity of T of which F is free. Process N has P memory in use. Including non-PyTorch memory,
//	             this process has P memory in use. L allowed; Of the allocated memory A is allocated by PyTorch, with G allocated in
//	             private pools (e.g., CUDA Graphs), and C is reserved by PyTorch but unallocated.
//
// A process whose number the driver does not know, in a container, is listed with the others and not as "this process".
var torchForms = []form{
	anchored(withFigures, `Triedtoallocate(?:morethan1EBmemory|`+size+`)`, torchRequest),
	anchored(withFigures, `wouldexceedallowedmemory\.\(outofmemory\)`, torchAsync),
	anchored(withSize, `Invalidbuffersize:`+size, requests(Torch, "MPS", Allocation)),
	anchored(bare, `OutOfMemoryError:Allocationondevice`, bareError(Torch, "", Allocation)),
	anchored(bare, `CUDAoutofmemory`, bareError(Torch, "", Allocation)),
	anchored(bare, `HIPoutofmemory`, bareError(Torch, "HIP", Allocation)),
	anchored(bare, `XPUoutofmemory`, bareError(Torch, "XPU", Allocation)),
	anchored(bare, `NPUoutofmemory`, bareError(Torch, "NPU", Allocation)),
	anchored(bare, `MPSbackendoutofmemory`, bareError(Torch, "MPS", Allocation)),
}

var (
	torchVendor = compiled(`([A-Z]{2,8})(?:backend)?outofmemory`)
	torchDevice = compiled(`[A-Z]PU(\d+)`)

	torchTotal       = compiled(size + `totalcapacity|totalcapaci?tyof` + size)
	torchFree        = compiled(size + `free[;)]|ofwhich` + size + `isfree`)
	torchAllocated   = compiled(size + `alreadyallocated|` + size + `isallocatedbyPyTorch`)
	torchUnallocated = compiled(size + `cached|` + size + `isreservedbyPyTorchbutunallocated`)
	torchReserved    = compiled(size + `reservedintotal`)
	torchAllowed     = compiled(size + `allowed;`)
	torchProcess     = compiled(`Process\d+has` + size + `memoryinuse`)
	torchOwn         = compiled(`[Tt]hisprocesshas` + size + `memoryinuse`)
	torchMPS         = compiled(`MPSallocated:` + size)
)

// torchRequest reads an error from its request on.
func torchRequest(m *match) *Finding {
	text := torchText(m.after)
	f := &Finding{Framework: Torch, Requested: m.size(0), absurd: m.groups[0] == "", Total: find(torchTotal, text)}
	before := m.before[max(len(m.before)-120, 0):]
	vendor := torchVendor().FindAllSubmatch(before, -1)
	switch {
	case len(vendor) > 0:
		f.Vendor = string(vendor[len(vendor)-1][1])
	case bytes.Contains(before, []byte("CurrentplatformcanNOTallocate")):
		f.Vendor = "XPU"
	case f.Total == nil && !bytes.Contains(bytes.ToLower(before), []byte("outofmemory")):
		return nil // of something else
	}
	// Loggers write what they like in front of "CUDA": a vendor is what the last letters say.
	if bytes.HasSuffix([]byte(f.Vendor), []byte("CUDA")) {
		f.Vendor = ""
	}
	if device := torchDevice().FindSubmatch(text[:min(len(text), 80)]); device != nil {
		f.Device = string(device[1])
	}
	f.Free, f.Allocated = find(torchFree, text), find(torchAllocated, text)
	f.ReservedUnallocated, f.Allowed = find(torchUnallocated, text), find(torchAllowed, text)
	f.Settings.SplitSize = bytes.Contains(text[:min(len(text), 120)], []byte("totalcapacity;"))
	if reserved := find(torchReserved, text); reserved != nil && f.Allocated != nil && f.ReservedUnallocated == nil {
		f.ReservedUnallocated = known(max(*reserved-*f.Allocated, 0))
	}
	if mps := find(torchMPS, m.before); mps != nil && f.Vendor == "MPS" {
		f.Allocated = mps
	}
	f.readProcesses(text)
	return f
}

// torchText is an error from its request on, up to what ends it in each version, or to the next request.
func torchText(text []byte) []byte {
	if next := bytes.Index(text[1:], []byte("Triedtoallocate")); next >= 0 {
		text = text[:next+1]
	}
	for _, end := range []string{"butunallocated", "reservedintotal", "cached)"} {
		if at := bytes.Index(text, []byte(end)); at >= 0 {
			return text[:at+len(end)]
		}
	}
	return text[:min(len(text), 1<<10)]
}

// torchAsync reads an error of the backend cudaMallocAsync.
func torchAsync(m *match) *Finding {
	text := m.after[:min(len(m.after), 400)]
	return &Finding{
		Framework: Torch,
		Requested: find(torchAsyncRequested, text), Total: find(torchAsyncTotal, text), Free: find(torchAsyncFree, text), Allocated: find(torchAsyncLive, text),
		Allowed: find(torchAsyncAllowed, text), Available: known(0), // the text does not say what the driver's pool caches
	}
}

var (
	torchAsyncLive      = compiled(`Currentlyallocated:` + size)
	torchAsyncRequested = compiled(`Requested:` + size)
	torchAsyncTotal     = compiled(`Devicelimit:` + size)
	torchAsyncFree      = compiled(`Free\(accordingtoCUDA\):` + size)
	torchAsyncAllowed   = compiled(`memoryfraction\):` + size)
)

// readProcesses reads what processes have on the device. It tells this one from the others: by its name, or, where no process is
// named so, as the one that alone can hold what PyTorch has reserved.
func (f *Finding) readProcesses(text []byte) {
	f.ThisProcess = f.possible(find(torchOwn, text))
	var others []int64
	for _, m := range torchProcess().FindAllSubmatch(text, -1) {
		if n := f.possible(parseSize(string(m[1]))); n != nil {
			others = append(others, *n)
		}
	}
	if own := or(f.Allocated, 0) + or(f.ReservedUnallocated, 0); f.ThisProcess == nil && len(others) > 0 && f.Total != nil && own > 0 {
		least, sum := -1, or(f.Free, 0)
		for i, n := range others {
			sum += n
			if n >= own-own/100 && (least < 0 || n < others[least]) {
				least = i
			}
		}
		if least >= 0 && sum+own > *f.Total {
			f.ThisProcess = known(others[least])
			others = append(others[:least], others[least+1:]...)
		}
	}
	if len(others) > 0 {
		f.OtherProcesses = known(0)
		same := map[int64]int{}
		for _, n := range others {
			*f.OtherProcesses += n
			if same[n]++; n >= leastContext {
				f.SameSized = max(f.SameSized, same[n])
			}
		}
	}
}

// leastContext is less than any CUDA context takes.
const leastContext = 100 << 20

// possible is a figure, unless it is larger than the device: some drivers for Windows report 2^64 bytes.
func (f *Finding) possible(figure *int64) *int64 {
	if figure != nil && f.Total != nil && *figure/2 > *f.Total {
		return nil
	}
	return figure
}

// find returns the size in the first match of a pattern.
func find(of pattern, text []byte) *int64 {
	m := of().FindSubmatch(text)
	if m == nil {
		return nil
	}
	for _, group := range m[1:] {
		if len(group) > 0 {
			return parseSize(string(group))
		}
	}
	return nil
}
