package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/report/plain"
)

// qualityIssue is an entry of GitLab's code-quality report: the part of Code Climate's format
// that GitLab reads. It tells issues by their fingerprint, which stays the same from run to run.
type qualityIssue struct {
	Description string          `json:"description"`
	CheckName   string          `json:"check_name"`
	Fingerprint string          `json:"fingerprint"`
	Severity    string          `json:"severity"` // info, minor, major, critical or blocker
	Location    qualityLocation `json:"location"`
}

type qualityLocation struct {
	Path  string `json:"path"` // from the root of the repository
	Lines struct {
		Begin int `json:"begin"`
	} `json:"lines"`
}

// qualityVerdicts are those that do not hold, or are not trustworthy, the worst first. Gates of the
// command line stand nowhere; they are shown at the top of the file where gates are looked for.
func qualityVerdicts(verdicts []verdict) ([]byte, error) {
	issues := []qualityIssue{}
	seen := map[string]int{}
	for _, v := range worstFirst(verdicts) {
		if v.holds && v.trustworthy() {
			continue
		}
		severity := "info"
		switch {
		case v.violated():
			severity = "major"
		case !v.holds:
			severity = "minor"
		}
		what := v.title() + "\x00" + v.written.severity
		seen[what]++ // the same gate may stand in a file twice
		issue := qualityIssue{
			Description: v.title() + ": " + v.sentence(), CheckName: "memprof." + v.gate.metric.Name, Severity: severity,
			Fingerprint: fmt.Sprintf("%x", sha256.Sum256([]byte(what+strconv.Itoa(seen[what])))),
		}
		issue.Location.Path = repositoryPath(cmp.Or(v.written.file, gateFileName))
		issue.Location.Lines.Begin = max(1, v.written.line)
		issues = append(issues, issue)
	}
	var out bytes.Buffer
	err := screen.JSON(&out, issues)
	return out.Bytes(), err
}

// repositoryPath is a file as seen from the root of its repository, or as it is where there is none.
func repositoryPath(path string) string {
	whole, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	for dir := filepath.Dir(whole); ; dir = filepath.Dir(dir) {
		if found, err := exists(filepath.Join(dir, ".git")); found && err == nil {
			inside, err := filepath.Rel(dir, whole)
			if err != nil {
				return path
			}
			return filepath.ToSlash(inside)
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	if here, err := os.Getwd(); err == nil {
		if inside, err := filepath.Rel(here, whole); err == nil && filepath.IsLocal(inside) {
			return filepath.ToSlash(inside)
		}
	}
	return path
}

// openMetrics writes the values found and whether each gate holds, in OpenMetrics' text format.
// Labels are the same from run to run, so that a value can be compared with that of another
// pipeline; a value that several gates ask for is there once.
func openMetrics(verdicts []verdict) []byte {
	var out bytes.Buffer
	families := map[string][]*verdict{}
	var names []string
	for i := range verdicts {
		v := &verdicts[i]
		name := familyName(&v.gate.metric)
		if families[name] == nil {
			names = append(names, name)
		}
		families[name] = append(families[name], v)
	}
	slices.Sort(names)
	for _, name := range names {
		metric := &families[name][0].gate.metric
		writeFamily(&out, name, unitName(metric.Unit), metric.Help)
		seen := map[string]bool{}
		for _, v := range families[name] {
			if labels := v.labels(); !seen[labels] {
				seen[labels] = true
				fmt.Fprintf(&out, "%s%s %s\n", name, labels, metricNumber(v.found.value))
			}
		}
	}
	if len(verdicts) > 0 {
		writeFamily(&out, "memprof_gate_holds", "", "1 if the gate holds, 0 if not")
		seen := map[string]bool{}
		for i := range verdicts {
			v := &verdicts[i]
			labels := labelsOf("gate", v.written.text, "rank", v.rank, "severity", v.written.severity)
			if seen[labels] {
				continue
			}
			seen[labels] = true
			holds := 0
			if v.holds {
				holds = 1
			}
			fmt.Fprintf(&out, "memprof_gate_holds%s %d\n", labels, holds)
		}
	}
	out.WriteString("# EOF\n")
	return out.Bytes()
}

// writeFamily writes what is said of a family before its samples. A unit is the end of its name.
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

// familyName is memprof_reserved_peak_bytes of reserved.peak. The end _count belongs to
// other types than a gauge: memprof_ooms of oom.count.
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

// labels are those of a value: the question it answers.
func (v *verdict) labels() string {
	s := &v.gate.selector
	return labelsOf("aggregate", v.aggregate, "job", s.job, "phase", s.phase, "rank", cmp.Or(v.rank, s.rank, "default"), "tag", s.tag, "worst", v.gate.worstEnd())
}

// labelsOf writes names and values in turn; one without a value is left out.
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
