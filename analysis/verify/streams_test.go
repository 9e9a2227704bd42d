package verify

import (
	"errors"
	"strings"
	"testing"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
)

// TestTakes wants a request to look at what another arena holds idle before its own maps more, and to take of it what the
// recorded state of that arena's stream lets it take: no more, and nothing else.
func TestTakes(t *testing.T) {
	type step struct {
		wanted, over int64
		unmaps       uint64 // bytes, from the end of the idle pages
		none         bool   // no arena could be asked for
	}
	for _, test := range []struct {
		name  string
		steps []step
		grows uint64 // bytes
		right bool
	}{
		{"over", []step{{wanted: 12 * mib, over: 1, unmaps: 12 * mib}}, 12 * mib, true},
		{"not over", []step{{wanted: 12 * mib, over: 0}}, 12 * mib, true},
		{"more than is idle", []step{{wanted: 16 * mib, over: 1, unmaps: 16 * mib}}, 20 * mib, true},
		{"the driver refused", []step{{wanted: 12 * mib, over: 1}}, 12 * mib, true},
		{"a capture", []step{{wanted: 12 * mib, none: true}}, 12 * mib, true},
		{"no take", nil, 12 * mib, false},
		{"not over, yet taken", []step{{wanted: 12 * mib, over: 0, unmaps: 12 * mib}}, 12 * mib, false},
		{"more than wanted", []step{{wanted: 12 * mib, over: 1, unmaps: 16 * mib}}, 12 * mib, false},
		{"less wanted", []step{{wanted: 8 * mib, over: 1, unmaps: 8 * mib}}, 12 * mib, false},
		{"frees that were not made", []step{{wanted: 12 * mib, over: 2, unmaps: 12 * mib}}, 12 * mib, false},
		{"twice", []step{{wanted: 12 * mib, over: 0}, {wanted: 12 * mib, over: 1, unmaps: 12 * mib}}, 12 * mib, false},
	} {
		j := newJob()
		device := bfc.DeviceOptions{VMM: true, Granularity: 4 * mib, Physical: gib, Reservation: gib}
		options := bfc.Options{Limit: bfc.NoLimit, Growth: bfc.Pages, Split: bfc.SplitAlways}
		one, two := j.heap(t, options, device), j.heap(t, options, device)
		for i := range j.texts {
			if i > 0 {
				j.texts[i] += " takes=1 gives=1"
			}
		}
		addr := one.alloc(16 * mib)
		one.free(addr)
		for _, s := range test.steps {
			e := trace.Event{Kind: trace.KindTake, Requested: s.wanted, Provided: s.over, Context: j.text("arena=0")}
			if s.none {
				e.Context = 0
			}
			two.add(e)
			if s.unmaps > 0 {
				one.add(trace.Event{Kind: trace.KindUnmap, Addr: int64(addr + 16*mib - s.unmaps), Provided: int64(s.unmaps)})
			}
		}
		two.alloc(test.grows)
		var wrong *Mismatch
		_, err := verifyPath(t, j.write(t, trace.Ending{}, trace.WriterOptions{}))
		if right := err == nil; right != test.right || !right && !errors.As(err, &wrong) {
			t.Errorf("%s: %v, want it right: %v", test.name, err, test.right)
		}
	}
}

// TestReclaimOfStreams: a reclaim that has waited for streams only unmaps nothing in arenas of pools, tags and default streams of threads.
func TestReclaimOfStreams(t *testing.T) {
	for _, test := range []struct {
		name, why, pool, tag string
		stream               int64
		right                bool
	}{
		{"of a stream", "streams", "0.0", "", 64, true},
		{"of the default stream", "streams", "0.0", "", 0, true},
		{"of a pool", "streams", "0.7", "", 64, false},
		{"of a tag", "streams", "0.0", "weights", 64, false},
		{"of a thread's default stream", "streams", "0.0", "", 2, false},
		{"of a tag, the device waited for", "request", "0.0", "weights", 64, true},
	} {
		j := newJob()
		h := j.heap(t, bfc.Options{Limit: bfc.NoLimit, Growth: bfc.Needed}, bfc.DeviceOptions{VMM: true, Granularity: 2 * mib, Physical: gib, Reservation: gib})
		for i := range j.texts {
			j.texts[i] = strings.Replace(j.texts[i], "pool=0 tag= ", "pool="+test.pool+" tag="+test.tag+" ", 1)
		}
		addr := h.alloc(8 * mib)
		h.free(addr)
		j.add(trace.Event{Kind: trace.KindReclaim, Arena: trace.NoArena, Requested: 4 * mib, Context: j.text(test.why)})
		h.add(trace.Event{Kind: trace.KindUnmap, Addr: int64(addr), Provided: 4 * mib})
		for i := range j.events {
			j.events[i].Stream = test.stream
		}
		var wrong *Mismatch
		_, err := verifyPath(t, j.write(t, trace.Ending{}, trace.WriterOptions{}))
		if right := err == nil; right != test.right || !right && !errors.As(err, &wrong) {
			t.Errorf("%s: %v, want it right: %v", test.name, err, test.right)
		}
	}
}
