package report

import (
	"github.com/memprof/memprof/analysis"
)

func newJSONProcess(r *analysis.Result) jsonProcess {
	p := jsonProcess{
		Process: r.Process, Events: r.Events, DurationNS: r.Duration, Recovered: r.Recovered, InProgress: r.Live,
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
		MaxRequested: d.MaxT, MaxProvided: known(d.MaxC), MaxReserved: d.MaxR,
		Waste:      newJSONWaste(d),
		Iterations: []jsonIteration{},
		Phases:     newJSONPhases(d.Phases), ByPhase: newJSONByPhase(d), Held: newJSONHeld(&d.Held),
		GrowthCount: d.GrowthCount, Growths: []jsonGrowth{},
		TopContexts: newJSONHolders(d, d.TopContexts), TopSizes: newJSONHolders(d, d.TopSizes),
		OOMs:     []jsonOOM{},
		External: jsonExternal{d.External.Live, d.External.Peak, d.External.Calls},
		Books:    newJSONBooks(d.Books),
		KV:       newJSONRecordedKV(d),
		Graphs:   newJSONGraphs(d.Graphs),
	}
	for _, it := range d.Iterations {
		j.Iterations = append(j.Iterations, jsonIteration{
			Number: it.Number, StartSeq: it.StartSeq, EndSeq: it.EndSeq, StartNS: it.Start, EndNS: it.End,
			PeakRequested: it.PeakT, PeakProvided: known(it.PeakC), PeakReserved: it.PeakR,
			EndRequested: it.EndT, EndProvided: known(it.EndC), EndPaused: it.EndPaused, Allocs: it.Allocs, AllocBytes: it.AllocBytes,
			More: it.More,
		})
	}
	if p := d.Paper; p.Valid {
		j.Paper = &jsonPaper{
			p.Of, finite(p.T1), finite(p.C1), finite(p.T2), finite(p.C2), finite(p.FirstExcess), finite(p.SteadyIdle),
			finite(p.OwnT1), finite(p.OwnC1), finite(p.OwnT2), finite(p.OwnC2),
		}
	}
	j.Leak = newJSONLeak(d)
	for _, g := range d.Growths {
		j.Growths = append(j.Growths, jsonGrowth{
			Seq: g.Seq, TimeNS: g.Time, Arena: g.Arena, Iteration: jsonIterationNumber(d, g.Iteration), Request: known(g.Request),
			Grown: g.Grown, Reserved: g.Reserved, Free: known(g.Free), LargestFree: known(g.LargestFree), Stranded: known(g.Stranded), Verdict: string(g.Verdict),
		})
	}
	for _, o := range d.OOMs {
		j.OOMs = append(j.OOMs, jsonOOM{
			Seq: o.Seq, TimeNS: o.Time, Arena: o.Arena, Request: o.Request, Free: known(o.Free), LargestFree: known(o.LargestFree),
			Verdict: string(o.Verdict), Context: o.Context, At: newJSONInstant(d, o.At), Held: newJSONHeld(o.Held),
		})
	}
	for _, t := range d.Transitions {
		j.Transitions = append(j.Transitions, jsonTransition{t.Seq, t.Time, t.Duration, t.Arena, t.Tag, t.Resume, t.Bytes, t.Copied, t.Reserved, t.Failed})
	}
	j.Sleep = newJSONSleep(d)
	if w := d.Sampled; w != nil {
		j.Watched = &jsonWatched{w.Allocator, w.Samples, w.Odd}
	}
	return j
}

func newJSONInstant(d *analysis.DeviceResult, i analysis.Instant) jsonInstant {
	j := jsonInstant{
		Seq: known(i.Seq), TimeNS: known(i.Time), Iteration: jsonIterationNumber(d, i.Iteration), Live: i.Live,
		Requested: i.T, Pending: i.Pending, Provided: known(i.C), Reserved: i.R, Paused: i.Paused,
	}
	if d.Sampled != nil {
		j.Unsplit = &i.Unsplit
		return j
	}
	j.Rounding, j.Slack, j.Reserve, j.External = &i.Rounding, &i.Slack, &i.Reserve, &i.External
	return j
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
		Internal: finite(knownRatio(p.Internal(), p.R)), Pending: finite(ratio(p.Pending, p.R)),
		Reserve: finite(chunkShare(d, p.Reserve)), External: finite(chunkShare(d, p.External)),
		Unrequested: finite(1 - ratio(d.MaxT, d.MaxR)), Unprovided: finite(1 - knownRatio(d.MaxC, d.MaxR)),
		LargestFree: known(d.LargestFree), Fragmentation: finite(peakFragmentation(d)),
	}
}

func newJSONLeak(d *analysis.DeviceResult) *jsonLeak {
	l := &d.Leak
	trend, by := l.Trend()
	if !trend.Valid {
		return nil
	}
	j := &jsonLeak{
		Rising: l.Iterations.Rising, Points: l.Iterations.Points,
		PerRequest: newJSONTrend(l.Requests, l.Request), PerSecond: newJSONTrend(l.Seconds, ""),
		By: by, Blocks: l.Blocks, Requested: l.Requested, Provided: &l.Provided,
		Holders: newJSONHolders(d, l.Holders), Stacks: newJSONBreakdown(&d.Held, &l.Stacks),
	}
	if l.Iterations.Valid {
		j.Slope = finite(l.Iterations.Slope)
	}
	if d.Sampled != nil {
		j.Provided = nil
	}
	return j
}

func newJSONTrend(t analysis.Trend, of string) *jsonTrend {
	if !t.Valid {
		return nil
	}
	return &jsonTrend{of, finite(t.Slope), t.Rising, t.Points}
}

func newJSONHolders(d *analysis.DeviceResult, holders []analysis.Holder) []jsonHolder {
	out := []jsonHolder{}
	for _, h := range holders {
		j := jsonHolder{h.Context, h.Size, h.Blocks, h.Requested, &h.Provided}
		if d.Sampled != nil {
			j.Provided = nil
		}
		out = append(out, j)
	}
	return out
}
