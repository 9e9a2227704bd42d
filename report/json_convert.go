package report

import (
	"github.com/memprof/memprof/analysis"
)

func newJSONProcess(r *analysis.Result) jsonProcess {
	p := jsonProcess{
		Process: r.Process, Events: r.Events, DurationNS: r.Duration, Recovered: r.Recovered,
		Devices: []jsonDevice{}, Arenas: []jsonArena{},
	}
	for i := range r.Devices {
		p.Devices = append(p.Devices, newJSONDevice(&r.Devices[i]))
	}
	for _, a := range r.Arenas {
		options := a.Options
		if options == nil {
			options = map[string]string{}
		}
		p.Arenas = append(p.Arenas, jsonArena{a.ID, a.Device, a.Stream, a.Base, a.Reservation, known(a.Limit), options})
	}
	return p
}

func newJSONDevice(d *analysis.DeviceResult) jsonDevice {
	j := jsonDevice{
		Device: d.Device, Allocs: d.Allocs, Frees: d.Frees,
		Peak: newJSONInstant(d, d.Peak), Final: newJSONInstant(d, d.Final),
		MaxRequested: d.MaxT, MaxProvided: d.MaxC, MaxReserved: d.MaxR,
		Waste:      newJSONWaste(d),
		Iterations: []jsonIteration{},
		Phases:     newJSONPhases(d.Phases), ByPhase: newJSONByPhase(d), Held: newJSONHeld(&d.Held),
		GrowthCount: d.GrowthCount, Growths: []jsonGrowth{},
		TopContexts: newJSONHolders(d.TopContexts), TopSizes: newJSONHolders(d.TopSizes),
		OOMs:     []jsonOOM{},
		External: jsonExternal{d.External.Live, d.External.Peak, d.External.Calls},
		Books:    newJSONBooks(d.Books),
	}
	for _, it := range d.Iterations {
		j.Iterations = append(j.Iterations, jsonIteration{
			Number: it.Number, StartSeq: it.StartSeq, EndSeq: it.EndSeq, StartNS: it.Start, EndNS: it.End,
			PeakRequested: it.PeakT, PeakProvided: it.PeakC, PeakReserved: it.PeakR,
			EndRequested: it.EndT, EndProvided: it.EndC, Allocs: it.Allocs, AllocBytes: it.AllocBytes,
		})
	}
	if p := d.Paper; p.Valid {
		j.Paper = &jsonPaper{finite(p.T1), finite(p.C1), finite(p.T2), finite(p.C2), finite(p.FirstExcess), finite(p.SteadyIdle)}
	}
	if l := d.Leak; l.Valid {
		j.Leak = &jsonLeak{finite(l.Slope), l.Rising, newJSONHolders(l.Holders)}
	}
	for _, g := range d.Growths {
		j.Growths = append(j.Growths, jsonGrowth{
			Seq: g.Seq, TimeNS: g.Time, Arena: g.Arena, Iteration: jsonIterationNumber(d, g.Iteration), Request: known(g.Request),
			Grown: g.Grown, Reserved: g.Reserved, Free: g.Free, LargestFree: g.LargestFree, Stranded: g.Stranded, Verdict: string(g.Verdict),
		})
	}
	for _, o := range d.OOMs {
		j.OOMs = append(j.OOMs, jsonOOM{
			Seq: o.Seq, TimeNS: o.Time, Arena: o.Arena, Request: o.Request, Free: o.Free, LargestFree: o.LargestFree,
			Verdict: string(o.Verdict), Context: o.Context, At: newJSONInstant(d, o.At), Held: newJSONHeld(o.Held),
		})
	}
	return j
}

func newJSONInstant(d *analysis.DeviceResult, i analysis.Instant) jsonInstant {
	return jsonInstant{
		Seq: known(i.Seq), TimeNS: known(i.Time), Iteration: jsonIterationNumber(d, i.Iteration), Live: i.Live,
		Requested: i.T, Rounding: i.Rounding, Slack: i.Slack, Pending: i.Pending, Reserve: i.Reserve, External: i.External,
		Provided: i.C, Reserved: i.R,
	}
}

func jsonIterationNumber(d *analysis.DeviceResult, index int) *int64 {
	if number, ok := iterationNumber(d, index); ok {
		return &number
	}
	return nil
}

func newJSONWaste(d *analysis.DeviceResult) jsonWaste {
	p := d.Peak
	return jsonWaste{
		Internal: finite(ratio(p.Internal(), p.R)), Pending: finite(ratio(p.Pending, p.R)),
		Reserve: finite(ratio(p.Reserve, p.R)), External: finite(ratio(p.External, p.R)),
		Unrequested: finite(1 - ratio(d.MaxT, d.MaxR)), Unprovided: finite(1 - ratio(d.MaxC, d.MaxR)),
		LargestFree: d.LargestFree, Fragmentation: finite(peakFragmentation(d)),
	}
}

func newJSONHolders(holders []analysis.Holder) []jsonHolder {
	out := []jsonHolder{}
	for _, h := range holders {
		out = append(out, jsonHolder{h.Context, h.Size, h.Blocks, h.Requested, h.Provided})
	}
	return out
}
