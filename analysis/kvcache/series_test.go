package kvcache

import (
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

func TestSeriesKeepThePeaks(t *testing.T) {
	s := Series{limit: 4, width: 1}
	for i := range int64(1000) {
		p := Point{Step: i + 1, Running: 1, Shares: Shares{Token: 5}}
		switch i {
		case 333:
			p.Shares.Token = 9
		case 777:
			p.Running = 4
		}
		s.Add(p)
	}
	points := s.Points()
	var tokens, running int64
	for i, p := range points {
		tokens, running = max(tokens, p.Shares.Token), max(running, p.Running)
		if i > 0 && p.Step <= points[i-1].Step {
			t.Errorf("step %d is behind step %d", p.Step, points[i-1].Step)
		}
	}
	assert.That(t, len(points) <= 8 && len(points) >= 4 && tokens == 9 && running == 4,
		"%d points with at most %d tokens and %d running; want 4 to 8, 9, 4", len(points), tokens, running)
}
