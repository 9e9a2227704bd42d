package view

import (
	"slices"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/keyframes"
	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/trace/dataset"
)

// looks is the most parts of a process that the first picture shows.
const looks = 32

// firstLook reads what parts of a process open with: what each device had there. It takes a few milliseconds a part, whatever
// the parts' length. The result has of each device the memory at those moments, and one stored instant, where most was reserved,
// so that its page can pin others; what only a whole pass knows is absent.
func firstLook(p *dataset.Process) (*analysis.Result, error) {
	result := &analysis.Result{Process: p.Name, Events: p.Events}
	var begins []int64
	for i := 0; i < len(p.Parts); i += 1 + (len(p.Parts)-1)/looks {
		if p.Parts[i].Events > 0 {
			begins = append(begins, p.Parts[i].FirstSeq)
		}
	}
	moments, err := recording.InParts(p, begins...)
	if err != nil {
		return nil, err
	}
	var most int64
	var highest *analysis.Moment
	for _, m := range moments {
		if highest == nil {
			highest = m
		}
		result.Duration = max(result.Duration, m.Time)
		for j := range m.Devices {
			at := m.Devices[j].At
			d := deviceOf(result, m.Devices[j].Device)
			d.Series.Points = append(d.Series.Points, analysis.Point{
				Start: m.Time, End: m.Time, T: analysis.Range{Min: at.T, Max: at.T}, C: analysis.Range{Min: at.C, Max: at.C}, R: analysis.Range{Min: at.R, Max: at.R}, At: at, Last: at,
			})
			d.MaxT, d.MaxC, d.MaxR, d.Final = max(d.MaxT, at.T), max(d.MaxC, at.C), max(d.MaxR, at.R), at
			if at.R > d.Peak.R {
				d.Peak = at
			}
			if at.R > most {
				most, highest = at.R, m
			}
		}
	}
	if highest == nil {
		return result, nil
	}
	chosen := &analysis.Result{}
	for i := range highest.Devices {
		d := &highest.Devices[i]
		chosen.Devices = append(chosen.Devices, analysis.DeviceResult{Device: d.Device, Keyframes: &keyframes.Result{Frames: []keyframes.Frame{{At: d.At, Why: keyframes.IsHigh, Event: -1}}}})
	}
	r, err := recording.Events(p, keyframes.Span{From: highest.Seq, To: highest.Seq}, chosen)
	if err != nil {
		return nil, err
	}
	result.Arenas = r.Arenas
	for i := range r.Devices {
		d := deviceOf(result, r.Devices[i].Device)
		d.Keyframes, d.Chunks, d.Native = r.Devices[i].Keyframes, r.Devices[i].Chunks, r.Devices[i].Native
	}
	return result, nil
}

func deviceOf(r *analysis.Result, device int32) *analysis.DeviceResult {
	at := slices.IndexFunc(r.Devices, func(d analysis.DeviceResult) bool { return d.Device == device })
	if at < 0 {
		at = len(r.Devices)
		r.Devices = append(r.Devices, analysis.DeviceResult{Device: device, Memory: &analysis.Memory{Chunks: &analysis.Chunks{}}})
	}
	return &r.Devices[at]
}
