package analysis

import (
	"slices"
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
	// R over time: its greatest value is that of the device, its last one R now, and each stretch has the points in it.
	course := live.Course(0, 16)
	if len(course) != 16 || slices.Max(course) != d.MaxR || course[15] < d.Final.R || live.Course(7, 16) != nil {
		t.Errorf("course %v, greatest %d, at last %d", course, d.MaxR, d.Final.R)
	}
	for i := 1; i < 16; i++ { // nothing is unmapped here
		if course[i] < course[i-1] {
			t.Errorf("course %v falls", course)
		}
	}
	// What is live now is what the analysis has at the end, and metrics that have a value while a job runs are those of the end.
	held, err := live.Held(0)
	if err != nil || held == nil || !held.Known {
		t.Fatalf("held %+v, %v", held, err)
	}
	sum := held.Categories.Rest.Requested
	for _, g := range held.Categories.Groups {
		sum += g.Requested
	}
	if sum != d.Final.T {
		t.Errorf("%d bytes by category, %d live", sum, d.Final.T)
	}
	result := live.Subjects(0)
	for _, name := range MetricsOf(Running) {
		m, ok := LookupMetric(name)
		if !ok {
			t.Errorf("there is no metric %s", name)
			continue
		}
		x, _, xOK := m.Value(d.Subjects())
		y, _, yOK := m.Value(result)
		if x != y || xOK != yOK {
			t.Errorf("%s is %v %t, at the end %v %t", name, y, yOK, x, xOK)
		}
	}
	again := r.Events[len(r.Events)-2] // a free, which was one already
	if err := live.Add(&again); err == nil {
		t.Error("what cannot be was taken")
	}
}
