package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestLeaks records the jobs of testdata/leaks on the simulated GPU with their stacks: each of the first 14 leaks in the line that
// names it (the memory that a library takes has no line), none of the other 14 does, and the gate has the same verdict.
func TestLeaks(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3 here")
	}
	const script = "testdata/leaks/jobs.py"
	text, err := os.ReadFile(script)
	assert.NoError(t, err)
	for list, verdict := range map[string]string{"LEAKS": "leak", "SOUND": "none"} {
		_, names, _ := strings.Cut(string(text), "\n"+list+" = [")
		names, _, _ = strings.Cut(names, "]")
		jobs := strings.FieldsFunc(names, func(r rune) bool { return strings.ContainsRune(" ,\n", r) })
		assert.That(t, len(jobs) == 14, "%s: %d jobs, want 14", list, len(jobs))
		for _, job := range jobs {
			t.Run(job, func(t *testing.T) {
				got := leakOf(t, script, job, verdict)
				if verdict == "none" {
					assert.That(t, got == leakFound{Verdict: verdict}, "%+v, want none", got)
					return
				}
				want := "" // of the memory that a library takes
				if before, _, ok := strings.Cut(string(text), "  # leaks: "+job+"\n"); ok {
					want = fmt.Sprintf("jobs.py:%d", 1+strings.Count(before, "\n"))
				}
				assert.That(t, got.Verdict == verdict && (filepath.Base(got.Line) == want || want == "") && got.Line+got.Module != "" && got.Slope > 0,
					"%+v, want a leak in %s", got, want)
			})
		}
	}
}

type leakFound struct {
	Verdict, Module, Line string
	Slope                 float64
}

// leakOf records a job, and returns the verdict of the report, which the first screen and a gate against leaks have, too.
func leakOf(t *testing.T, script, job, verdict string) leakFound {
	dir := filepath.Join(t.TempDir(), "run")
	memprofIn(t, 0, "record", "-q", "--device", "sim", "--stacks", "python", "-o", dir, "--", "python3", script, job)
	var report struct {
		Processes []struct {
			Devices []struct{ Leak leakFound }
		}
	}
	assert.NoError(t, json.Unmarshal([]byte(memprofIn(t, 0, "report", "--json", dir)), &report))
	memprofIn(t, map[string]int{"leak": 1}[verdict], "check", "--gate", "leak.slope <= 0B", dir)
	found, text := report.Processes[0].Devices[0].Leak, memprofIn(t, 0, "report", dir)
	for _, want := range []string{map[string]string{"leak": "\nLeak: +", "none": "\nNo leak."}[verdict], strings.TrimPrefix(filepath.Base(found.Line), ".")} {
		assert.That(t, strings.Contains(text, want), "the first screen has no %q:\n%s", want, text)
	}
	return found
}
