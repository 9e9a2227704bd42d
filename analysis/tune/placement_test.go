package tune

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// iterations repeats the steps of one: "a=6" asks an arena for 6 MiB, and "-a" frees the oldest a,
// which is nothing where there is none yet.
func (j *job) iterations(n int, arena int32, steps string) *job {
	live := map[string][]int64{}
	addr := int64(0)
	for range n {
		for _, step := range strings.Fields(steps) {
			if name, frees := strings.CutPrefix(step, "-"); frees {
				if of := live[name]; len(of) > 0 {
					j.free(arena, of[0])
					live[name] = of[1:]
				}
				continue
			}
			name, size, _ := strings.Cut(step, "=")
			bytes, err := strconv.ParseInt(size, 10, 64)
			if err != nil {
				panic(err)
			}
			addr++
			j.alloc(arena, addr, bytes*mib)
			live[name] = append(live[name], addr)
		}
		j.mark()
	}
	return j
}

// By best fit c lies where a was, so that d finds no room there; a plan puts c elsewhere.
const crossed = "a=6 b=1 -a c=2 d=6 -b -c -d"

// Of 7 iterations the first takes 10 MiB, the second needs 14, of which its requests map what the
// first has taken, and from the third on the plan needs 10. Without a trim the 14 stay.
func TestPlannedByHand(t *testing.T) {
	j := newJob().arena(0, 1<<40, mainArena).iterations(7, 0, crossed)
	got := j.tune(t, 0, "needed always iteration", "needed always iteration 0 planned", "needed always never 0 planned")
	costs := DefaultCosts()
	handle := costs.Create + costs.Map + costs.Access
	first := 9*handle + 2*(costs.Unmap+costs.Release) // 8 MiB, then 6 of which 4 are taken from where a was, and mapped again
	want := []Outcome{
		{PeakR: 14 * mib, SteadyR: 14 * mib, FirstIdle: 1 - 9./10, LaterIdle: 1 - 9./14, TotalCost: first},
		{PeakR: 14 * mib, SteadyR: 10 * mib, FirstIdle: 1 - 9./10, LaterIdle: (1 - 9./14 + 5*(1-9./10)) / 6, TotalCost: first},
		{PeakR: 14 * mib, SteadyR: 14 * mib, FirstIdle: 1 - 9./10, LaterIdle: 1 - 9./14, TotalCost: first},
	}
	for i := range want {
		want[i].Iterations, want[i].Duration, want[i].PeakT, want[i].PeakC = 7, 9e6, 9*mib, 9*mib
	}
	close := cmpopts.EquateApprox(0, 1e-12)
	if diff := cmp.Diff(want, got, close, cmpopts.IgnoreFields(Outcome{}, "Policy")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Without a trim this job tells the placements apart: the plan's first iteration goes elsewhere.
const moved = "b=6 c=8 -a -b -c a=2"

func TestWhatIsPlanned(t *testing.T) {
	side := strings.Replace(mainArena, "main=1", "main=0", 1)
	for _, test := range []struct {
		name    string
		job     *job
		policy  string
		r       int64 // MiB
		planned int64
	}{
		{"the main arena", newJob().arena(0, 1<<40, mainArena), "step:2097152 always never 0", 16, 22},
		{"small requests", newJob().arena(0, 1<<40, mainArena), "step:2097152 always never 16777216", 16, 22},
		{"another stream's", newJob().arenaOf(7, 0, side), "needed always never 0", 16, 22},
		{"not a pool", newJob().arena(0, 1<<40, strings.Replace(side, "pool=0.0", "pool=0.7", 1)), "needed always never 0", 16, 16},
		{"not a tag", newJob().arena(0, 1<<40, strings.Replace(side, "tag=", "tag=kv", 1)), "needed always never 0", 16, 16},
	} {
		test.job.iterations(7, 0, moved)
		o := test.job.tune(t, 0, test.policy+" best-fit", test.policy+" planned")
		if o[0].PeakR != test.r*mib || o[1].PeakR != test.planned*mib {
			t.Errorf("%s: R %d MiB by best fit and %d planned, want %d and %d", test.name, o[0].PeakR/mib, o[1].PeakR/mib, test.r, test.planned)
		}
	}
}
