package report

import (
	"strings"
	"time"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/report/units"
)

// PolicyUnits are the sizes and durations that people write in a policy. Sizes are not rounded.
var PolicyUnits = &bfc.Units{
	Bytes: "SIZE", Duration: "DURATION",
	ParseBytes: func(text string) (uint64, error) {
		bytes, err := units.ParseSize(text)
		return uint64(bytes), err
	},
	ParseDuration: time.ParseDuration,
	FormatBytes: func(bytes uint64) string {
		if bytes == 0 {
			return "0"
		}
		return units.ExactSize(bytes)
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

// PolicyLine is the policy of a recording by its run.json, in words: "preset compact (growth
// needed, split always, trim iteration, placement planned)". Values that are the default of their
// dimension, other than growth, split and trim, are left out. Recordings that name no preset are
// described by their values alone; for one without any it is "".
func PolicyLine(settings map[string]string) string {
	if settings["growth"] == "" {
		return ""
	}
	p, err := bfc.ParseSettings(settings)
	if err != nil {
		return ""
	}
	var words []string
	classic := bfc.Classic()
	for _, d := range bfc.Dimensions {
		if always := d.Name == "growth" || d.Name == "split" || d.Name == "trim"; always || d.Differs(&p, &classic) {
			words = append(words, d.Name+" "+d.Text(&p, PolicyUnits))
		}
	}
	values := strings.Join(words, ", ")
	if preset := settings["preset"]; preset != "" {
		return "preset " + preset + " (" + values + ")"
	}
	return values
}
