package view

import (
	"errors"
	"io"
	"slices"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/trace"
)

// firstLook reads what the parts of a process open with: where they begin, and what each device had there. It takes a
// few milliseconds a part, whatever the parts' length.
func firstLook(p *trace.Process) ([]state, *analysis.Result, error) {
	result := &analysis.Result{Process: p.Name, Events: p.Events}
	var parts []state
	for _, start := range p.PartStarts() {
		live, next, err := opensWith(p, start)
		if err != nil {
			return nil, nil, err
		}
		parts = append(parts, state{seq: start, time: next})
		result.Duration = max(result.Duration, next)
		requested := map[int32]int64{}
		for b := range live.Blocks() {
			if !b.Pending {
				requested[b.Alloc.Device] += b.Alloc.Requested
			}
		}
		for device := range requested {
			d := deviceOf(result, device)
			t, r := requested[device], live.ReservedOn(device)
			at := analysis.Instant{Seq: start - 1, Time: next, T: t, C: t, R: r, NotRequested: r - t}
			d.Series.Points = append(d.Series.Points, analysis.Point{
				Start: next, End: next, T: analysis.Range{Min: t, Max: t}, C: analysis.Range{Min: t, Max: t}, R: analysis.Range{Min: r, Max: r}, At: at, Last: at,
			})
			if d.MaxT, d.MaxR = max(d.MaxT, t), max(d.MaxR, r); r > d.Peak.R {
				d.Peak = at
			}
		}
	}
	return parts, result, nil
}

// opensWith is the memory before the first event of a part, and when that event was.
func opensWith(p *trace.Process, start int64) (*trace.Live, int64, error) {
	reader, err := p.NewReaderOfPart(start)
	if err != nil {
		return nil, 0, err
	}
	defer reader.Close()
	live := trace.NewLive()
	e := new(trace.Event)
	for {
		b, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return live, e.Time, nil
		}
		if err != nil {
			return nil, 0, err
		}
		for i := range b.Seq {
			b.Read(i, e)
			if e.Seq >= start {
				return live, e.Time, nil
			}
			live.Add(e)
		}
	}
}

func deviceOf(r *analysis.Result, device int32) *analysis.DeviceResult {
	at := slices.IndexFunc(r.Devices, func(d analysis.DeviceResult) bool { return d.Device == device })
	if at < 0 {
		at = len(r.Devices)
		r.Devices = append(r.Devices, analysis.DeviceResult{Device: device, Allocs: 1})
	}
	return &r.Devices[at]
}
