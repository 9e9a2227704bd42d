package main

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestStartup holds what every command pays before it begins: a package of ours makes little at its start.
func TestStartup(t *testing.T) {
	self, err := os.Executable()
	assert.NoError(t, err)
	cmd := exec.Command(self, "-test.run=^$")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	assert.NoError(t, err)
	packages := regexp.MustCompile(`(?m)^init (github\.com/memprof/memprof/\S+) .* (\d+) bytes`).FindAllSubmatch(out, -1)
	assert.Must(t, len(packages) >= 10, "only %d packages of ours in\n%s", len(packages), out)
	for _, p := range packages {
		if bytes, err := strconv.Atoi(string(p[2])); err != nil || bytes > 128<<10 {
			t.Errorf("package %s makes %s bytes before main begins, want at most 128 KiB", p[1], p[2])
		}
	}
}
