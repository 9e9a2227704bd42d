package analysis

import (
	"fmt"
	"strings"

	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/iterations"
)

// Unknown says why there is no value of the metric, for whoever put a gate on it; "" where
// Help says enough.
func (m *Metric) Unknown(of *Subjects) string {
	switch {
	case !m.Of(of.Part):
		return "it has no value of " + [...]string{OneTag: "a tag", OnePhase: "a phase", Running: "a process that runs"}[of.Part]
	case of.Stored != nil:
		return "the recording's summary has no value of it (memprof summarize writes it anew)"
	}
	subject, _, _ := strings.Cut(m.Name, ".")
	switch subject {
	case "waste", "idle", "fragmentation", "provided", "growth":
		switch {
		case of.Memory == nil, !of.Memory.Divided:
			return "--allocator native only observed torch's allocator, whose chunks are unknown"
		case of.Memory.MaxR == 0:
			return "no memory was reserved"
		}
	}
	if of.Whole == nil {
		return ""
	}
	return of.Whole.unknown(subject, m.Name)
}

// unknown says why a metric of a subject that only whole devices have is unknown.
func (d *DeviceResult) unknown(subject, name string) string {
	switch subject {
	case "iteration":
		return d.unknownIterations(name)
	case "leak":
		return d.unknownLeak(name)
	case "category", "phase":
		switch {
		case subject == "category" && !d.Held.Known:
			return "the recording does not have who requested memory"
		case subject == "category":
			return "nothing was live at the peak"
		case strings.HasSuffix(name, ".allocated") && len(d.Iterations) == 0:
			return "there are no iterations"
		}
		return "there was no such phase"
	case "used", "accounting":
		return d.unknownAccounting(name)
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
	case d.Chunks == nil:
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
	case name == "accounting.driver_overhead" && b.Peak.Unknown.Has(accounting.AllOverhead):
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
