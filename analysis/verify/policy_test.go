package verify

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// trimmed is a job whose first growths unmap free pages, and whose excess is unmapped at the end of the
// second iteration.
func trimmed(t testing.TB) *job {
	j := newJob()
	h := j.heap(t, bfc.Options{Limit: bfc.NoLimit, Growth: bfc.Pages, Split: bfc.SplitAlways, Trim: bfc.Trim{When: bfc.TrimIteration}},
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
		if i == 3 {
			h.add(trace.Event{Kind: trace.KindReclaim, Context: j.text("request")})
			h.trimming = true
			h.a.UnmapFree(4 * mib)
			h.trimming = false
		}
		j.iterate()
	}
	h.free(h.alloc(30 * mib))
	return j
}

func isTake(e *trace.Event) bool   { return e.Kind == trace.KindUnmap && e.Requested > 0 }
func isExcess(e *trace.Event) bool { return e.Kind == trace.KindUnmap && e.Requested == 0 }

func TestPolicies(t *testing.T) {
	j := trimmed(t)
	if _, err := verifyPath(t, j.write(t, dataset.Ending{}, dataset.WriterOptions{})); err != nil {
		t.Fatal(err)
	}
	for what, is := range map[string]func(e *trace.Event) bool{"take": isTake, "excess": isExcess} {
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
				_, err := verifyPath(t, j.write(t, dataset.Ending{}, dataset.WriterOptions{}))
				var wrong *Mismatch
				assert.That(t, errors.As(err, &wrong) && wrong.Seq >= 0, "%s: error %v, want a mismatch at an event", change, err)
			}
		})
	}
}

// owned is a heap of which the test is the owner: what it unmaps or maps is in the recording,
// right or wrong. Of its first 8 MiB each iteration uses the first 4, and the first alone the rest.
type owned struct {
	*heap
	t    *testing.T
	base uint64
}

func newOwned(t *testing.T, trim bfc.Trim) *owned {
	h := newJob().heap(t, bfc.Options{Limit: bfc.NoLimit, Growth: bfc.Needed, Split: bfc.SplitAlways, Trim: trim},
		bfc.DeviceOptions{VMM: true, Granularity: 2 * mib, Physical: gib, Reservation: gib})
	o := &owned{h, t, h.alloc(8 * mib)}
	o.free(o.base)
	o.mark()
	return o
}

// iterate is a whole iteration; mark ends one, and nothing is trimmed by itself.
func (o *owned) iterate() {
	o.free(o.alloc(4 * mib))
	o.mark()
}

func (o *owned) mark() {
	o.job.add(trace.Event{Kind: trace.KindIteration, Arena: trace.NoArena, Device: trace.NoDevice, Requested: o.job.ended})
	o.job.ended++
	o.a.EndIteration()
}

func (o *owned) reclaim(device int32, why string) {
	o.job.add(trace.Event{Kind: trace.KindReclaim, Arena: trace.NoArena, Device: device, Context: o.job.text(why)})
}

// unmapFree is of 2 MiB at an offset from the start.
func (o *owned) unmapFree(offset uint64) {
	o.t.Helper()
	if err := o.a.Unmap(o.base+offset, 2*mib); err != nil {
		o.t.Fatal(err)
	}
	o.Unmap(o.base+offset, 2*mib)
}

func (o *owned) mapFree(offset uint64) {
	o.t.Helper()
	if err := o.a.Remap(o.base+offset, 2*mib); err != nil {
		o.t.Fatal(err)
	}
	o.trimming = true
	o.Map(o.base+offset, 2*mib)
	o.trimming = false
}

