package twin_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/memprof/memprof/bfc"
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
	if err != nil {
		t.Fatal(err)
	}
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
	values := map[string][]string{
		"growth": {"double", "needed", "none", "step:4096", "pages"}, "split": {"classic", "always", "1048576"}, "small-arenas": {"0", "65536"},
		"trim": {"never", "iteration", "idle:5000", "pressure"}, "placement": {"best-fit", "planned"},
		"headroom": {"0", "12345"}, "limit": {"0", "1073741824"}, "handle": {"0", "65536", "5000000", "536870912"},
	}
	policies := []bfc.Policy{bfc.Classic()}
	for _, d := range bfc.Dimensions {
		var combined []bfc.Policy
		for _, p := range policies {
			for _, text := range values[d.Name] {
				if err := d.Set(&p, text, bfc.Plain); err != nil {
					t.Fatal(err)
				}
				combined = append(combined, p)
			}
		}
		policies = combined
	}
	if len(policies) != 5*3*2*4*2*2*2*4 {
		t.Fatalf("%d policies: a dimension has no values here", len(policies))
	}
	var in, want strings.Builder
	for i, p := range policies {
		for bits := range 32 {
			a := bfc.Arena{
				OtherStream: bits&1 != 0, Pool: bits&2 != 0, Tag: bits&4 != 0, Small: bits&8 != 0, Graphs: bits&16 != 0,
				Total: []uint64{80 << 30, 1 << 30}[i/7%2], Granularity: []uint64{2 << 20, 64 << 20}[i/3%2],
			}
			fmt.Fprintf(&in, "%s stream=%d pool=%d tag=%d small=%d graphs=%d total=%d granularity=%d\n", p.HookOptions(),
				truth(a.OtherStream), truth(a.Pool), truth(a.Tag), truth(a.Small), truth(a.Graphs), a.Total, a.Granularity)
			got := p.ForArena(a)
			fmt.Fprintf(&want, "  %s limit=%d handle=%d page=%d reservation=%d unmaps=%d fine=%d\n", got.Fields(), got.Limit, got.Handle, got.Page, got.Reservation, truth(got.Unmaps), truth(got.Fine))
		}
	}
	comparePolicies(t, program, in.String(), want.String())
}

// comparePolicies compares the lines that the C twin prints with those of Go.
func comparePolicies(t *testing.T, program, in, want string) {
	t.Helper()
	command := exec.Command(program, "policies")
	command.Stdin = strings.NewReader(in)
	var complaints bytes.Buffer
	command.Stderr = &complaints
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, complaints.String())
	}
	got, inputs, lines := strings.SplitAfter(string(out), "\n"), strings.SplitAfter(in, "\n"), strings.SplitAfter(want, "\n")
	for i := range lines {
		if i >= len(got) || got[i] != lines[i] {
			t.Fatalf("of %d policies and arenas, number %d: %sC has  %sGo has %s", len(lines)-1, i, inputs[i], append(got, "nothing")[min(i, len(got))], lines[i])
		}
	}
	if len(got) != len(lines) {
		t.Errorf("C printed %d lines, Go %d", len(got), len(lines))
	}
}
