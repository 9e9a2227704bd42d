package fit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/memprof/memprof/analysis/accounting"
)

// A job is replayed on cards that are [runs] apart, but on mostProbes at most: on fewer where it has many events, so that all
// replays have about mostEvents, and on leastProbes then, or on fewer still, so that all have about manyEvents: 20 million events are replayed
// on three. A quick search has none: it bisects.
const (
	mostProbes  = 64
	leastProbes = 24
	mostEvents  = 1_000_000
	manyEvents  = 60_000_000
	mostCards   = 8 // in one pass over the recording
)

// runs is the difference of the least cards of two recordings of one job, as a share of them.
const runs = 0.005

func least(ctx context.Context, j *Job, s *Survey, a Allocator, o *Options) (*Need, error) {
	events := max(s.Events, 1)
	probes := min(max(mostEvents/events, leastProbes), mostProbes, max(manyEvents/events, 1))
	if o.Quick {
		probes = 0
	}
	whole := search{ctx: ctx, job: j, survey: s, of: a, headroom: o.Headroom}
	n, err := whole.least(probes)
	if err != nil || o.Quick || o.withWorkspaces || len(s.Workspaces) == 0 || n.Below != nil && !slices.Contains(s.Workspaces, n.Below.Seq) {
		return n, err
	}
	spared := whole
	spared.sparing, spared.failed = true, 0
	maps.DeleteFunc(spared.tried, func(_ int64, refused *accounting.Refusal) bool { return refused != nil }) // where none was refused, none is spared
	without, err := spared.least(probes)
	if err != nil {
		return nil, err
	}
	if without.Bytes < n.Bytes {
		n.Without = without.Bytes
	}
	return n, nil
}

// search replays a job on cards of many sizes.
type search struct {
	ctx      context.Context
	job      *Job
	survey   *Survey
	of       Allocator
	headroom int64
	sparing  bool     // workspaces are spared
	free     *outcome // the replay without a limit, one for both searches where it refuses nothing
	// tried has the first request that each card refused; nil if the job completed.
	tried map[int64]*accounting.Refusal
	// failed is the greatest card so far on which the job did not complete.
	failed int64
}

// card is one of so many bytes.
func (s *search) card(bytes int64) *accounting.Card {
	c := s.survey.card(s.job, bytes, s.headroom)
	c.Spared, c.Strict = s.survey.Workspaces, !s.sparing
	return c
}

// try replays the job on the cards that were not tried yet.
func (s *search) try(cards []int64) error {
	if s.tried == nil {
		s.tried = map[int64]*accounting.Refusal{}
	}
	var all []int64
	for _, bytes := range cards {
		if _, known := s.tried[bytes]; !known && !slices.Contains(all, bytes) {
			all = append(all, bytes)
		}
	}
	var passes errgroup.Group
	var mu sync.Mutex
	for some := range slices.Chunk(all, min(s.survey.together()/cap(s.survey.room), mostCards, 1+len(all)/cap(s.survey.room))) {
		passes.Go(func() error {
			on := make([]*accounting.Card, len(some))
			for i, bytes := range some {
				on[i] = s.card(bytes)
			}
			out, err := replay(s.ctx, s.job, s.survey, s.of, on, true)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			for i, bytes := range some {
				if s.tried[bytes] = out[i].first; out[i].first != nil {
					s.failed = max(s.failed, bytes)
				}
			}
			return nil
		})
	}
	return passes.Wait()
}

// first returns the first request that a card refuses; nil if the job completes.
func (s *search) first(bytes int64) (*accounting.Refusal, error) {
	err := s.try([]int64{bytes})
	return s.tried[bytes], err
}

// fail says which request each card refuses first; nil if the job completes on it, or on the cards just below and above it.
// The needs of two recordings of one job differ by as much as these two cards, so that a single card between them does not count.
func (s *search) fail(cards []int64) (map[int64]*accounting.Refusal, error) {
	refused := map[int64]*accounting.Refusal{}
	for round, near := range []int64{0, 1, -1} {
		var beside, rest []int64
		for _, bytes := range cards {
			beside = append(beside, max(page, bytes+near*max(page, int64(runs*float64(bytes))/2/page*page)))
		}
		if err := s.try(beside); err != nil {
			return nil, err
		}
		for i, bytes := range cards {
			switch other := s.tried[beside[i]]; {
			case round == 0 && other != nil:
				refused[bytes] = other
				rest = append(rest, bytes)
			case round > 0 && other == nil:
				rest = append(rest, bytes)
			}
		}
		cards = rest
	}
	for _, bytes := range cards {
		delete(refused, bytes)
	}
	return refused, nil
}

