package stores

import (
	"slices"

	"github.com/memprof/memprof/analysis/kvcache"
)

// Sequences of one prompt share its blocks: the tables of all have the blocks of the first. A sequence
// that writes into a block of several tables gets a copy first; the last one writes in place.
//
// Under beam search each next candidate of a prompt continues one of the current ones: with the chance Keep the
// one in its own place, else one that is drawn uniformly; all draws are independent. A candidate that none continues
// is dropped with the references to its blocks; the blocks of one that several continue are shared. The draws depend only on the seed, the request,
// the prompt and the length, so that a step that found no room is the same when it is tried again. All
// slots that a candidate would fill if it were kept are reserve.
//
// Without Keep the candidates of a prompt differ only in their last few tokens, about twice as many as there are
// candidates. With a model's scores they differ in more: most steps change nothing in who goes on from whom, and
// Keep is how many. With 0.98 beams save of ShareGPT what the vLLM paper measured, with 0.945 of Alpaca;
// TestSharingBesideThePaper has both. What parallel samples save depends on lengths only.
//
// A preempted request that is computed again shares only what its prompts fill, since the common
// tokens of its sequences behind the prompt are not stored.

// fork makes the sequences of one prompt. The first has the given blocks and takes the others that it
// needs. All share the blocks that the prompt fills, and before anything is generated its last block, too.
func (s *pagedStore) fork(first []int32, t *tables) {
	table := append(make([]int32, 0, s.blocksOf(t.final)), first...)
	t.of = append(t.of, s.fill(table, t))
	shared := t.group.Request.Prompt / int(s.size)
	if t.length == t.group.Request.Prompt {
		shared = len(t.of[len(t.of)-1])
	}
	for range s.width - 1 {
		table := make([]int32, shared, s.blocksOf(t.final))
		for j := range table {
			table[j] = t.of[len(t.of)-1][j]
			s.share(table[j])
		}
		t.of = append(t.of, s.fill(table, t))
	}
}

// need returns how many blocks one prompt with its sequences takes when t is admitted.
func (s *pagedStore) need(t *tables) int64 {
	if t.length == t.group.Request.Prompt {
		return s.blocksOf(t.length)
	}
	shared := int64(t.group.Request.Prompt) / int64(s.size)
	return shared + int64(s.width)*(s.blocksOf(t.length)-shared)
}

// prompt is the tables of the sequences of prompt i.
func (s *pagedStore) prompt(t *tables, i int) [][]int32 { return t.of[i*s.width : (i+1)*s.width] }

// selection is which of a prompt's sequences go on.
type selection struct {
	children []int // of each sequence; their sum is the number of sequences
	apart    int   // the sequences name the same block at each position before it, unless none ends
	ends     bool  // a sequence has no child
}

// selectFor draws the next candidates of each prompt; without beam search each goes on once. What
// it returns is overwritten by the next call.
func (s *pagedStore) selectFor(t *tables) []selection {
	prompts := len(t.of) / s.width
	for len(s.selected) < prompts {
		s.selected = append(s.selected, selection{children: make([]int, s.width)})
	}
	for i := range prompts {
		c := &s.selected[i]
		c.apart, c.ends = 0, false
		if s.options.Sampling.Kind == kvcache.Beam {
			s.drawParents(c, t, i)
			continue
		}
		for j := range c.children {
			c.children[j] = 1
		}
	}
	return s.selected[:prompts]
}

func (s *pagedStore) drawParents(c *selection, t *tables, prompt int) {
	clear(c.children)
	chance := s.options.Seed
	for _, v := range [...]uint64{uint64(t.group.ID), uint64(t.length), uint64(prompt)} {
		chance = chain(chance, v)
	}
	for i := range c.children {
		c.children[s.parent(chance, i)]++
	}
	c.ends = slices.Contains(c.children, 0)
	if c.ends {
		c.apart = apart(s.prompt(t, prompt))
	}
}

// apart is the first position from which on not all tables name the same block. They part
// once and for all, as branches of a tree do.
func apart(tables [][]int32) int {
	for j := len(tables[0]) - 1; j >= 0; j-- {
		if !slices.ContainsFunc(tables[1:], func(table []int32) bool { return table[j] != tables[0][j] }) {
			return j + 1
		}
	}
	return 0
}

// after is how many of the next sequences name the block that sequence i has at position j; ok
// is only true for the first sequence that names it.
func (c *selection) after(tables [][]int32, i, j int) (n int, ok bool) {
	for k, table := range tables {
		if table[j] != tables[i][j] {
			continue
		}
		if k < i {
			return 0, false
		}
		n += c.children[k]
	}
	return n, true
}

// balance is how many blocks the next token of each sequence takes, less what the selection
// frees before.
func (s *pagedStore) balance(tables [][]int32, c *selection, length int) int64 {
	var taken int64
	last := length / int(s.size)
	if last == len(tables[0]) {
		taken = int64(len(tables))
	} else if len(tables) > 1 {
		for i := range tables {
			if n, ok := c.after(tables, i, last); ok && n > 1 {
				taken += int64(n - 1)
			}
		}
	}
	if !c.ends {
		return taken
	}
	for j := c.apart; j < len(tables[0]); j++ {
		for i := range tables {
			if n, ok := c.after(tables, i, j); ok && n == 0 {
				taken--
			}
		}
	}
	return taken
}

// replace puts further children of those that have more than one into the places of those that
// have none.
func (s *pagedStore) replace(tables [][]int32, c *selection) {
	if !c.ends {
		return
	}
	parent := 0
	for i, n := range c.children {
		if n > 0 {
			continue
		}
		for c.children[parent] < 2 {
			parent++
		}
		c.children[parent]--
		for j := len(tables[i]) - 1; j >= c.apart; j-- {
			old := tables[i][j]
			tables[i][j] = tables[parent][j]
			s.share(tables[i][j])
			s.drop(old)
		}
	}
}

// own gives a sequence a copy of a block that others name as well, with one more slot filled.
func (s *pagedStore) own(shared int32) int32 {
	b := &s.blocks[shared]
	filled, final := b.filled, b.final
	s.drop(shared)
	s.copies++
	return s.take(filled+1, final)
}

// AddSharing adds the blocks that sharing saves now to the sums of r, and those that sharing by
// content and position alone would save beside them.
func (s *pagedStore) AddSharing(r *kvcache.Result, steps int64) {
	n := float64(steps)
	r.LogicalBlocks += n * float64(s.references)
	r.SavedBySequences += n * float64(s.references-s.used-s.crossing)
	r.SavedByPrefix += n * float64(s.crossing)
	r.SavedByEqual += n * float64(s.equal)
}

// AddCounters adds what was counted so far to r: blocks copied, swapped out and in, requests
// admitted that found a part of their prompt, and the tokens they found.
func (s *pagedStore) AddCounters(r *kvcache.Result) {
	r.Copies += s.copies
	r.SwappedOut += s.swappedOut
	r.SwappedIn += s.swappedIn
	r.PrefixHits += s.hits
	r.PrefixTokens += s.hitTokens
}
