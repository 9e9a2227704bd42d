package ci

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/gate"
	"github.com/memprof/memprof/analysis/plain"
)

// OpenMetrics is the values found, and whether each gate holds, in OpenMetrics' text format. Labels are the
// same in every run, so that values of different pipelines can be compared. A value that several gates ask for
// is written once.
func OpenMetrics(results *gate.Results) []byte {
	var out bytes.Buffer
	families := map[string][]*gate.Verdict{}
	var names []string
	for i := range results.Verdicts {
		v := &results.Verdicts[i]
		name := familyName(&v.Gate.Metric)
		if families[name] == nil {
			names = append(names, name)
		}
		families[name] = append(families[name], v)
	}
	slices.Sort(names)
	for _, name := range names {
		metric := &families[name][0].Gate.Metric
		writeFamily(&out, name, unitName(metric.Unit), metric.Help)
		seen := map[string]bool{}
		for _, v := range families[name] {
			if labels := labels(v); !seen[labels] {
				seen[labels] = true
				fmt.Fprintf(&out, "%s%s %s\n", name, labels, metricNumber(v.Found.Value))
			}
		}
	}
	if len(results.Verdicts) > 0 {
		writeFamily(&out, "memprof_gate_holds", "", "1 if the gate holds, 0 if not")
		seen := map[string]bool{}
		for i := range results.Verdicts {
			v := &results.Verdicts[i]
			labels := labelsOf("gate", v.Written.Text, "rank", v.Rank, "severity", v.Written.Severity)
			if seen[labels] {
				continue
			}
			seen[labels] = true
			holds := 0
			if v.Holds {
				holds = 1
			}
			fmt.Fprintf(&out, "memprof_gate_holds%s %d\n", labels, holds)
		}
	}
	out.WriteString("# EOF\n")
	return out.Bytes()
}

// writeFamily writes the lines before a family's samples. The family's name ends with its unit.
func writeFamily(out *bytes.Buffer, name, unit, help string) {
	fmt.Fprintf(out, "# TYPE %s gauge\n", name)
	if unit != "" {
		fmt.Fprintf(out, "# UNIT %s %s\n", name, unit)
	}
	fmt.Fprintf(out, "# HELP %s %s\n", name, openMetricsText.Replace(help))
}

func unitName(unit analysis.Unit) string {
	switch unit {
	case analysis.Bytes:
		return "bytes"
	case analysis.Share:
		return "ratio"
	}
	return ""
}

// familyName is the name of a metric as OpenMetrics has it: reserved.peak becomes memprof_reserved_peak_bytes.
// OpenMetrics reserves _count for other types than gauges, so oom.count becomes memprof_ooms.
func familyName(metric *analysis.Metric) string {
	name := "memprof_" + strings.NewReplacer(".", "_", "-", "_").Replace(strings.TrimSuffix(metric.Name, ".bytes"))
	if unit := unitName(metric.Unit); unit != "" {
		return name + "_" + unit
	}
	if stem, found := strings.CutSuffix(name, "_count"); found {
		return stem + "s"
	}
	return name
}

// labels are those of a value: the question that it answers.
func labels(v *gate.Verdict) string {
	s := &v.Gate.Selector
	return labelsOf("aggregate", v.Aggregate, "job", s.Job, "phase", s.Phase, "rank", cmp.Or(v.Rank, s.Rank, "default"), "tag", s.Tag, "worst", v.Gate.WorstEnd())
}

// labelsOf takes names and values in turn. A label without a value is left out.
func labelsOf(pairs ...string) string {
	var fields []string
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			fields = append(fields, fmt.Sprintf(`%s="%s"`, pair[0], openMetricsText.Replace(plain.Text(pair[1]))))
		}
	}
	return "{" + strings.Join(fields, ",") + "}"
}

var openMetricsText = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func metricNumber(value float64) string { return strconv.FormatFloat(value, 'g', -1, 64) }
