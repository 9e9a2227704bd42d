package serving

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/memprof/memprof/analysis/kvcache"
)

// mostRejected is how many requests in a row may be rejected.
const mostRejected = 1 << 20

// peek reads the next request of the source into s.next, unless it is there or there is none.
func (s *simulation) peek() error {
	if s.next != nil || s.ended {
		return nil
	}
	r, err := s.source.Next()
	if errors.Is(err, io.EOF) {
		s.ended = true
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.checkRequest(&r); err != nil {
		return err
	}
	s.previous = r.Arrival
	s.next = &r
	return nil
}

// checkRequest returns an error, with the line if it has one, for a request that cannot be.
func (s *simulation) checkRequest(r *kvcache.Request) error {
	const most = 1 << 30 // keeps all products of lengths and sequences within 64 bits
	var what string
	switch {
	case r.Prompt < 1 || r.Prompt > most:
		what = fmt.Sprintf("a prompt of %d tokens", r.Prompt)
	case r.Output < 1 || r.Output > most:
		what = fmt.Sprintf("an output of %d tokens", r.Output)
	case r.Prompts < 0 || r.Prompts > 1<<16:
		what = fmt.Sprintf("%d prompts in one request", r.Prompts)
	case !saturated(&s.options) && r.Arrival < s.previous:
		what = fmt.Sprintf("an arrival at %d ns after one at %d ns", r.Arrival, s.previous)
	default:
		return nil
	}
	if r.Line > 0 {
		return fmt.Errorf("line %d: %s", r.Line, what)
	}
	return fmt.Errorf("request %d: %s", s.result.Requests+1, what)
}

// arrive puts the next request that has arrived by now at the head of the queue, if the place is
// empty. With a queue that is always full it has arrived.
func (s *simulation) arrive(ctx context.Context) error {
	for s.waiting == nil {
		if err := s.peek(); err != nil {
			return err
		}
		if s.next == nil || !saturated(&s.options) && s.next.Arrival > s.now {
			return nil
		}
		s.result.Requests++
		if s.result.Requests%1024 == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		if s.fits(s.next) {
			s.waiting, s.refused = s.next, 0
		} else {
			s.result.Rejected++
			s.refused++
		}
		if s.refused == mostRejected {
			return fmt.Errorf("%s: %d requests in a row do not fit, the last of %d tokens: raise the memory or the length, or take smaller blocks", s.result.Policy, s.refused, s.next.Length())
		}
		s.next = nil
	}
	return nil
}

// fits says whether r is within the model's limit and could run alone.
func (s *simulation) fits(r *kvcache.Request) bool {
	if s.options.MaxLength > 0 && r.Length() > s.options.MaxLength {
		return false
	}
	return s.memory.Possible(r)
}

// skip skips to the step in which the next request arrives. Nothing runs or waits.
func (s *simulation) skip() error {
	behind := s.next.Arrival - s.now
	if s.options.Timing != nil {
		return s.count(0, behind)
	}
	steps := (behind + s.options.StepTime - 1) / s.options.StepTime
	if limit := s.options.Steps; limit > 0 {
		steps = min(steps, limit-s.step)
	}
	return s.count(steps, steps*s.options.StepTime)
}

// head is the request that the next free memory is for, or nil. What a preempted one has
// generated has joined its prompt.
func (s *simulation) head() *kvcache.Request {
	if len(s.preempted) > 0 {
		g := s.preempted[0]
		s.again = g.Request
		s.again.Prompt += g.Generated
		s.again.Output -= g.Generated
		return &s.again
	}
	return s.waiting
}
