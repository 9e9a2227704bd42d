package twin_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestPolicies compares the policy tables and the rule for arenas of both allocators.
func TestPolicies(t *testing.T) {
	program := buildTwin(t, true)
	t.Run("golden", func(t *testing.T) { policyGolden(t, program) })
	t.Run("for arena", func(t *testing.T) { forArena(t, program) })
}

// policyGolden has the allocator in C read the policies of bfc/testdata/policies.txt, and print
// what it has for them.
func policyGolden(t *testing.T, program string) {
	golden, err := os.ReadFile("../../bfc/testdata/policies.txt")
	assert.NoError(t, err)
	var in, want strings.Builder
	for i, line := range strings.SplitAfter(string(golden), "\n") {
		if i%2 == 0 {
			in.WriteString(line)
		} else {
			want.WriteString(line)
		}
	}
	comparePolicies(t, program, in.String(), want.String())
}

// forArena compares what each kind of arena gets, for all combinations of the values of a
// policy that it depends on.
func forArena(t *testing.T, program string) {
	var in, want strings.Builder
	number := 0
	for _, preset := range bfc.Presets() {
		for _, trim := range []bfc.Trim{{}, {When: bfc.TrimIteration}, {When: bfc.TrimIdle, Idle: 5000}} {
			for _, limit := range []uint64{0, 1 << 30} {
				for _, handle := range []uint64{0, 65536, 5_000_000, 512 << 20} {
					p := bfc.Policy{Preset: preset, Limit: limit, Headroom: []uint64{0, 12345}[number%2], Handle: handle, Trim: trim}
					for bits := range 16 {
						writeArena(&in, &want, p, bfc.Arena{
							OtherStream: bits&1 != 0, Pool: bits&2 != 0, Tag: bits&4 != 0, Graphs: bits&8 != 0,
							Total: []uint64{80 << 30, 1 << 30}[number/7%2], Granularity: []uint64{2 << 20, 64 << 20}[number/3%2],
						})
					}
					number++
				}
			}
		}
	}
	comparePolicies(t, program, in.String(), want.String())
}

// writeArena writes a policy and an arena, and what the arena gets.
func writeArena(in, want *strings.Builder, p bfc.Policy, a bfc.Arena) {
	fmt.Fprintf(in, "%s stream=%d pool=%d tag=%d graphs=%d total=%d granularity=%d\n", p.HookOptions(),
		truth(a.OtherStream), truth(a.Pool), truth(a.Tag), truth(a.Graphs), a.Total, a.Granularity)
	got := p.ForArena(a)
	fmt.Fprintf(want, "  %s limit=%d handle=%d page=%d reservation=%d fine=%d\n", got.Fields(), got.Limit, got.Handle, got.Page, got.Reservation, truth(got.Fine))
}

// comparePolicies compares the lines that the C twin prints with those of Go.
func comparePolicies(t *testing.T, program, in, want string) {
	t.Helper()
	command := exec.Command(program, "policies")
	command.Stdin = strings.NewReader(in)
	var complaints bytes.Buffer
	command.Stderr = &complaints
	out, err := command.Output()
	assert.Must(t, err == nil, "%v\n%s", err, complaints.String())
	got, inputs, lines := strings.SplitAfter(string(out), "\n"), strings.SplitAfter(in, "\n"), strings.SplitAfter(want, "\n")
	for i := range lines {
		if i >= len(got) || got[i] != lines[i] {
			t.Fatalf("of %d policies and arenas, number %d: %sC has  %sGo has %s", len(lines)-1, i, inputs[i], append(got, "nothing")[min(i, len(got))], lines[i])
		}
	}
	assert.That(t, len(got) == len(lines), "C printed %d lines, Go %d", len(got), len(lines))
}
