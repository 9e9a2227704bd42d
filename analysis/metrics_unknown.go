package analysis

import (
	"fmt"
	"math"
	"strings"

	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/iterations"
)

// Unknown says why there is no value of the metric, for whoever put a gate on it; "" where
// Help says enough.
func (m *Metric) Unknown(of *Subjects) string {
	switch {
	case !m.Of(of.Part):
		return "it has no value of " + [...]string{OneTag: "a tag", OnePhase: "a phase"}[of.Part]
	case of.Stored != nil:
		return "the recording's summary has no value of it (memprof record --finish writes it anew)"
	}
	subject, _, _ := strings.Cut(m.Name, ".")
	switch subject {
	case "waste", "idle", "fragmentation", "provided", "growth":
		if why := of.Memory.unknown(); why != "" {
			return why
		}
	}
	if of.Whole == nil {
		return ""
	}
	return of.Whole.unknown(subject, m.Name)
}

// unknown says why what chunks decide is unknown, or a share of reserved; "" where they are not.
func (m *Memory) unknown() string {
	switch {
	case m == nil, m.Chunks == nil:
		return "--allocator native only observed torch's allocator, whose chunks are unknown"
	case m.MaxR == 0:
		return "no memory was reserved"
	}
	return ""
}

// unknown says why a metric of a subject that only whole devices have is unknown.
func (d *DeviceResult) unknown(subject, name string) string {
	switch subject {
	case "torch", "least_card":
		switch {
		case len(d.Replays) == 0:
			return "nothing was replayed"
		case d.Replays[0].LeftOut != "":
			return "not replayed, since " + d.Replays[0].LeftOut
		}
		return "the job has no PyTorch"
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
	case d.MaxR == 0 || math.IsNaN(d.Paper.C2):
		return d.Subjects().Memory.unknown()
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
	if d.Leak.Verdict != iterations.TooShort && d.Leak.Verdict != "" {
		return "the verdict goes by what is held after each " + d.Leak.Per
	}
	return fmt.Sprintf("too short: %d iterations ended, and %d are needed, or requests, or %.0f s", d.IterationCount(), iterations.LeastIterations, iterations.LeastTime/1e9)
}