// replayFree replays the job without a limit, once for both searches: the replay counts what the job needs with its workspaces and without.
func (s *search) replayFree() error {
	if s.free != nil && s.free.first == nil {
		return nil
	}
	all, err := replay(s.ctx, s.job, s.survey, s.of, []*accounting.Card{s.card(unlimited)}, false)
	if err == nil {
		s.free = &all[0]
	}
	return err
}

// least finds the least card above all that are found to be too small.
func (s *search) least(probes int64) (*Need, error) {
	err := s.replayFree()
	if err != nil {
		return nil, err
	}
	free, needed := s.free, s.free.needed
	if s.sparing {
		needed = free.spared
	}
	n := &Need{Allocator: s.of, Process: s.job.Name, Requested: greatest(needed), Reserved: free.reserved}
	tooSmall, enough := n.Requested-1, (greatest(free.used)+page-1)/page*page
	found := bracket{tooSmall, enough, nil}
	if probes == 0 { // a card that suffices is likely to be found below
		if n.Bytes, n.Below, err = s.between(found); err != nil || n.Bytes < enough {
			n.Lowest, n.Highest = n.Bytes, n.Bytes
			return n, err
		}
	}
	// On a card that PyTorch's segments just fit they are the same: only a refusal changes them.
	if free.first != nil || s.of.Allocator != "torch" || s.of.Setting != native {
		if found, err = s.suffices(found); err != nil {
			return nil, err
		}
	}
	last, first, err := s.probe(found, probes)
	if err != nil {
		return nil, err
	}
	if n.Bytes, n.Below, err = s.between(last); err != nil {
		return nil, err
	}
	if n.Lowest = n.Bytes; first != last {
		n.Lowest, _, err = s.between(first)
	}
	n.Highest = max(n.Bytes, s.failed+page)
	return n, err
}

// suffices raises the larger card of a bracket until the job completes on it: a policy that looks at the free memory may want more than
// it reserved.
func (s *search) suffices(b bracket) (bracket, error) {
	for {
		refused, err := s.first(b.enough)
		if err != nil || refused == nil {
			return b, err
		}
		failed, err := s.fail([]int64{b.enough})
		if err != nil {
			return b, err
		}
		if refused = failed[b.enough]; refused != nil {
			b.tooSmall, b.refused = b.enough, refused
		}
		if b.enough += max(b.enough/64/page*page, page); b.enough > unlimited {
			return b, fmt.Errorf("%s: a request is refused on any card", s.of.name())
		}
	}
}

// bracket is two cards, of which the smaller one fails, with what it refuses.
type bracket struct {
	tooSmall, enough int64
	refused          *accounting.Refusal
}

// probe replays cards between two and returns the last bracket, above which all completed, and the first, below which all
// failed.
func (s *search) probe(b bracket, probes int64) (last, first bracket, err error) {
	apart := max(int64(runs*float64(b.enough)), (b.enough-b.tooSmall)/(probes+1), page)
	last = b
	var cards []int64
	for next := b.enough - apart; next > b.tooSmall; next -= apart {
		if bytes := next / page * page; bytes > b.tooSmall && bytes < b.enough {
			cards = append(cards, bytes)
		}
	}
	cards = slices.Compact(cards)
	failed, err := s.fail(cards)
	if err != nil {
		return last, first, err
	}
	above, found := b.enough, false // of the newest probe: the card before; whether some card failed
	for _, bytes := range cards {
		refused := failed[bytes]
		switch {
		case refused == nil:
			above, first = bytes, bracket{b.tooSmall, bytes, b.refused}
			if !found {
				last = first
			}
			continue
		case !found:
			found, last = true, bracket{bytes, above, refused}
			first = last
		case first.tooSmall == b.tooSmall:
			first.tooSmall, first.refused = bytes, refused
		}
		above = bytes
	}
	if !found {
		first = last
	}
	return last, first, nil
}

// between bisects a bracket until its cards differ by a page at most.
func (s *search) between(b bracket) (least int64, below *accounting.Refusal, err error) {
	tooSmall, enough, refused := b.tooSmall, b.enough, b.refused
	for enough-tooSmall > page {
		middle := (tooSmall + enough) / 2 / page * page
		if middle <= tooSmall {
			middle = tooSmall + page - tooSmall%page
		}
		if middle >= enough {
			break
		}
		on, err := s.first(middle)
		if err != nil {
			return 0, nil, err
		}
		if on == nil {
			enough = middle
		} else {
			tooSmall, refused = middle, on
		}
	}
	return enough, refused, nil
}
