package attribution

import (
	"cmp"
	"slices"

	"github.com/memprof/memprof/analysis/ledger"
)

// PhaseUse is what a phase did with the memory of a device.
type PhaseUse struct {
	Phase              string
	PeakT, PeakC       int64 // greatest bytes while it was the innermost, its first moment included; PeakC is -1 if it is not known
	Allocs, AllocBytes int64
	Duration           int64 // ns as the innermost
}

// phaseCounts is a PhaseUse in the making; it counts once the phase was open.
type phaseCounts struct {
	used               bool
	peakT, peakC       int64
	allocs, allocBytes int64
	duration           int64
}

// DevicePhases measures the phases on one device. Of its methods, t and c are the bytes of T and C
// after the event at hand, c -1 where it is not known.
type DevicePhases struct {
	now    *phaseCounts // of the innermost open phase
	since  int64        // when it became that
	counts [MaxPhases]phaseCounts
}

// Start forgets everything so far: nothing, or what the opening rows of a part restated.
func (p *DevicePhases) Start(phase uint8, time, t, c int64) {
	p.counts = [MaxPhases]phaseCounts{}
	p.now, p.since = &p.counts[phase], time
	p.Enter(phase, time, t, c)
}

// Enter makes a phase the innermost one.
func (p *DevicePhases) Enter(phase uint8, time, t, c int64) {
	p.now.duration += time - p.since
	p.now, p.since = &p.counts[phase], time
	p.now.used = true
	p.Observe(t, c)
}

// Alloc counts an allocation of so many requested bytes.
func (p *DevicePhases) Alloc(bytes int64) {
	p.now.allocs++
	p.now.allocBytes += bytes
}

// Observe takes T and C after an event.
func (p *DevicePhases) Observe(t, c int64) {
	p.now.peakT, p.now.peakC = max(p.now.peakT, t), max(p.now.peakC, c)
}

// Finish returns the phases of the whole trace; nil where it has none.
func (p *DevicePhases) Finish(ps *Phases, time, t, c int64) []PhaseUse {
	if !ps.Any() {
		return nil
	}
	p.Enter(ps.Current, time, t, c)
	return ps.uses(&p.counts)
}

// uses are the phases that were open: first the phases of training in their order, then the job's own
// as they first came, then what was outside of all.
func (p *Phases) uses(counts *[MaxPhases]phaseCounts) []PhaseUse {
	var uses []PhaseUse
	for i := range counts {
		if c := &counts[i]; c.used {
			uses = append(uses, PhaseUse{p.Name(uint8(i)), c.peakT, ledger.KnownC(c.peakC, c.peakT), c.allocs, c.allocBytes, c.duration})
		}
	}
	rank := func(u *PhaseUse) int {
		at := slices.Index(trainingPhases, u.Phase)
		switch {
		case u.Phase == "other":
			return len(trainingPhases) + 1
		case at < 0:
			return len(trainingPhases)
		}
		return at
	}
	slices.SortStableFunc(uses, func(x, y PhaseUse) int { return cmp.Compare(rank(&x), rank(&y)) })
	return uses
}
