package analysis

import (
	"slices"

	"github.com/memprof/memprof/trace"
)

// grew remembers a growth, seen before the memory is mapped, until the end of the request
// says what it was for.
func (a *analyzer) grew(ar *arena, e *trace.Event) {
	if k := ar.device.keys; k != nil {
		k.growth(ar.device, e.Seq, e.Time)
	}
	n := len(ar.waiting)
	if n == cap(ar.waiting) {
		ar.waiting = append(ar.waiting, waitingGrowth{})
	} else {
		ar.waiting = ar.waiting[:n+1] // with the runs slice of an earlier growth
	}
	w := &ar.waiting[n]
	w.runs = w.runs[:0]
	if !ar.sampled {
		w.runs = a.ledger.freeRuns(ar, w.runs)
	}
	w.asked = e.Requested
	w.Growth = Growth{
		Seq: e.Seq, Time: e.Time, Arena: ar.info.ID, Iteration: ar.device.iteration,
		Grown: e.Provided, Reserved: ar.device.r + e.Provided,
		Free: ar.reserve + ar.external, LargestFree: largest(w.runs),
	}
	if ar.sampled {
		w.Free = -1
	}
}

// resolve ends the growths of a request of size bytes, which was served or failed.
func (a *analyzer) resolve(ar *arena, size int64, served bool) {
	d := ar.device
	for i := range ar.waiting {
		w := &ar.waiting[i]
		w.Request = -1
		if served {
			w.Request = size
		}
		w.Verdict = verdict(w.Free, size)
		if ar.sampled {
			d.samples.judge(w, size)
		}
		for _, run := range w.runs {
			if run < size {
				w.Stranded += run
			}
		}
		d.GrowthCount++
		if w.Verdict == Fragmentation {
			d.FragmentationGrowths++
		}
		if len(d.Growths) < a.opt.MaxGrowths {
			d.Growths = append(d.Growths, w.Growth)
		}
	}
	ar.waiting = ar.waiting[:0]
}

// verdict is why a request of size bytes did not fit into free bytes.
func verdict(free, size int64) Verdict {
	if free >= size {
		return Fragmentation
	}
	return Capacity
}

func largest(runs []int64) int64 {
	if len(runs) == 0 {
		return 0
	}
	return slices.Max(runs)
}

// oom is a request that failed for good. Of one that belongs to no arena the device as a
// whole is judged.
func (a *analyzer) oom(d *device, ar *arena, e *trace.Event) error {
	d.OOMCount++
	if a.opt.Owners && d.OOMCount == 1 {
		d.OOMOwners = a.owners(a.liveNow(d))
	}
	a.phases.cut()
	if len(d.OOMs) == a.opt.MaxGrowths {
		return nil
	}
	o := OOM{
		Seq: e.Seq, Time: e.Time, Request: e.Requested, Arena: e.Arena,
		Context: a.opt.Text(e.Context), Requester: a.requester(e.Context).name, At: d.instant(e.Seq, e.Time),
	}
	for _, other := range a.arenas {
		if other.device != d || ar != nil && other != ar || other.paused() {
			continue
		}
		a.runs = a.ledger.freeRuns(other, a.runs[:0])
		o.Free += other.reserve + other.external
		o.LargestFree = max(o.LargestFree, largest(a.runs))
	}
	o.Verdict = verdict(o.Free, e.Requested)
	if d.keys != nil {
		d.keys.oom(o.At)
	}
	var err error
	if len(d.OOMs) < heldOOMs {
		o.Held, err = a.heldNow(d, o.At)
	}
	if d.samples != nil {
		d.samples.oom(&o)
	}
	d.OOMs = append(d.OOMs, o)
	return err
}
