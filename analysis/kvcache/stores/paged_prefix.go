package stores

import "github.com/memprof/memprof/analysis/kvcache"

// Later requests find the full blocks of a prompt whose content is known: while they are in use, and
// after that until they are evicted, the least recently used first. The name of a block is a hash of its
// content and of the name of the block before it, so that equal names are equal prompts up to there. At
// least the last token of a request is always computed. So a prompt that is found as a whole takes a
// new last block, which has the same name as the found one. Generated tokens have no name.
//
// Blocks of equal content at the same position behind different beginnings are counted and not
// shared: their keys and values differ in all layers but the first.

// names are those of the full blocks of a prompt, as far as they are known.
type names struct {
	hashes       []uint64 // of the request they were made for
	piece, full  int      // its tokens of a hash, its full blocks
	keys, places []uint64
}

// unnamed is of a prompt that nothing is known of.
var unnamed names

// namesOf makes the names of a prompt's blocks. Those made last are kept: the request at the
// head of the queue asks again at every step. Several prompts in one request have none.
func (s *pagedStore) namesOf(r *kvcache.Request) *names {
	if len(r.Hashes) == 0 || r.HashTokens < 1 || r.PromptCount() > 1 {
		return &unnamed
	}
	full := r.Prompt / int(s.size)
	if n := s.named; n != nil && &n.hashes[0] == &r.Hashes[0] && len(n.hashes) == len(r.Hashes) && n.full == full && n.piece == r.HashTokens {
		return n
	}
	n := &names{hashes: r.Hashes, piece: r.HashTokens, full: full}
	var key uint64
	for j := range full {
		from, to := j*int(s.size)/r.HashTokens, ((j+1)*int(s.size)-1)/r.HashTokens
		if to >= len(r.Hashes) {
			break
		}
		place := chain(uint64(j), uint64(r.HashTokens))
		for _, h := range r.Hashes[from : to+1] {
			place = chain(place, h)
		}
		key = max(1, chain(key, place))
		n.keys = append(n.keys, key)
		n.places = append(n.places, max(1, place))
	}
	s.named = n
	return n
}

// find is the blocks that hold the beginning of a request of so many tokens, and how many of
// them are free.
func (s *pagedStore) find(n *names, length int) (found []int32, free int64) {
	most := min(len(n.keys), (length-1)/int(s.size))
	for _, key := range n.keys[:most] {
		k := s.keys.first(key)
		if k == none {
			break
		}
		if s.blocks[k].references == 0 {
			free++
		}
		found = append(found, k)
	}
	return found, free
}

// hit makes the found blocks the beginning of a table.
func (s *pagedStore) hit(found []int32) {
	for _, k := range found {
		if s.blocks[k].references > 0 {
			s.crossing++
		}
		s.share(k)
	}
	if len(found) > 0 {
		s.hits++
		s.hitTokens += int64(len(found)) * int64(s.size)
	}
}

// part takes what a group that has gone shared with others out of the count.
func (s *pagedStore) part(t *tables) {
	for _, k := range t.of[0] {
		if s.blocks[k].references > 0 {
			s.crossing--
		}
	}
}
