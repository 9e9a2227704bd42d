package verify

import (
	"errors"
	"testing"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
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
				j.texts[i] += " fences=1 takes=1 gives=1"
			}
		}
		addr := one.alloc(16 * mib)
		one.free(addr)
		for _, s := range test.steps {
			if s.over > 0 {
				one.add(trace.Event{Kind: trace.KindFence, Provided: s.over})
			}
			e := trace.Event{Kind: trace.KindTake, Requested: s.wanted, Context: j.text("arena=0")}
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
		_, err := verifyPath(t, j.write(t, dataset.Ending{}, dataset.WriterOptions{}))
		right := err == nil
		assert.That(t, right == test.right && (right || errors.As(err, &wrong)), "%s: %v, want it right: %v", test.name, err, test.right)
	}
}

// TestFences: what queued work may still read is not unmapped, with pages and without.
func TestFences(t *testing.T) {
	const fence, unmap, free = -1, -2, -3
	for _, test := range []struct {
		name  string
		steps []int64 // fence, followed by its frees; unmap, of the first block; free, of the next block
		right bool
	}{
		{"no fence", []int64{free, unmap}, false},
		{"a fence", []int64{free, fence, 1, unmap}, true},
		{"a fence before the free", []int64{fence, 0, free, unmap}, false},
		{"a neighbour's free is later", []int64{free, fence, 1, free, fence, 2, unmap}, true},
		{"a fence twice", []int64{free, fence, 1, fence, 1, unmap}, true},
		{"a fence of the future", []int64{free, fence, 2}, false},
		{"a fence of the past", []int64{free, free, fence, 2, fence, 1}, false},
	} {
		for _, growth := range []bfc.Growth{bfc.Double, bfc.Needed, bfc.Pages} {
			j := newJob()
			h := j.heap(t, bfc.Options{Limit: bfc.NoLimit, Growth: growth}, bfc.DeviceOptions{VMM: true, Granularity: 2 * mib, Physical: gib, Reservation: gib})
			for i := range j.texts {
				if i > 0 {
					j.texts[i] += " fences=1"
				}
			}
			blocks := []uint64{h.alloc(8 * mib), h.alloc(8 * mib)}
			first := blocks[0]
			for i := 0; i < len(test.steps); i++ {
				switch test.steps[i] {
				case free:
					h.free(blocks[0])
					blocks = blocks[1:]
				case unmap:
					j.add(trace.Event{Kind: trace.KindReclaim, Arena: trace.NoArena, Requested: 4 * mib, Context: j.text("request")})
					h.add(trace.Event{Kind: trace.KindUnmap, Addr: int64(first), Provided: 4 * mib})
				default:
					i++
					h.add(trace.Event{Kind: trace.KindFence, Provided: test.steps[i]})
				}
			}
			var wrong *Mismatch
			_, err := verifyPath(t, j.write(t, dataset.Ending{}, dataset.WriterOptions{}))
			if right := err == nil; right != test.right || !right && !errors.As(err, &wrong) {
				t.Errorf("%s, growth %d: %v, want it right: %v", test.name, growth, err, test.right)
			}
		}
	}
}
