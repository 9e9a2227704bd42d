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
	for _, d := range p.devices {
		if d.active && !d.trimmed && p.captures == 0 && o.time-d.last >= p.policy.Trim.Idle.Nanoseconds() {
			d.trimmed = true
			p.freePending(d)
			p.reclaim(d, everything)
		}
	}
	switch o.kind {
	case opAlloc, opPend, opFree:
		if h := p.heaps[o.arena]; h != nil && !h.paused {
			h.on.active, h.on.trimmed, h.on.last = true, false, o.time
		}
	}
}
