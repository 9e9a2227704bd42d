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
	listed, sound, _ := strings.Cut(string(text), "# ---- Jobs that do not.")
	leaks := namesOf(t, listed, "LEAKS")
	if others := namesOf(t, sound, "SOUND"); len(leaks) != 14 || len(others) != 14 {
		t.Fatalf("%d and %d jobs, want 14 each", len(leaks), len(others))
	} else {
		for _, name := range others {
			t.Run(name, func(t *testing.T) {
				got := leakOf(t, script, name, 0)
				assert.That(t, got.Verdict == "none" && got.Line == "" && got.Slope == 0, "%+v, want none", got)
			})
		}
	}
	for _, name := range leaks {
		t.Run(name, func(t *testing.T) {
			got := leakOf(t, script, name, 1)
			want := lineThatLeaks(string(text), name)
			if got.Verdict != "leak" || filepath.Base(got.Line) != want && want != "" || got.Line+got.Module == "" || got.Slope <= 0 {
				t.Errorf("%+v, want a leak in %s", got, want)
			}
		})
	}
}

// namesOf are the jobs of a list of the script.
func namesOf(t *testing.T, text, list string) []string {
	_, after, ok := strings.Cut(text, "\n"+list+" = [")
	assert.Must(t, ok, "no list %s", list)
	after, _, _ = strings.Cut(after, "]")
	return strings.FieldsFunc(after, func(r rune) bool { return strings.ContainsRune(" ,\n", r) })
}

// lineThatLeaks is "jobs.py:N" of the line that names a job; "" for none.
func lineThatLeaks(text, job string) string {
	before, _, ok := strings.Cut(text, "  # leaks: "+job+"\n")
	if !ok {
		return ""
	}
	return fmt.Sprintf("jobs.py:%d", 1+strings.Count(before, "\n"))
}

type leakFound struct {
	Verdict, Module, Line string
	Slope                 float64
}

// leakOf records a job, and returns the verdict of the report. gate is the exit code of a gate against leaks.
func leakOf(t *testing.T, script, job string, gate int) leakFound {
	dir := filepath.Join(t.TempDir(), "run")
	memprofIn(t, 0, "record", "-q", "--device", "sim", "--stacks", "python", "-o", dir, "--", "python3", script, job)
	var report struct {
		Processes []struct {
			Devices []struct{ Leak leakFound }
		}
	}
	assert.NoError(t, json.Unmarshal([]byte(memprofIn(t, 0, "report", "--json", dir)), &report))
	memprofIn(t, gate, "check", "--gate", "leak.slope <= 0B", dir)
	found := report.Processes[0].Devices[0].Leak
	text := memprofIn(t, 0, "report", dir)
	for _, want := range []string{"\n" + map[string]string{"leak": "Leak: +", "none": "No leak."}[found.Verdict], filepath.Base(found.Line)} {
		assert.That(t, found.Line == "" || strings.Contains(text, want), "the first screen has no %q:\n%s", want, text)
	}
	return found
}
