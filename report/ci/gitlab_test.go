package ci

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/gate"
)

// checkQuality holds a report to what GitLab demands: an array of objects with these keys, a
// severity of five, paths within the repository, and fingerprints that tell issues apart.
func checkQuality(t *testing.T, text []byte) []qualityIssue {
	t.Helper()
	var raw []map[string]any
	if err := json.Unmarshal(text, &raw); err != nil || raw == nil {
		t.Fatalf("no array: %v\n%s", err, text)
	}
	fingerprints := map[string]bool{}
	for _, issue := range raw {
		for _, key := range []string{"description", "check_name", "fingerprint", "severity"} {
			if value, ok := issue[key].(string); !ok || value == "" {
				t.Errorf("%s is %v", key, issue[key])
			}
		}
		if !slices.Contains([]string{"info", "minor", "major", "critical", "blocker"}, issue["severity"].(string)) {
			t.Errorf("severity %v", issue["severity"])
		}
		location := issue["location"].(map[string]any)
		if path, ok := location["path"].(string); !ok || !filepath.IsLocal(path) {
			t.Errorf("path %v", location["path"])
		}
		if begin, ok := location["lines"].(map[string]any)["begin"].(float64); !ok || begin < 1 || begin != float64(int(begin)) {
			t.Errorf("line %v", location["lines"])
		}
		if print := issue["fingerprint"].(string); fingerprints[print] {
			t.Errorf("fingerprint %s twice", print)
		} else {
			fingerprints[print] = true
		}
	}
	var issues []qualityIssue
	if err := json.Unmarshal(text, &issues); err != nil {
		t.Fatal(err)
	}
	return issues
}

