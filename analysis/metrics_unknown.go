package analysis

import (
	"fmt"
	"strings"

	"github.com/memprof/memprof/analysis/iterations"
)

// Unknown says why a device has no value for the metric, for whoever put a gate on it; "" where
// Help says enough.
func (m *Metric) Unknown(d *DeviceResult) string {
	switch {
	case m.Of(d.Scope) && d.Stored != nil:
		return "the recording's summary has no value of it (memprof summarize writes it anew)"
	case m.Of(d.Scope):
	case d.Scope == OneTag:
		return "it has no value of a tag"
	default:
		return "it has no value of a phase"
	}
	subject, _, _ := strings.Cut(m.Name, ".")
	switch subject {
	case "iteration":
		return d.unknownIterations(m.Name)
	case "leak":
		return d.unknownLeak(m.Name)
	case "waste", "idle", "fragmentation", "provided", "growth":
		switch {
		case d.Native != nil:
			return "--allocator native only observed torch's allocator, whose chunks are unknown"
		case d.MaxR == 0:
			return "no memory was reserved"
		}
	case "category", "phase":
		switch {
		case subject == "category" && !d.Held.Known:
			return "the recording does not have who requested memory"
		case subject == "category":
			return "nothing was live at the peak"
		case strings.HasSuffix(m.Name, ".allocated") && len(d.Iterations) == 0:
			return "there are no iterations"
		}
		return "there was no such phase"
	case "used", "accounting":
		return d.unknownAccounting(m.Name)
	case "pause":
		if d.Pauses == nil {
			return "no memory has a tag"
		}
		return "the job had no stages"
	case "kv":
		return "no engine recorded a KV cache with a sequence in it"
	case "graphs":
		if d.Graphs == nil {
			return "no CUDA graph was captured"
		}
	}
	return ""
}

func (d *DeviceResult) unknownIterations(name string) string {
	switch n := d.IterationCount(); {
	case n == 0:
		return "there are no iterations: none was marked, and the requests have no period"
	case n == 1:
		return "there is one iteration, and two are needed"
	case d.MaxR == 0:
		return "no memory was reserved"
	case d.Native != nil:
		return "--allocator native only observed torch's allocator, and the bytes of its chunks were not read in every iteration"
	case name == "iteration.own_idle":
		return "no memory was reserved in the later iterations"
	}
	return fmt.Sprintf("no chunk was live in the %d later iterations", d.IterationCount()-1)
}

// unknownAccounting says why a metric of the device accounting is unknown.
func (d *DeviceResult) unknownAccounting(name string) string {
	switch b := d.Account; {
	case b == nil:
		return "the device's used memory was not read at the peak"
	case name == "used.peak", strings.HasPrefix(name, "accounting.unexplained") && b.Missing != "":
		return b.Missing
	case strings.HasPrefix(name, "accounting.unexplained"):
		return b.Peak.UnexplainedUnknown
	case name == "accounting.driver_overhead" && b.Peak.Unknown.Has(AllOverhead):
		return b.Peak.UnknownWhy
	}
	return ""
}

func (d *DeviceResult) unknownLeak(name string) string {
	switch name {
	case "leak.per_request":
		return fmt.Sprintf("no phase and no KV cache had %d requests or more that went on in the second half of the recording", iterations.LeastPoints+1)
	case "leak.per_second":
		if len(d.Iterations) == 0 || d.Period > 0 {
			return fmt.Sprintf("no six iterations ended, and there were no allocations in %d of %d windows of time", iterations.BusyWindows, iterations.LowWindows)
		}
	}
	return fmt.Sprintf("%d iterations ended, and %d are needed", d.IterationCount(), iterations.LeastPoints+1)
}
