package view

import (
	"context"
	"fmt"
	"slices"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/keyframes"
	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/report/page"
)

const (
	around = 2048    // events on each side of one that is asked for
	behind = 1 << 14 // events after those asked for: phases end there, and labels are given
	// MostEvents is the most events in one answer.
	MostEvents = 250_000
)

// question is what the page asks: about an event, or the last one at a time, and if from is set about all from it on.
type question struct {
	process     int
	device      int32
	event, from int64 // -1 for none
	time        int64
	byTime      bool
}

// missingError says that a recording has not what was asked for.
type missingError string

func (e missingError) Error() string { return string(e) }

// events answers a question with the page's pack.
func (s *Server) events(ctx context.Context, q question) ([]byte, error) {
	x := s.indexes[q.process]
	if q.byTime {
		var err error
		if q.event, err = x.eventAt(ctx, q.time); err != nil {
			return nil, err
		}
	}
	p := x.process
	first := p.Parts[0].FirstSeq
	last := first + p.Events - 1
	if q.event < first || q.event > last {
		return nil, missingError(fmt.Sprintf("%s has no event %d: want %d to %d", p.Name, q.event, first, last))
	}
	span := keyframes.Span{From: max(first, q.event-around), To: min(last+1, q.event+around+1)}
	if q.from >= 0 {
		span = keyframes.Span{From: max(first, q.from), To: q.event + 1}
	}
	if n := span.To - span.From; n <= 0 || n > MostEvents {
		return nil, missingError(fmt.Sprintf("events %d to %d are not 1 to %d", span.From, span.To-1, MostEvents))
	}
	start, err := x.near(ctx, span.From)
	if err != nil {
		return nil, err
	}
	src, err := x.from(ctx, start, span.To-1+behind)
	if err != nil {
		return nil, err
	}
	defer src.reader.Close()
	opt := recording.OptionsOf(p)
	opt.FirstSeq = start.seq
	result, err := analysis.Revisit(src, opt, []keyframes.Span{span}, nil)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(result.Devices, func(d analysis.DeviceResult) bool { return d.Device == q.device })
	if at < 0 {
		return nil, missingError(fmt.Sprintf("%s has no memory of device %d there", p.Name, q.device))
	}
	return page.Events(result, &result.Devices[at], q.event, s.whole(q.process, result)), nil
}