// TestTrims: what is unmapped for no request is excess at that moment, or of a reclaim that has
// not ended yet. Nothing is mapped for no request.
func TestTrims(t *testing.T) {
	iteration := bfc.Trim{When: bfc.TrimIteration}
	idle := bfc.Trim{When: bfc.TrimIdle, Idle: time.Second}
	const notExcess = "a reclaim before it, or an unmap of what is free and was not touched by the last iteration"
	const noReclaim = "a reclaim before it, as nothing else unmaps"
	const noRequest = "a map for a request, or by the source of the memory"
	for _, c := range []struct {
		name string
		trim bfc.Trim
		do   func(o *owned) // what comes last is wrong
		want string         // the mismatch expects, "" for none
	}{
		{"excess", iteration, func(o *owned) { o.iterate(); o.unmapFree(6 * mib) }, ""},
		{"excess in slices", iteration, func(o *owned) {
			o.iterate()
			o.unmapFree(6 * mib)
			block := o.alloc(4 * mib)
			o.unmapFree(4 * mib)
			o.free(block)
		}, ""},
		{"excess of an iteration long ago", iteration, func(o *owned) { o.iterate(); o.iterate(); o.iterate(); o.iterate(); o.unmapFree(6 * mib) }, ""},
		{"touched by the last iteration", iteration, func(o *owned) { o.iterate(); o.unmapFree(2 * mib) }, notExcess},
		{"used since the mark", iteration, func(o *owned) {
			o.iterate()
			o.free(o.alloc(6 * mib))
			o.unmapFree(6 * mib)
			o.unmapFree(4 * mib)
		}, notExcess},
		{"the first iteration ended", iteration, func(o *owned) { o.unmapFree(6 * mib) }, notExcess},
		{"a reclaim", iteration, func(o *owned) { o.reclaim(0, "empty_cache"); o.unmapFree(6 * mib); o.unmapFree(0) }, ""},
		{"a reclaim that ends what was pending", iteration, func(o *owned) {
			block := o.alloc(2 * mib)
			o.use(block, o.stream+1)
			o.freeLater(block)
			o.reclaim(0, "request")
			o.done(block)
			o.unmapFree(0)
		}, ""},
		{"a reclaim of another device", iteration, func(o *owned) { o.reclaim(1, "empty_cache"); o.unmapFree(0) }, notExcess},
		{"a reclaim by the framework", iteration, func(o *owned) { o.reclaim(0, "framework"); o.unmapFree(0) }, notExcess},
		{"a reclaim before a request", iteration, func(o *owned) {
			o.reclaim(0, "empty_cache")
			o.unmapFree(6 * mib)
			o.free(o.alloc(4 * mib))
			o.unmapFree(0)
		}, notExcess},
		{"a reclaim before a mark", iteration, func(o *owned) { o.free(o.alloc(4 * mib)); o.reclaim(0, "empty_cache"); o.mark(); o.unmapFree(0) }, notExcess},
		{"idleness that reclaims", idle, func(o *owned) { o.reclaim(0, "idle"); o.unmapFree(0) }, ""},
		{"idleness by itself", idle, func(o *owned) { o.iterate(); o.unmapFree(6 * mib) }, noReclaim},
		{"no trim, as a pool that ends", bfc.Trim{}, func(o *owned) { o.unmapFree(0) }, ""},
		{"a map for no request", iteration, func(o *owned) { o.reclaim(0, "empty_cache"); o.unmapFree(0); o.mapFree(0) }, noRequest},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := newOwned(t, c.trim)
			c.do(o)
			last := o.job.events[len(o.job.events)-1]
			o.free(o.alloc(8 * mib))
			_, wrong := replayAll(o.job.events, o.job.texts)
			got := ""
			if wrong != nil {
				got = wrong.Error()
			}
			want := ""
			if c.want != "" {
				want = fmt.Sprintf("event %d (%v): expected %s, found %s", last.Seq, last.Kind, c.want, describe(&last))
			}
			assert.Equal(t, got, want)
		})
	}
}

// A recording of a policy that was removed is refused, which is no mismatch.
func TestRemovedPolicies(t *testing.T) {
	j := newJob()
	h := j.heap(t, bfc.Options{Limit: bfc.NoLimit}, bfc.DeviceOptions{VMM: true, Granularity: 2 * mib, Physical: gib, Reservation: gib})
	h.free(h.alloc(mib))
	j.events[0].Context = j.text(j.texts[j.events[0].Context] + " placement=planned")
	_, err := verifyPath(t, j.write(t, dataset.Ending{}, dataset.WriterOptions{}))
	var wrong *Mismatch
	want := "rank0: the recording has a policy that this version no longer has, placement=planned: record the job again"
	assert.That(t, errors.Is(err, bfc.ErrGone) && !errors.As(err, &wrong) && err.Error() == want, "error %v, want %s", err, want)
}
