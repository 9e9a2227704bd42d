package oomtext

import (
	"bytes"
	"math"
	"strconv"
	"strings"
)

// xlaForms are errors of XLA, of JAX, and of TensorFlow, whose allocators are the same. finish decides whose program it was.
var xlaForms = []form{
	anchored(withSize, `utofmemorywhiletryingtoallocate`+size, requests(JAX, "", Allocation)),
	anchored(withSize, `Failedtoallocaterequestfor[\d.]+[KMGT]?i?B\((\d+)B\)`, requests(JAX, "", Allocation)),
	anchored(withSize, `Outofmemoryallocating(\d+)bytes`, requests(JAX, "", Allocation)),
	anchored(withSize, `Failedtoallocate(\d+)bytesfornewconstant`, requests(JAX, "", Allocation)),
	anchored(withFigures, `reducememoryusebelow`+size+`byrematerialization;onlyreducedto`+size, func(m *match) *Finding {
		f := &Finding{Framework: JAX, Available: m.size(0)}
		if request := xlaBytes().FindSubmatch(m.after); request != nil {
			f.Requested = wholeBytes(string(request[1]))
		}
		return f
	}),
	anchored(withFigures, `Ranoutofmemoryinmemoryspace\w+\.Used([\d.]+[KMGT])of([\d.]+[KMGT])`, func(m *match) *Finding {
		return &Finding{Framework: JAX, Vendor: "TPU", Requested: m.size(0), Total: m.size(1)}
	}),
	anchored(withFigures, `Attemptingto(?:reserve|allocate)([\d.]+[KMGT]).{0,40}?Thatwasnotpossible\.Thereare([\d.]+[KMGT])free`, func(m *match) *Finding {
		return &Finding{Framework: JAX, Vendor: "TPU", Requested: m.size(0), Free: m.size(1)}
	}),
	anchored(bare, `RESOURCE_EXHAUSTED`, exhausted),
	anchored(bare, `Resourceexhausted`, exhausted),
	anchored(bare, `ResourceExhaustedError`, exhausted),
	anchored(withSize, `OOMwhenallocatingtensor(?:with|of)shape\[([\d,]*)\](?:andtype(\w+?)(?:on/job|\[|\W|$))?`, tensor),
	anchored(withSize, `anoutofmemorytryingtoallocate`+size+`(?:\(roundedto(\d+)\))?`, func(m *match) *Finding {
		if survived(m) {
			return nil
		}
		f := &Finding{Framework: TensorFlow, Requested: m.size(0)}
		if m.groups[1] != "" {
			f.Requested = wholeBytes(m.groups[1])
		}
		return f
	}),
	anchored(growth, `failedtoallocate[\d.]+[KMGT]?i?B?\((\d+)bytes\)fromdevice:(CUDA|HIP)`, func(m *match) *Finding {
		f := &Finding{Framework: TensorFlow, Requested: wholeBytes(m.groups[0])}
		if m.groups[1] == "HIP" {
			f.Vendor = "HIP"
		}
		return f
	}),
}

// survived says whether the allocator says that its caller goes on without the memory.
func survived(m *match) bool {
	return bytes.Contains(m.after[:min(len(m.after), 200)], []byte("callerindicatesthatthisisnotafailure"))
}

// exhausted is the status of XLA and TensorFlow, which servers use for quotas, too.
func exhausted(m *match) *Finding {
	near := bytes.ToLower(m.after[:min(len(m.after), 200)])
	if !bytes.Contains(near, []byte("memory")) && !bytes.Contains(near, []byte("oom")) && !bytes.Contains(near, []byte("allocat")) {
		return nil
	}
	return &Finding{Framework: JAX}
}

var xlaBytes = compiled(`utofmemorywhiletryingtoallocate(\d+)bytes`)

// elements are the bytes of an element of TensorFlow's types.
var elements = map[string]int64{
	"float": 4, "double": 8, "half": 2, "bfloat16": 2, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4,
	"int64": 8, "uint64": 8, "bool": 1, "complex64": 8, "complex128": 16,
}

// tensor is TensorFlow's request: a shape, a type and the allocator's name, which may be the host's.
func tensor(m *match) *Finding {
	f := &Finding{Framework: TensorFlow}
	head := string(m.after[:min(len(m.after), 300)])
	if at := strings.Index(head, "byallocator"); at >= 0 {
		name := head[at+len("byallocator"):]
		if strings.HasPrefix(name, "cpu") || strings.HasPrefix(name, "mklcpu") || strings.HasPrefix(name, "cuda_host") || strings.HasPrefix(name, "gpu_host") {
			f.Framework, f.Kind = Host, HostMemory
		}
	}
	count := elements[strings.TrimSuffix(m.groups[1], "on")]
	for _, side := range strings.Split(m.groups[0], ",") {
		n, err := strconv.ParseInt(side, 10, 64)
		if err != nil || n <= 0 || count > math.MaxInt64/n {
			return f
		}
		count *= n
	}
	if count > 0 {
		f.Requested = &count
	}
	return f
}

// deviceLines are what TensorFlow prints of each device when it starts.
type deviceLines struct{ total, free *int64 }

var deviceLine = named("emory", `otal[mM]emory:`+size+`[fF]ree[mM]emory:`+size+`|deviceMemorySize:`+size)

func (d *deviceLines) search(part []byte) {
	if d.total != nil {
		return
	}
	switch m := deviceLine.in(part); {
	case m == nil:
	case len(m[3]) > 0:
		d.total = parseSize(string(m[3]))
	default:
		d.total, d.free = parseSize(string(m[1])), parseSize(string(m[2]))
	}
}

// fill gives an error of TensorFlow the device that the log begins with.
func (d *deviceLines) fill(f *Finding) {
	if d.total == nil {
		return
	}
	f.Total = d.total
	if f.Free == nil {
		f.Free = d.free
	}
}
