package report

import (
	"strings"
	"time"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/bfc"
)

// PolicyUnits are the sizes and durations that people write in a policy. Sizes are not rounded.
var PolicyUnits = &bfc.Units{
	Bytes: "SIZE", Duration: "DURATION",
	ParseBytes: func(text string) (uint64, error) {
		bytes, err := plain.ParseSize(text)
		return uint64(bytes), err
	},
	ParseDuration: plain.ParseDuration,
	FormatBytes: func(bytes uint64) string {
		if bytes == 0 {
			return "0"
		}
		return plain.ExactSize(bytes)
	},
	FormatDuration: time.Duration.String,
}

// PolicyFlags are the flags of `memprof record` for a policy: the preset that leaves the fewest
// values to name, the first of two, and those values. Only dimensions that `tune` tries count.
func PolicyFlags(p bfc.Policy) string {
	best := []string(nil)
	for _, name := range bfc.PresetNames() {
		preset, err := bfc.PresetNamed(name)
		if err != nil {
			continue
		}
		flags := []string{"--preset " + name}
		for _, d := range bfc.Dimensions {
			if d.Tune != nil && d.Differs(&p, &preset) {
				flags = append(flags, "--"+d.Name+" "+d.Text(&p, PolicyUnits))
			}
		}
		if best == nil || len(flags) < len(best) {
			best = flags
		}
	}
	return strings.Join(best, " ")
}

// allocatorLine says which allocator served a device, and under which policy: "Allocator: memprof's,
// not PyTorch's; preset compact (growth pages, split always, trim never, placement planned)".
// A policy that is no preset has its values only. It is "" where no arena is known.
func allocatorLine(r *analysis.Result, d *analysis.DeviceResult) string {
	for i := range r.Arenas {
		a := &r.Arenas[i]
		if a.Device != d.Device {
			continue
		}
		if a.Options["provided"] == "unknown" || d.Native != nil && a.Options["allocator"] != "" {
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
	return "Allocator: memprof's, not PyTorch's; " + policyWords(p)
}

// policyWords are a policy's preset, if it is one, and its growth, split, trim, and what else is
// not the default and `tune` tries.
func policyWords(p bfc.Policy) string {
	var words []string
	classic := bfc.Classic()
	for _, d := range bfc.Dimensions {
		if always := d.Name == "growth" || d.Name == "split" || d.Name == "trim"; always || d.Tune != nil && d.Differs(&p, &classic) {
			words = append(words, d.Name+" "+d.Text(&p, PolicyUnits))
		}
	}
	values := strings.Join(words, ", ")
	if flags := PolicyFlags(p); strings.Count(flags, "--") == 1 {
		return strings.TrimPrefix(flags, "--") + " (" + values + ")"
	}
	return values
}
