package verify

import (
	"errors"
	"testing"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
)

// trimmed is a job of which the first growths take granules back, which are mapped ahead of
// the second iteration, and whose excess is given back at the end of the third.
func trimmed(t testing.TB) *job {
	j := newJob()
	h := j.heap(t, bfc.Options{Limit: bfc.NoLimit, Growth: bfc.Needed, Split: bfc.SplitAlways, Trim: bfc.Trim{When: bfc.TrimIteration}},
		bfc.DeviceOptions{VMM: true, Granularity: 2 * mib, Physical: gib, Reservation: gib})
	for i := range 4 {
		first, wall := h.alloc(8*mib), h.alloc(2*mib)
		h.free(first)
		second := h.alloc(12 * mib)
		h.free(second)
		if i == 0 {
			h.free(h.alloc(30 * mib))
		}
		h.free(wall)
		j.iterate()
	}
	h.free(h.alloc(30 * mib))
	return j
}

func isTake(e *trace.Event) bool   { return e.Kind == trace.KindUnmap && e.Requested > 0 }
func isAhead(e *trace.Event) bool  { return e.Kind == trace.KindMap && e.Requested == 0 }
func isExcess(e *trace.Event) bool { return e.Kind == trace.KindUnmap && e.Requested == 0 }

func TestPolicies(t *testing.T) {
	j := trimmed(t)
	if _, err := verifyPath(t, j.write(t, trace.Ending{}, trace.WriterOptions{})); err != nil {
		t.Fatal(err)
	}
	for what, is := range map[string]func(e *trace.Event) bool{"take": isTake, "map ahead": isAhead, "excess": isExcess} {
		j.nth(t, 0, is) // fails without one
		t.Run(what, func(t *testing.T) {
			for change, edit := range map[string]func(j *job, at int){
				"elsewhere": func(j *job, at int) { j.events[at].Addr += 2 * mib },
				"left out":  func(j *job, at int) { j.events[at].Kind = trace.KindCheckpoint },
				"of more":   func(j *job, at int) { j.events[at].Provided += 2 * mib },
				"twice":     func(j *job, at int) { j.events = renumber(append(j.events[:at+1:at+1], j.events[at:]...)) },
			} {
				j := trimmed(t)
				edit(j, int(j.nth(t, 0, is)))
				_, err := verifyPath(t, j.write(t, trace.Ending{}, trace.WriterOptions{}))
				var wrong *Mismatch
				if !errors.As(err, &wrong) || wrong.Seq < 0 {
					t.Errorf("%s: error %v, want a mismatch at an event", change, err)
				}
			}
		})
	}
}
