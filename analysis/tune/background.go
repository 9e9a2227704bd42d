package tune

import (
	"slices"

	"github.com/memprof/memprof/bfc"
)

// What the hook does in a thread of its own, beside the job, is done here at once.

// trim unmaps in all heaps what the iteration that ended has not touched. While a stream is captured nothing is unmapped.
func (p *replay) trim() {
	if p.policy.Trim.When != bfc.TrimIteration || p.captures > 0 {
		return
	}
	for _, h := range slices.Backward(p.born) {
		if h != nil && h.trimmed {
			h.trim()
		}
	}
}

// activity is when a device had its last request or free.
type activity struct {
	last    int64 // ns
	trimmed bool  // its free memory was unmapped since
}

// idle unmaps all free memory of devices where nothing was requested or freed for as long as the policy says. It waits for
// the device, so that pending blocks are freed.
func (p *replay) idle(o *op) {
	if p.policy.Trim.When != bfc.TrimIdle {
		return
	}
	switch o.kind {
	case opDone, opRelease, opUnpin: // the recorded trim did it, or the request that comes next: what they say holds for this trim, too
		return
	}
	for device, a := range p.activity {
		if !a.trimmed && p.captures == 0 && o.time-a.last >= p.policy.Trim.Idle.Nanoseconds() {
			p.activity[device] = activity{a.last, true}
			p.freePending(device)
			p.reclaim(device, everything)
		}
	}
	switch o.kind {
	case opAlloc, opPend, opFree:
		if h := p.heaps[o.arena]; h != nil && !h.paused {
			p.activity[h.shape.device] = activity{last: o.time}
		}
	}
}
