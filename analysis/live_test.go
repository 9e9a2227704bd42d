package analysis

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/trace/tracetest/assert"
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
		assert.NoError(t, live.Add(&e))
		phases[live.State().Phase] = true
	}
	state := live.State()
	wantDevice := LiveDevice{Device: 0, Now: d.Final, MaxT: d.MaxT, MaxR: d.MaxR}
	assert.Diff(t, []LiveDevice{wantDevice}, state.Devices, "devices")
	arena := want.Arenas[0]
	a := state.Arenas
	assert.That(t, len(a) == 1 && cmp.Equal(a[0].Now, arena.Final) && a[0].MaxR == arena.MaxR && a[0].Info.ID == arena.ID, "arenas %+v, want %+v", a, arena)
	assert.That(t, state.Iteration == 41 && state.Seq == int64(len(r.Events)-1) && state.Phase == "other",
		"iteration %d, seq %d, phase %s", state.Iteration, state.Seq, state.Phase)
	for _, phase := range []string{"data", "forward", "backward", "other"} {
		assert.That(t, phases[phase], "phase %s never seen", phase)
	}
	// R over time: its greatest value is that of the device, its last one R now, and each stretch has the points in it.
	course := live.Course(0, 16)
	assert.That(t, len(course) == 16 && slices.Max(course) == d.MaxR && course[15] >= d.Final.R && live.Course(7, 16) == nil,
		"course %v, greatest %d, at last %d", course, d.MaxR, d.Final.R)
	for i := 1; i < 16; i++ { // nothing is unmapped here
		assert.That(t, course[i] >= course[i-1], "course %v falls", course)
	}
	// What is live now is what the analysis has at the end.
	held, err := live.Held(0)
	assert.Must(t, err == nil && held != nil && held.Known, "held %+v, %v", held, err)
	sum := held.Categories.Rest.Requested
	for _, g := range held.Categories.Groups {
		sum += g.Requested
	}
	assert.That(t, sum == d.Final.T, "%d bytes by category, %d live", sum, d.Final.T)
	again := r.Events[len(r.Events)-2] // a free, which was one already
	if err := live.Add(&again); err == nil {
		t.Error("what cannot be was taken")
	}
}
