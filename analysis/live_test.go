package analysis

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// At the last event Live knows what Run's results say of the end.
func TestLive(t *testing.T) {
	r := oneStep(t)
	r.Mark(41)
	want := run(t, r, Options{})
	d := &want.Devices[0]
	live := NewLive(Options{Text: r.Strings.Text})
	if state := live.State(); state.Seq != -1 || state.Iteration != -1 || state.Devices != nil {
		t.Errorf("of nothing: %+v", state)
	}
	phases := map[string]bool{}
	for i := range r.Events {
		e := r.Events[i]
		if err := live.Add(&e); err != nil {
			t.Fatal(err)
		}
		phases[live.State().Phase] = true
	}
	state := live.State()
	wantDevice := LiveDevice{Device: 0, Now: d.Final, MaxT: d.MaxT, MaxR: d.MaxR}
	if diff := cmp.Diff([]LiveDevice{wantDevice}, state.Devices); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	arena := want.Arenas[0]
	if a := state.Arenas; len(a) != 1 || !cmp.Equal(a[0].Now, arena.Final) || a[0].MaxR != arena.MaxR || a[0].Info.ID != arena.ID {
		t.Errorf("arenas %+v, want %+v", a, arena)
	}
	if state.Iteration != 41 || state.Seq != int64(len(r.Events)-1) || state.Phase != "other" {
		t.Errorf("iteration %d, seq %d, phase %s", state.Iteration, state.Seq, state.Phase)
	}
	for _, phase := range []string{"data", "forward", "backward", "other"} {
		if !phases[phase] {
			t.Errorf("phase %s never seen", phase)
		}
	}
	again := r.Events[len(r.Events)-2] // a free, which was one already
	if err := live.Add(&again); err == nil {
		t.Error("what cannot be was taken")
	}
}
