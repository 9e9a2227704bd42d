package analysis

import (
	"slices"

	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/torchalloc"
	"github.com/memprof/memprof/trace"
)

// observed begins the samples of a device with its first arena of an allocator that is only observed.
func (ar *arena) observed() {
	if d := ar.device; ar.Native && d.sums == nil {
		d.sums = torchalloc.NewSums(ar.Info.Options["allocator"], d.C, d.current.PeakC)
		d.result.Native = &d.sums.Observed
	}
}

// statistics hands on the sums of an allocator that is only observed.
func (a *analyzer) statistics(e *trace.Event) error {
	at := slices.IndexFunc(a.devices, func(d *device) bool { return d.ID == e.Device && d.sums != nil })
	if at < 0 || a.opening {
		return nil
	}
	d := a.devices[at]
	var own ledger.Split
	for _, ar := range a.arenas {
		if ar.Native && ar.device == d {
			own = own.Plus(ar.Split)
		}
	}
	if !d.sums.Statistics(e, d.Device, own) {
		return nil
	}
	d.series.sample(d.sums.Changed, d.sums.C)
	for _, ar := range a.arenas {
		if ar.Native && ar.device == d {
			ar.growth.NativeSums(d.Device, d.sums.Changed, d.sums.C)
		}
	}
	return nil
}

// forgetChunks gives the results of a device without known chunks the C of the samples, and -1 where there was none.
func (d *device) forgetChunks() {
	if d.sums == nil {
		return
	}
	d.result.MaxC = d.sums.MaxC(d.MaxT, d.MaxC)
	d.result.Final.C = d.sums.C
	d.result.Peak.C = d.sums.PeakC(&d.Peak)
	d.result.Map.At, d.result.Holdings.Peak.At = unless(d.result.Map.At, d.result.Peak), unless(d.result.Holdings.Peak.At, d.result.Peak)
	d.result.Holdings.Final.At.C = d.result.Final.C
	for i := range d.result.Holdings.Moments {
		d.result.Holdings.Moments[i].At.C = -1
	}
	for i := range d.result.Map.Arenas {
		d.result.Map.Arenas[i].At.C = -1
	}
	if d.result.Period > 0 {
		for i := range d.result.Iterations {
			d.result.Iterations[i].PeakC, d.result.Iterations[i].EndC = -1, -1
		}
	}
	for i := range d.result.Phases {
		d.result.Phases[i].PeakC = -1
	}
	for i := range d.result.PhaseIterations {
		for k := range d.result.PhaseIterations[i].Uses {
			d.result.PhaseIterations[i].Uses[k].PeakC = -1
		}
	}
	d.result.Paper = d.log.Paper(d.MaxR)
	for i := range d.result.Iterations {
		if d.result.Iterations[i].PeakC < 0 {
			d.result.Paper.ForgetC()
		}
	}
}

// unless is an instant with the C of another one, if they are the same.
func unless(at, of ledger.Instant) ledger.Instant {
	at.C = -1
	if at.Seq == of.Seq {
		at.C = of.C
	}
	return at
}
