package stores

import (
	"context"

	"github.com/memprof/memprof/analysis/kvcache"
)

// Hits is what a prefix cache of some size finds of all prompts.
type Hits struct {
	Blocks int64   // of the cache
	Share  float64 // of the tokens of all prompts, found
}

// HitsBySize returns what prefix caches of several sizes, in blocks, would find of the requests of src if each
// request came when the one before was done: an upper bound for an engine, whose running requests hold blocks.
// Caches evict the least recently used block, and a prompt finds its blocks up to the first that is not there. All
// sizes are simulated at once: blocks are in a list by last use, in which a marker stands behind the last block of
// each size. Memory is bounded by the greatest size. Requests of unknown content find nothing.
func HitsBySize(ctx context.Context, src kvcache.Source, block int, sizes []int64, most int64) ([]Hits, error) {
	h := newHitList(sizes)
	s := &pagedStore{pool: &pool{size: int32(block)}}
	var tokens int64
	found := make([]int64, len(sizes))
	var requests int64
	for {
		r, err := src.Next()
		if err != nil || most > 0 && requests == most {
			break
		}
		if requests++; requests%1024 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		tokens += int64(r.Prompt)
		names := s.namesOf(&r)
		// The last token is always computed, so a whole prompt is never found.
		full := min(len(names.keys), (r.Prompt-1)/block)
		smallest := 0 // the smallest cache that has found all blocks so far
		for i, key := range names.keys {
			level := h.use(key)
			if i >= full {
				continue
			}
			smallest = max(smallest, level)
			for size := smallest; size < len(sizes); size++ {
				found[size] += int64(block)
			}
		}
	}
	out := make([]Hits, len(sizes))
	for i, size := range sizes {
		out[i].Blocks = size
		if tokens > 0 {
			out[i].Share = float64(found[i]) / float64(tokens)
		}
	}
	return out, nil
}

// hitList is blocks in the order of their last use, the last first. Of each size, ends has the block that is the
// last in a cache of that size, once there are as many.
type hitList struct {
	sizes      []int64
	at         map[uint64]*hitBlock
	first, end *hitBlock
	ends       []*hitBlock
}

type hitBlock struct {
	key          uint64
	before, next *hitBlock
	level        int // the smallest size whose cache has it
}

// newHitList is empty. sizes ascend, and are at least 1.
func newHitList(sizes []int64) *hitList {
	return &hitList{sizes: sizes, at: map[uint64]*hitBlock{}, ends: make([]*hitBlock, len(sizes))}
}

// use moves a block to the front and returns the smallest size whose cache had it, or their number if none had.
func (h *hitList) use(key uint64) int {
	b := h.at[key]
	if b != nil && b == h.first {
		return 0
	}
	level := len(h.sizes)
	if b == nil {
		b = &hitBlock{key: key}
		h.at[key] = b
	} else {
		level = b.level
		h.unlink(b)
	}
	if b.next = h.first; h.first != nil {
		h.first.before = b
	} else {
		h.end = b
	}
	h.first, b.level = b, 0
	// Caches that had the block have as many as before; in each smaller one the last is pushed out.
	count := int64(len(h.at))
	for i := range h.sizes {
		switch {
		case i >= level:
		case h.ends[i] != nil:
			out := h.ends[i]
			out.level = i + 1
			h.ends[i] = out.before
		}
		if h.ends[i] == nil && count == h.sizes[i] {
			h.ends[i] = h.end
		}
	}
	if h.end.level == len(h.sizes) {
		out := h.end
		h.unlink(out)
		delete(h.at, out.key)
	}
	return level
}

// unlink takes a block out of the list. Where it is the last of a cache, the one before it takes its place.
func (h *hitList) unlink(b *hitBlock) {
	for i := range h.ends {
		if h.ends[i] == b {
			h.ends[i] = b.before
		}
	}
	if b.before != nil {
		b.before.next = b.next
	} else {
		h.first = b.next
	}
	if b.next != nil {
		b.next.before = b.before
	} else {
		h.end = b.before
	}
	b.before, b.next = nil, nil
}