func TestCodeQuality(t *testing.T) {
	top := t.TempDir()
	for _, dir := range []string{".git", "ci"} {
		if err := os.Mkdir(filepath.Join(top, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(filepath.Join(top, "ci"))
	quality := func(value float64) []qualityIssue {
		results := resultsOf(t, "a\n\"run", value, "oom.count < 1", "growth.count < 5", "oom.count < 1", "live.peak < 100")
		results.Verdicts[0].Written.File, results.Verdicts[0].Written.Line = "memprof.yaml", 7
		results.Verdicts[1].Gate.Severity, results.Verdicts[1].Written.Severity = gate.SeverityWarn, gate.SeverityWarn
		return checkQuality(t, qualityText(t, results))
	}
	var got []string
	first := quality(50)
	for _, i := range first {
		got = append(got, fmt.Sprintf("%s %s %s:%d %s", i.Severity, i.CheckName, i.Location.Path, i.Location.Lines.Begin, i.Description))
	}
	want := []string{
		`major memprof.oom.count ci/memprof.yaml:7 oom.count < 1: expected < 1, found 50, margin -49, in a\n"run: rank0, device 0`,
		`major memprof.oom.count ci/memprof.yaml:1 oom.count < 1: expected < 1, found 50, margin -49, in a\n"run: rank0, device 0`,
		`minor memprof.growth.count ci/memprof.yaml:1 growth.count < 5: expected < 5, found 50, margin -45, in a\n"run: rank0, device 0`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("issues (-want +got):\n%s", diff)
	}
	for i, again := range quality(60) { // another value of the same gate is the same issue
		if again.Fingerprint != first[i].Fingerprint {
			t.Errorf("issue %d has another fingerprint in the next run", i)
		}
	}
	if text := qualityText(t, &gate.Results{}); len(checkQuality(t, text)) != 0 {
		t.Errorf("of nothing: %s", text)
	}
}

func qualityText(t *testing.T, results *gate.Results) []byte {
	t.Helper()
	text, err := json.Marshal(CodeQuality(results))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

var (
	metricLine = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{[^\n]*\})? ([^ ]+)$`)
	labelsForm = regexp.MustCompile(`^\{(?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"(?:,|\}$))*$`)
	labelName  = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)="`)
)

// checkOpenMetrics holds a text to the rules of OpenMetrics 1.0 that are about gauges: each family
// once and in one piece, its descriptors before its samples, a unit that ends its name, values that are
// numbers, no label twice, no two samples with the same labels, and the end marked.
func checkOpenMetrics(t *testing.T, text string) (samples map[string]float64) {
	t.Helper()
	samples = map[string]float64{}
	body, found := strings.CutSuffix(text, "# EOF\n")
	if !found || strings.Contains(body, "# EOF") {
		t.Fatalf("the end is not marked once, at the end:\n%s", text)
	}
	families, current, described := map[string]bool{}, "", map[string]bool{}
	for line := range strings.Lines(body) {
		line, ended := strings.CutSuffix(line, "\n")
		if !ended || line == "" {
			t.Errorf("line %q", line)
		}
		if descriptor, ok := strings.CutPrefix(line, "# "); ok {
			fields := strings.SplitN(descriptor, " ", 3)
			if len(fields) != 3 {
				t.Fatalf("descriptor %q", line)
			}
			if fields[1] != current {
				if families[fields[1]] {
					t.Errorf("family %s in two pieces", fields[1])
				}
				families[fields[1]], current, described = true, fields[1], map[string]bool{}
			}
			if described[fields[0]] || described["sample"] {
				t.Errorf("%s of %s comes late or twice", fields[0], current)
			}
			described[fields[0]] = true
			switch fields[0] {
			case "TYPE":
				if fields[2] != "gauge" {
					t.Errorf("type %s", fields[2])
				}
			case "UNIT":
				if !strings.HasSuffix(current, "_"+fields[2]) {
					t.Errorf("%s does not end with its unit %s", current, fields[2])
				}
			case "HELP":
				if regexp.MustCompile(`(^|[^\\])(\\\\)*\\[^\\n"]`).MatchString(fields[2]) {
					t.Errorf("help of %s is not escaped: %s", current, fields[2])
				}
			default:
				t.Errorf("descriptor %q", line)
			}
			continue
		}
		parts := metricLine.FindStringSubmatch(line)
		if parts == nil || parts[1] != current || !described["TYPE"] {
			t.Fatalf("sample %q in family %s", line, current)
		}
		described["sample"] = true
		for _, end := range []string{"_total", "_created", "_count", "_sum", "_bucket", "_gcount", "_gsum", "_info"} {
			if strings.HasSuffix(parts[1], end) {
				t.Errorf("%s has the end of another type", parts[1])
			}
		}
		if parts[2] != "" && !labelsForm.MatchString(parts[2]) {
			t.Errorf("labels %s", parts[2])
		}
		names := map[string]bool{}
		for _, m := range labelName.FindAllStringSubmatch(parts[2], -1) {
			if names[m[1]] && !strings.Contains(parts[2], `\"`) {
				t.Errorf("label %s twice in %s", m[1], parts[2])
			}
			names[m[1]] = true
		}
		value, err := strconv.ParseFloat(parts[3], 64)
		if err != nil {
			t.Errorf("value %s", parts[3])
		}
		if _, twice := samples[parts[1]+parts[2]]; twice {
			t.Errorf("%s%s twice", parts[1], parts[2])
		}
		samples[parts[1]+parts[2]] = value
	}
	return samples
}

func TestOpenMetrics(t *testing.T) {
	results := resultsOf(t, "run", 50, "oom.count < 1", "oom.count < 100", "oom.count > 1", "growth.count{job=a\\\"b*} < 5", "reserved.peak < 1GiB", "waste.external < 20%", "waste.external.bytes < 1GiB")
	results.Verdicts[0].Gate.Severity, results.Verdicts[0].Written.Severity = gate.SeverityWarn, gate.SeverityWarn
	want := map[string]float64{
		`memprof_ooms{aggregate="median",rank="default",worst="max"}`:                  50,
		`memprof_ooms{aggregate="median",rank="default",worst="min"}`:                  50,
		`memprof_growths{aggregate="median",job="a\\\"b*",rank="default",worst="max"}`: 50,
		`memprof_reserved_peak_bytes{aggregate="median",rank="default",worst="max"}`:   50,
		`memprof_waste_external_ratio{aggregate="median",rank="default",worst="max"}`:  50,
		`memprof_waste_external_bytes{aggregate="median",rank="default",worst="max"}`:  50,
		`memprof_gate_holds{gate="oom.count < 1",severity="warn"}`:                     0,
		`memprof_gate_holds{gate="oom.count < 100",severity="error"}`:                  1,
		`memprof_gate_holds{gate="oom.count > 1",severity="error"}`:                    1,
		`memprof_gate_holds{gate="growth.count{job=a\\\"b*} < 5",severity="error"}`:    0,
		`memprof_gate_holds{gate="reserved.peak < 1GiB",severity="error"}`:             1,
		`memprof_gate_holds{gate="waste.external < 20%",severity="error"}`:             0,
		`memprof_gate_holds{gate="waste.external.bytes < 1GiB",severity="error"}`:      1,
	}
	text := string(OpenMetrics(results))
	if diff := cmp.Diff(want, checkOpenMetrics(t, text)); diff != "" {
		t.Errorf("samples (-want +got):\n%s\n%s", diff, text)
	}
	if got := string(OpenMetrics(&gate.Results{})); got != "# EOF\n" {
		t.Errorf("of nothing: %q", got)
	}
	prometheusReads(t, text)
}

// prometheusReads holds a text against the parser of Prometheus's own client, where that is installed.
func prometheusReads(t *testing.T, text string) {
	t.Helper()
	const program = "import sys\nfrom prometheus_client.openmetrics.parser import text_string_to_metric_families as parse\nprint(sum(len(f.samples) for f in parse(sys.stdin.read())))"
	for _, interpreter := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(interpreter, "-c", "import prometheus_client.openmetrics.parser").Run() != nil {
			continue
		}
		reader := exec.Command(interpreter, "-c", program)
		reader.Stdin = strings.NewReader(text)
		out, err := reader.CombinedOutput()
		if want := fmt.Sprintln(len(checkOpenMetrics(t, text))); err != nil || string(out) != want {
			t.Errorf("prometheus_client: %v\n%s, want %s samples", err, out, want)
		}
		return
	}
}

// Every metric has a name of its own there.
func TestFamilyNames(t *testing.T) {
	names := map[string]string{"memprof_gate_holds": "the gates'"}
	note := func(metric analysis.Metric) {
		name := familyName(&metric)
		if other := names[name]; other != "" {
			t.Errorf("%s and %s are both %s", metric.Name, other, name)
		}
		names[name] = metric.Name
		checkOpenMetrics(t, string(OpenMetrics(&gate.Results{Verdicts: []gate.Verdict{{Gate: &gate.Gate{Metric: metric, Op: "<"}, Written: &gate.Gate{Text: "x"}, Aggregate: "median"}}})))
	}
	for _, metric := range gate.Metrics() {
		note(metric)
	}
}
