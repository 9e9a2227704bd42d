package verify

import (
	"errors"
	"testing"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestRegistered wants pages that others know by their physical memory to be left where they are: by requests, which take
// other pages, and by unmaps.
func TestRegistered(t *testing.T) {
	device := bfc.DeviceOptions{VMM: true, Granularity: 2 * mib, Physical: gib, Reservation: gib}
	registering := func(t *testing.T, honest, deregister bool) *job {
		j := newJob()
		h := j.heap(t, bfc.Options{Limit: bfc.NoLimit, Growth: bfc.Pages, Split: bfc.SplitAlways}, device)
		a, _ := h.alloc(4*mib), h.alloc(2*mib)
		h.add(trace.Event{Kind: trace.KindRegister, Addr: int64(a), Provided: 4 * mib, Context: j.text("by=ncclCommRegister")})
		if honest {
			h.a.Register(a, 4*mib)
		}
		h.free(a)
		if deregister {
			h.add(trace.Event{Kind: trace.KindDeregister, Addr: int64(a), Provided: 4 * mib})
			if honest {
				h.a.Deregister(a, 4*mib)
			}
		}
		h.alloc(8 * mib) // takes a's pages, unless they are registered
		return j
	}
	for _, deregister := range []bool{false, true} {
		_, err := verifyPath(t, registering(t, true, deregister).write(t, dataset.Ending{}, dataset.WriterOptions{}))
		assert.That(t, err == nil, "deregistered %v: %v", deregister, err)
	}
	var wrong *Mismatch
	_, err := verifyPath(t, registering(t, false, false).write(t, dataset.Ending{}, dataset.WriterOptions{}))
	assert.That(t, errors.As(err, &wrong), "registered pages were taken: %v, want a mismatch", err)
	j := newJob()
	h := j.heap(t, bfc.Options{Limit: bfc.NoLimit}, device)
	h.alloc(mib)
	h.add(trace.Event{Kind: trace.KindDeregister, Addr: 4096, Provided: mib})
	if _, err := verifyPath(t, j.write(t, dataset.Ending{}, dataset.WriterOptions{})); !errors.As(err, &wrong) {
		t.Errorf("a deregister without a register: %v, want a mismatch", err)
	}
}
