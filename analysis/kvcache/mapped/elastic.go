package mapped

import (
	"container/heap"
	"math"

	"github.com/memprof/memprof/analysis/kvcache"
)

// Elastic is the store of policy Elastic, as in kvcached: blocks as under paged, in pages that are mapped when their
// first block is taken and unmapped when their last is free. A row is one page in every tensor, and has as many
// blocks as fit; a few free rows stay mapped, so that not each request waits for the driver. Several engines of one
// card map from the same memory.
//
// A new block comes from the mapped row with the lowest number that has one, so that high rows become free. Blocks
// are not shared, and nothing is kept of requests that have ended: a prefix would hold its page.
//
// The slots of blocks that sequences use are token, reserve and internal; all others are idle, also those whose
// pages other engines hold, and fragmented while the first waiting request finds too few. What is no whole block of
// a row is rounding.
type Elastic struct {
	options   kvcache.Options
	memory    *Memory
	rowBytes  int64
	perRow    int64   // blocks of a row
	rows      int64   // that the capacity has
	used      []int32 // blocks in use, by row; -1: not mapped
	partial   rowHeap // rows that may have a free block, each once
	listed    []bool  // by row: it is in partial
	mapped    int64   // rows
	empty     int64   // mapped rows without a block in use
	free      int64   // blocks of mapped rows
	watermark int64   // blocks
	width     int64
	groups    int64 // that run

	token, final, blocks int64 // of all sequences: tokens; tokens that their blocks will hold in the end; blocks
	maps, unmaps         int64 // rows, so far
}

// Memory is memory that engines map rows of, in bytes.
type Memory struct{ free int64 }

// NewMemory is so many bytes, none of them mapped.
func NewMemory(bytes int64) *Memory { return &Memory{free: bytes} }

// spareRows is how many free rows stay mapped.
const spareRows = 2

// elasticTables are the rows of a group's blocks, sequence after sequence.
type elasticTables struct {
	rows          []int32
	sequences     int64
	length, final int64
	blocks        int64 // of a sequence
}

// NewElastic is an empty memory. Policy.Page, TokenSize, Tensors and Block are at least 1. Without a memory it is
// the engine's own.
func NewElastic(o kvcache.Options, memory *Memory) *Elastic {
	s := &Elastic{options: o, memory: memory, rowBytes: o.Policy.Page * int64(o.Policy.Tensors), width: 1}
	s.rows = rowsWithin(o.Capacity, o.Policy)
	s.perRow = o.Policy.Page / o.Policy.TokenSize / int64(o.Policy.Block)
	if s.memory == nil {
		s.memory = &Memory{free: s.rows * s.rowBytes}
	}
	s.watermark = int64(math.Ceil(o.Watermark * float64(s.rows*s.perRow)))
	if o.Sampling.Kind != kvcache.Greedy {
		s.width = int64(max(1, o.Sampling.Width))
	}
	return s
}

func (s *Elastic) blocksOf(tokens int64) int64 { return (tokens + s.size() - 1) / s.size() }

func (s *Elastic) size() int64 { return int64(s.options.Policy.Block) }

// available is blocks that could be taken now.
func (s *Elastic) available() int64 {
	return s.free + min(s.memory.free/s.rowBytes, s.rows-s.mapped)*s.perRow
}

func (s *Elastic) Possible(r *kvcache.Request) bool {
	return s.blocksOf(int64(r.Length()))*int64(r.PromptCount())*s.width <= s.rows*s.perRow
}

// allows says whether so many blocks may be taken by a request that does not run yet.
func (s *Elastic) allows(blocks int64) bool {
	if s.groups > 0 {
		blocks += s.watermark
	}
	return blocks <= s.available()
}

func (s *Elastic) Admit(g *kvcache.Group) bool {
	t := &elasticTables{sequences: int64(g.Request.PromptCount()) * s.width, length: int64(g.Length()), final: int64(g.Request.Length())}
	t.blocks = s.blocksOf(t.length)
	if !s.allows(t.blocks * t.sequences) {
		return false
	}
	for range t.blocks * t.sequences {
		t.rows = append(t.rows, s.take())
	}
	s.count(t, 1)
	s.groups++
	g.Private = t
	return true
}

