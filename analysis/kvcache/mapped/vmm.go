package mapped

import (
	"math"

	"github.com/memprof/memprof/analysis/kvcache"
)

// VMM is the store of policy VMM, and of VAttention, as in vAttention: each sequence has its own range of addresses
// in each tensor, long enough for the model's limit, in which pages are mapped as tokens come. A sequence of c tokens has
// ⌈c·τ/g⌉ rows mapped, τ bytes being a token in one tensor, g a page, and a row one page in every tensor. Unmapped
// addresses are in no share.
//
// The slots of a sequence's rows that hold a token are token, those that will hold one are reserve, the
// others internal. A row may have a fraction of a slot: the slots of a sequence's rows, and of the free
// rows, are rounded down. The rest, and the bytes that are no whole row, are rounding.
//
// A request is admitted if its rows leave the watermark free; while nothing runs, if there are
// enough. Sequences share no pages. The host has room for SwapBlocks rows.
//
// Under VAttention the pages of a sequence that has ended stay mapped, and the next one gets its range with them; they
// are unmapped where another sequence needs pages and no unmapped row is left. They are idle, and held.
type VMM struct {
	options   kvcache.Options
	rows      int64 // of the memory
	free      int64 // rows not mapped
	watermark int64 // rows
	host      int64 // free rows of the host
	width     int
	mapped    map[int64]*mapping // of the groups that run, by id

	deferred     bool    // VAttention: the pages of ended sequences stay mapped
	ranges       []int64 // rows mapped in ranges that no sequence has, the longest unused first
	idle         int64   // their sum
	maps, unmaps int64   // rows, so far

	token, final, slots   int64 // of all sequences: tokens; tokens that their rows will hold in the end; slots of their rows
	swappedOut, swappedIn int64 // rows
}

// mapping is the memory of a group. All its sequences have the same.
type mapping struct {
	sequences     int64
	length, final int64 // tokens of a sequence, now and in the end
	rows          int64 // of a sequence
}

// NewVMM is an empty memory. Policy.Page, TokenSize and Tensors and Capacity are at least 1.
func NewVMM(o kvcache.Options) *VMM {
	s := &VMM{options: o, width: 1, mapped: map[int64]*mapping{}}
	s.deferred = o.Policy.Kind == kvcache.VAttention
	s.rows = rowsWithin(o.Capacity, o.Policy)
	s.free = s.rows
	s.watermark = int64(math.Ceil(o.Watermark * float64(s.rows)))
	if s.host = o.SwapBlocks; s.host == 0 {
		s.host = s.rows
	}
	if o.Sampling.Kind != kvcache.Greedy {
		s.width = max(1, o.Sampling.Width)
	}
	return s
}

// rowsWithin is the whole rows in the memory of so many slots.
func rowsWithin(slots int64, p kvcache.Policy) int64 { return slots * p.TokenSize / p.Page }

// rowsOf is the rows of a sequence of so many tokens.
func (s *VMM) rowsOf(tokens int64) int64 {
	return (tokens*s.options.Policy.TokenSize + s.options.Policy.Page - 1) / s.options.Policy.Page
}

// slotsOf is the whole slots in so many rows.
func (s *VMM) slotsOf(rows int64) int64 {
	return rows * s.options.Policy.Page / s.options.Policy.TokenSize
}

// sequencesOf returns how many sequences a request has.
func (s *VMM) sequencesOf(r *kvcache.Request) int64 { return int64(r.PromptCount()) * int64(s.width) }

func (s *VMM) Possible(r *kvcache.Request) bool {
	return s.rowsOf(int64(r.Length()))*s.sequencesOf(r) <= s.rows
}

// count adds a group's slots, times sign, to the sums.
func (s *VMM) count(m *mapping, sign int64) {
	slots := s.slotsOf(m.rows)
	s.token += sign * m.sequences * m.length
	s.final += sign * m.sequences * min(m.final, slots)
	s.slots += sign * m.sequences * slots
	s.free -= sign * m.sequences * m.rows
}

// allows says whether so many rows may be mapped for a request that does not run yet.
func (s *VMM) allows(rows int64) bool {
	if len(s.mapped) > 0 {
		rows += s.watermark
	}
	return rows <= s.free
}

