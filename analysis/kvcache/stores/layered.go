package stores

import (
	"math"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/models"
)

// layeredStore is the store of policy Hybrid, and of Uniform, under which every layer that keeps tokens keeps all of them, those
// of an encoder too, and each sequence has its states: caches before vLLM had pages for layers of several kinds.
//
// Token is what layers need, internal the rest of the pages in use, in slots of a token in all layers that keep
// any. A slot is no whole part of a page, so shares are rounded down, and the rest is rounding. Nothing is shared.
type layeredStore struct {
	options   kvcache.Options
	layout    models.Layout
	pages     int64 // of the memory
	free      int64
	watermark int64
	width     int64
	running   int64

	needed, held       []int64   // bytes, by kind
	sumNeeded, sumHeld []float64 // times the weight of steps
	weight             float64
}

// hybridTables is what a group of sequences has, by kind.
type hybridTables struct {
	sequences, length int64
	pages, needed     []int64 // of one sequence
}

func newLayered(o kvcache.Options) *layeredStore {
	kinds := append([]models.LayerKind(nil), o.Policy.Layers...)
	s := &layeredStore{options: o, width: int64(max(1, o.Sampling.Width))}
	if o.Policy.Kind == kvcache.Uniform {
		// One page has a block in all layers. What tokens need in them is worked out apart.
		s.layout = models.Layout{Page: o.Policy.Slot * int64(o.Policy.Block)}
		for _, k := range kinds {
			s.layout.Groups = append(s.layout.Groups, models.LayerGroups{LayerKind: k, Block: int64(o.Policy.Block)})
		}
	} else {
		s.layout = models.Unify(kinds, int64(o.Policy.Block))
	}
	s.pages = o.Capacity * o.Policy.Slot / s.layout.Page
	s.free = s.pages
	s.watermark = int64(math.Floor(o.Watermark * float64(s.pages)))
	n := len(kinds)
	s.needed, s.held, s.sumNeeded, s.sumHeld = make([]int64, n), make([]int64, n), make([]float64, n), make([]float64, n)
	return s
}

// encoder is the tokens of an encoder, which under Uniform every layer keeps.
func (s *layeredStore) encoder() int64 {
	var tokens int64
	for _, g := range s.layout.Groups {
		if g.Keep == models.Cross {
			tokens = max(tokens, int64(g.Window))
		}
	}
	return tokens
}

// of returns what a sequence of so many tokens has: pages, and by kind bytes held and needed.
func (s *layeredStore) of(tokens int64) (total int64, held, needed []int64) {
	held, needed = make([]int64, len(s.layout.Groups)), make([]int64, len(s.layout.Groups))
	if s.options.Policy.Kind != kvcache.Uniform {
		for i := range s.layout.Groups {
			pages, bytes := s.layout.Groups[i].Pages(tokens)
			total += pages
			held[i], needed[i] = pages*s.layout.Page, bytes
		}
		return total, held, needed
	}
	block := int64(s.options.Policy.Block)
	blocks := roundUp(tokens+s.encoder(), block) / block
	var states int64
	for i := range s.layout.Groups {
		g := &s.layout.Groups[i]
		from, to := g.Kept(tokens)
		needed[i] = (to - from) * g.Bytes * int64(g.Layers)
		if g.Keep == models.State {
			held[i] = needed[i]
			states += held[i]
			continue
		}
		held[i] = blocks * block * g.Bytes * int64(g.Layers)
	}
	return blocks + roundUp(states, s.layout.Page)/s.layout.Page, held, needed
}

func (s *layeredStore) Possible(r *kvcache.Request) bool {
	return s.most(r)*int64(r.PromptCount())*s.width <= s.pages
}

// most is the most pages that a sequence of a request has at any length: chunks end, so that is not always the last.
func (s *layeredStore) most(r *kvcache.Request) int64 {
	most, _, _ := s.of(int64(r.Length()))
	for _, g := range s.layout.Groups {
		if w := int64(g.Window); g.Keep == models.Chunked && int64(r.Length()) > w {
			pages, _, _ := s.of(int64(r.Length()) / w * w)
			most = max(most, pages)
		}
	}
	for _, g := range s.layout.Groups {
		if g.Keep == models.Sliding && s.options.Policy.Kind == kvcache.Hybrid {
			most += g.Groups // where the window begins and ends within blocks
		}
	}
	return most
}

func (s *layeredStore) allows(pages int64) bool {
	if s.running > 0 {
		pages += s.watermark
	}
	return pages <= s.free
}

func (s *layeredStore) Admit(g *kvcache.Group) bool {
	t := &hybridTables{sequences: int64(g.Request.PromptCount()) * s.width, length: int64(g.Length())}
	pages, held, needed := s.of(t.length)
	if !s.allows(pages * t.sequences) {
		return false
	}
	t.pages, t.needed = held, needed
	s.count(t, pages, 1)
	s.running++
	g.Private = t
	return true
}

func (s *layeredStore) Grow(g *kvcache.Group) bool {
	t := g.Private.(*hybridTables)
	before, _, _ := s.of(t.length)
	pages, held, needed := s.of(t.length + 1)
	if (pages-before)*t.sequences > s.free {
		return false
	}
	s.count(t, before, -1)
	t.length++
	t.pages, t.needed = held, needed
	s.count(t, pages, 1)
	return true
}

func (s *layeredStore) Release(g *kvcache.Group) {
	t := g.Private.(*hybridTables)
	g.Private = nil
	pages, _, _ := s.of(t.length)
	s.count(t, pages, -1)
	s.running--
}

// SwapOut is false: requests are dropped and computed again.
func (s *layeredStore) SwapOut(*kvcache.Group) bool { return false }

// count adds a group's pages, times sign, to the sums.
func (s *layeredStore) count(t *hybridTables, pages, sign int64) {
	s.free -= sign * t.sequences * pages
	for i := range t.pages {
		s.held[i] += sign * t.sequences * t.pages[i]
		s.needed[i] += sign * t.sequences * t.needed[i]
	}
}

func (s *layeredStore) Shares(head *kvcache.Request) kvcache.Shares {
	var needed int64
	for _, n := range s.needed {
		needed += n
	}
	slot := s.options.Policy.Slot
	used := (s.pages - s.free) * s.layout.Page
	out := kvcache.Shares{Token: needed / slot, Internal: (used - needed) / slot, Idle: s.free * s.layout.Page / slot}
	out.Rounding = s.options.Capacity - out.Token - out.Internal - out.Idle
	if head != nil {
		pages, _, _ := s.of(int64(head.Prompt))
		if !s.allows(pages * int64(head.PromptCount()) * s.width) {
			out.Blocked, out.Idle = out.Idle, 0
		}
	}
	return out
}

// Weigh adds the present state to the means of the kinds.
func (s *layeredStore) Weigh(weight int64) {
	s.weight += float64(weight)
	for i := range s.held {
		s.sumHeld[i] += float64(weight) * float64(s.held[i])
		s.sumNeeded[i] += float64(weight) * float64(s.needed[i])
	}
}

func (s *layeredStore) Kinds() []kvcache.KindUse {
	var out []kvcache.KindUse
	for i, g := range s.layout.Groups {
		u := kvcache.KindUse{Kind: g.LayerKind, Block: g.Block, Page: s.layout.Page, Groups: g.Groups}
		if s.weight > 0 {
			u.Held, u.Needed = s.sumHeld[i]/s.weight, s.sumNeeded[i]/s.weight
		}
		out = append(out, u)
	}
	return out
}

// roundUp returns x rounded up to a multiple of unit.
func roundUp(x, unit int64) int64 { return (x + unit - 1) / unit * unit }