func (s *Elastic) Grow(g *kvcache.Group) bool {
	t := g.Private.(*elasticTables)
	more := s.blocksOf(t.length+1) - t.blocks
	if more*t.sequences > s.available() {
		return false
	}
	s.count(t, -1)
	for range more * t.sequences {
		t.rows = append(t.rows, s.take())
	}
	t.length++
	t.blocks += more
	s.count(t, 1)
	return true
}

func (s *Elastic) Release(g *kvcache.Group) {
	t := g.Private.(*elasticTables)
	g.Private = nil
	s.count(t, -1)
	s.groups--
	for _, row := range t.rows {
		s.drop(row)
	}
}

// SwapOut is false: requests are dropped and computed again.
func (s *Elastic) SwapOut(*kvcache.Group) bool { return false }

// count adds a group's slots, times sign, to the sums.
func (s *Elastic) count(t *elasticTables, sign int64) {
	s.token += sign * t.sequences * t.length
	s.final += sign * t.sequences * min(t.final, t.blocks*s.size())
	s.blocks += sign * t.sequences * t.blocks
}

// take takes a block, of which the caller has seen that there is one, and returns its row.
func (s *Elastic) take() int32 {
	for len(s.partial) > 0 {
		row := s.partial[0]
		if s.used[row] >= 0 && int64(s.used[row]) < s.perRow {
			if s.used[row] == 0 {
				s.empty--
			}
			s.used[row]++
			s.free--
			return row
		}
		heap.Pop(&s.partial)
		s.listed[row] = false
	}
	row := int32(0)
	for int(row) < len(s.used) && s.used[row] >= 0 {
		row++
	}
	if int(row) == len(s.used) {
		s.used, s.listed = append(s.used, 0), append(s.listed, false)
	}
	s.used[row] = 1
	s.memory.free -= s.rowBytes
	s.mapped++
	s.maps++
	s.free += s.perRow - 1
	s.list(row)
	return row
}

// list adds a row to those that may have a free block.
func (s *Elastic) list(row int32) {
	if !s.listed[row] {
		s.listed[row] = true
		heap.Push(&s.partial, row)
	}
}

// drop gives a block back, and its row if that is free and enough others are.
func (s *Elastic) drop(row int32) {
	s.list(row)
	s.used[row]--
	s.free++
	if s.used[row] > 0 {
		return
	}
	if s.empty < spareRows {
		s.empty++
		return
	}
	s.used[row] = -1
	s.memory.free += s.rowBytes
	s.mapped--
	s.unmaps++
	s.free -= s.perRow
}

func (s *Elastic) Shares(head *kvcache.Request) kvcache.Shares {
	size := s.size()
	out := kvcache.Shares{
		Token: s.token, Reserve: s.final - s.token, Internal: s.blocks*size - s.final,
		Idle:     (s.rows*s.perRow - s.blocks) * size,
		Rounding: s.options.Capacity - s.rows*s.perRow*size,
	}
	if head != nil && !s.allows(s.blocksOf(int64(head.Prompt))*int64(head.PromptCount())*s.width) {
		out.Fragmented, out.Idle = out.Idle, 0
	}
	return out
}

func (s *Elastic) Mappings() (slots, maps, unmaps int64) {
	return s.mapped * s.options.Policy.Page / s.options.Policy.TokenSize, s.maps, s.unmaps
}

// rowHeap is rows, the lowest number first; a row may be in it without a free block.
type rowHeap []int32

func (h rowHeap) Len() int           { return len(h) }
func (h rowHeap) Less(i, j int) bool { return h[i] < h[j] }
func (h rowHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *rowHeap) Push(row any)      { *h = append(*h, row.(int32)) }
func (h *rowHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