// Admit maps the rows of a request, new or back from the host.
func (s *VMM) Admit(g *kvcache.Group) bool {
	r := &g.Request
	m := &mapping{sequences: s.sequencesOf(r), length: int64(g.Length()), final: int64(r.Length())}
	m.rows = s.rowsOf(m.length)
	if !s.allows(m.rows * m.sequences) {
		return false
	}
	if out, ok := g.Private.(*mapping); ok {
		s.host += out.rows * out.sequences
		s.swappedIn += out.rows * out.sequences
		g.Private = nil
	}
	for range m.sequences {
		s.back(m.rows)
	}
	s.mapped[g.ID] = m
	s.count(m, 1)
	s.reclaim()
	return true
}

// back puts pages behind a range of so many rows: the one that was used last, if there is one.
func (s *VMM) back(rows int64) {
	var have int64
	if n := len(s.ranges); n > 0 {
		have = s.ranges[n-1]
		s.ranges = s.ranges[:n-1]
		s.idle -= have
	}
	s.unmaps += max(0, have-rows)
	s.maps += max(0, rows-have)
}

// reclaim unmaps pages that no sequence has, as far as there is no room for them.
func (s *VMM) reclaim() {
	for s.idle > s.free {
		n := min(s.idle-s.free, s.ranges[0])
		s.unmaps += n
		s.idle -= n
		if s.ranges[0] -= n; s.ranges[0] == 0 {
			s.ranges = s.ranges[1:]
		}
	}
}

func (s *VMM) Grow(g *kvcache.Group) bool {
	m := s.mapped[g.ID]
	rows := s.rowsOf(m.length + 1)
	if (rows-m.rows)*m.sequences > s.free {
		return false
	}
	s.maps += (rows - m.rows) * m.sequences
	s.count(m, -1)
	m.length++
	m.rows = rows
	s.count(m, 1)
	s.reclaim()
	return true
}

func (s *VMM) Release(g *kvcache.Group) {
	m := s.mapped[g.ID]
	s.count(m, -1)
	delete(s.mapped, g.ID)
	if !s.deferred {
		s.unmaps += m.rows * m.sequences
		return
	}
	for range m.sequences {
		s.ranges = append(s.ranges, m.rows)
		s.idle += m.rows
	}
}

func (s *VMM) SwapOut(g *kvcache.Group) bool {
	m := s.mapped[g.ID]
	if m.rows*m.sequences > s.host {
		return false
	}
	s.host -= m.rows * m.sequences
	s.swappedOut += m.rows * m.sequences
	s.Release(g)
	g.Private = m
	return true
}

// Shares counts free slots as fragmented while they are too few for the first waiting request,
// the watermark included.
func (s *VMM) Shares(head *kvcache.Request) kvcache.Shares {
	free := s.slotsOf(s.free)
	out := kvcache.Shares{
		Token:    s.token,
		Reserve:  s.final - s.token,
		Internal: s.slots - s.final,
		Rounding: s.options.Capacity - s.slots - free,
		Idle:     free,
	}
	if head != nil && !s.allows(s.rowsOf(int64(head.Prompt))*s.sequencesOf(head)) {
		out.Fragmented, out.Idle = out.Idle, 0
	}
	return out
}

// AddCounters adds the rows swapped so far to r.
func (s *VMM) AddCounters(r *kvcache.Result) {
	r.SwappedOut += s.swappedOut
	r.SwappedIn += s.swappedIn
}

func (s *VMM) Swapped() (slots, pieces int64) {
	pieces = s.swappedOut + s.swappedIn
	return s.slotsOf(pieces), pieces
}

func (s *VMM) Mappings() (slots, maps, unmaps int64) {
	return s.slotsOf(s.rows - s.free + s.idle), s.maps, s.unmaps
}

// AddSharing adds nothing: no row is behind two addresses.
func (s *VMM) AddSharing(*kvcache.Result, int64) {}

// BlockMap is nil: one row is as good as another, and none is numbered.
func (s *VMM) BlockMap() *kvcache.BlockMap { return nil }
