package view

import (
	"fmt"
	"slices"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/keyframes"
	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/report/page"
)

const (
	around = 2048 // events on each side of one that is asked for
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
func (s *Server) events(q question) ([]byte, error) {
	p := s.processes[q.process]
	if q.byTime {
		var err error
		if q.event, err = p.EventAt(q.time); err != nil {
			return nil, err
		}
	}
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
	result, err := recording.Events(p, span, nil)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(result.Devices, func(d analysis.DeviceResult) bool { return d.Device == q.device })
	if at < 0 {
		return nil, missingError(fmt.Sprintf("%s has no memory of device %d there", p.Name, q.device))
	}
	return page.Events(result, &result.Devices[at], q.event), nil
}
