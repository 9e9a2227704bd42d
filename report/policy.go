package report

import (
	"fmt"
	"time"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/report/units"
)

// PolicyFlags are the flags of `memprof record` for a policy: its preset, and its trim and handles where they are not
// the default.
func PolicyFlags(p bfc.Policy) string {
	flags := "--preset " + p.Preset.String()
	if p.Trim.When != bfc.TrimNever {
		flags += " --trim " + p.Trim.Text(time.Duration.String)
	}
	if p.Handle > 0 {
		flags += " --handle " + units.ExactSize(p.Handle)
	}
	return flags
}

// allocatorLine says which allocator served a device, and under which policy: "Allocator: memprof's,
// not PyTorch's; preset compact (growth pages, split always, trim never)". It is "" where no arena is known.
func allocatorLine(r *analysis.Result, d *analysis.DeviceResult) string {
	for i := range r.Arenas {
		a := &r.Arenas[i]
		if a.Device != d.Device {
			continue
		}
		if a.Options["provided"] == "unknown" || d.Modeled != nil && a.Options["allocator"] != "" {
			return "Allocator: PyTorch's own (" + a.Options["allocator"] + "), observed"
		}
		if a.Options["allocator"] == "rmm" {
			return "Allocator: RMM's, of its log: exactly what is allocated counts as reserved"
		}
		if a.Options["allocator"] != "" && a.Options["provided"] == "" {
			return "Allocator: PyTorch's own (" + a.Options["allocator"] + "), of a memory snapshot"
		}
	}
	p, ok := recording.PolicyOf(r, d.Device)
	if !ok {
		return ""
	}
	main := p.ForArena(bfc.Arena{Granularity: bfc.Granule})
	words := fmt.Sprintf("growth %s, split %s, trim %s", main.Growth, main.Split, p.Trim.Text(time.Duration.String))
	if p.Handle > 0 {
		words += ", handle " + units.ExactSize(p.Handle)
	}
	return "Allocator: memprof's, not PyTorch's; preset " + p.Preset.String() + " (" + words + ")"
}
