package view

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
)

// firstLook reads what the parts of a process open with: where they begin, and what each device had there. It takes a
// few milliseconds a part, whatever the parts' length. The result has one stored instant, where most was reserved.
func firstLook(p *dataset.Process) ([]state, *analysis.Result, error) {
	result := &analysis.Result{Process: p.Name, Events: p.Events}
	var parts []state
	var most int64
	highest := p.Parts[0].FirstSeq // the part that opens with most reserved
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
			if r > most {
				most, highest = r, start
			}
			at := ledger.Instant{Seq: start - 1, Time: next, T: t, C: t, R: r, NotRequested: r - t}
			d.Series.Points = append(d.Series.Points, analysis.Point{
				Start: next, End: next, T: analysis.Range{Min: t, Max: t}, C: analysis.Range{Min: t, Max: t}, R: analysis.Range{Min: r, Max: r}, At: at, Last: at,
			})
			if d.MaxT, d.MaxR = max(d.MaxT, t), max(d.MaxR, r); r > d.Peak.R {
				d.Peak = at
			}
		}
	}
	return parts, result, storedInstant(p, highest, result)
}

// storedInstant has a result have the stored instants of a part's first event, so that its page can pin others.
func storedInstant(p *dataset.Process, start int64, result *analysis.Result) error {
	opt := recording.OptionsOf(p)
	opt.FirstSeq, opt.Explore = start, true
	var r *analysis.Result
	for _, pass := range []func(src *source) error{
		func(src *source) (err error) { r, err = analysis.Run(src, opt); return err },
		func(src *source) error { return r.Explore(src, opt, nil) },
	} {
		src, err := newIndex(p, nil, 0).from(context.Background(), state{seq: start}, start)
		if err != nil {
			return err
		}
		if err := errors.Join(pass(src), src.reader.Close()); err != nil {
			return err
		}
	}
	result.Arenas = r.Arenas
	for i := range r.Devices {
		d := deviceOf(result, r.Devices[i].Device)
		d.Keyframes, d.Chunks = r.Devices[i].Keyframes, r.Devices[i].Chunks
	}
	return nil
}

// opensWith is the memory before the first event of a part, and when that event was.
func opensWith(p *dataset.Process, start int64) (*trace.Live, int64, error) {
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
		r.Devices = append(r.Devices, analysis.DeviceResult{Device: device, Allocs: 1, Chunks: &analysis.Chunks{}})
	}
	return &r.Devices[at]
}
