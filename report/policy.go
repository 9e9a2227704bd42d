package report

import (
	"fmt"
	"slices"
	"time"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/bfc"
)

// PolicyFlags are the flags of `memprof record` for a policy: its preset, and its trim and handles where they are not
// the default.
func PolicyFlags(p bfc.Policy) string {
	flags := "--preset " + p.Preset.String()
	if p.Trim.When != bfc.TrimNever {
		flags += " --trim " + p.Trim.Text(time.Duration.String)
	}
	if p.Handle > 0 {
		flags += " --handle " + plain.ExactSize(p.Handle)
	}
	return flags
}

// settingsOfImport are the settings that an imported snapshot had, in brackets; "" where it does not say.
func settingsOfImport(r *analysis.Result) string {
	if r.Job == nil || r.Job.Imported == nil || r.Job.Imported.Settings == nil {
		return ""
	}
	switch s := r.Job.Imported.Settings; {
	case s.Text != "":
		return " (" + s.Text + ")"
	case s.Expandable:
		return " (expandable_segments:True)"
	case s.MaxSplit < 0 && !slices.ContainsFunc(s.Roundup, func(divisions uint64) bool { return divisions > 1 }):
		return " (default settings)"
	}
	return ""
}

// allocatorLine says which allocator served a device, and under which policy: "Allocator: memprof's,
// not PyTorch's; preset compact (growth pages, split always, trim never)". It is "" where no arena is known.
func allocatorLine(r *analysis.Result, d *analysis.DeviceResult) string {
	for i := range r.Arenas {
		a := &r.Arenas[i]
		if a.Device != d.Device {
			continue
		}
		if allocator := a.Options["allocator"]; allocator != "" && d.Native != nil {
			return "Allocator: PyTorch's own (" + allocator + "), observed"
		} else if allocator != "" {
			return "Allocator: PyTorch's own" + settingsOfImport(r) + ", of a memory snapshot"
		}
	}
	p, ok := recording.PolicyOf(r, d.Device)
	if !ok {
		return ""
	}
	main := p.ForArena(bfc.Arena{Granularity: bfc.Granule})
	words := fmt.Sprintf("growth %s, split %s, trim %s", main.Growth, main.Split, p.Trim.Text(time.Duration.String))
	if p.Handle > 0 {
		words += ", handle " + plain.ExactSize(p.Handle)
	}
	return "Allocator: memprof's, not PyTorch's; preset " + p.Preset.String() + " (" + words + ")"
}
