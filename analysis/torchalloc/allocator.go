package torchalloc

import (
	"errors"
	"slices"
)

// AllocatorOptions are what an Allocator is made with.
type AllocatorOptions struct {
	Settings
	Version Version
	Total   uint64 // bytes of the device; reservations and Fraction refer to it
	// Fraction is what torch.cuda.set_per_process_memory_fraction was given, in (0, 1]; 0 where
	// it was not called. 1 is a limit in torch 2.6 and none later.
	Fraction float64
}

// rules are the differences between versions.
type rules struct {
	fullFraction  bool // a fraction of 1 is a limit
	oldestScope   bool // the oldest scope that accepts a stream wins; else the newest
	scopeRelease  bool // in a scope, private pools can be released
	creationOrder bool // equal blocks are ordered by when their segment was made
}

func (v Version) rules() rules {
	return rules{
		fullFraction:  v == Torch26,
		oldestScope:   v == Torch26,
		scopeRelease:  v != Torch26,
		creationOrder: v == Torch213,
	}
}

// Allocator is torch's allocator of one device. It is not safe for use by several goroutines.
type Allocator struct {
	settings Settings
	rules    rules
	device   Device
	total    uint64
	limit    uint64 // of reserved bytes; all bits set where there is none

	small, large *pool
	private      map[PoolID]*privatePool
	unused       []*privatePool // without a use, in the order in which the last use ended
	scopes       []scope        // open, the oldest first
	pending      []*Block       // in the order of their frees
	deferred     []*Block
	segments     uint64 // made so far
	open         map[*segment]struct{}
	stats        Stats
	key          Block // of the search under way
	placed       bool  // where the device placed segments has decided something: an order of free blocks, or a refusal
}

// NewAllocator makes an allocator that holds nothing.
func NewAllocator(options AllocatorOptions, device Device) *Allocator {
	a := &Allocator{
		settings: options.Settings, rules: options.Version.rules(), device: device, total: options.Total, limit: unlimited,
		private: map[PoolID]*privatePool{}, open: map[*segment]struct{}{},
	}
	fraction := options.Fraction
	if fraction == 0 {
		fraction = options.Settings.Fraction
	}
	if fraction > 0 && (fraction < 1 || a.rules.fullFraction) {
		a.limit = uint64(fraction * float64(options.Total))
	}
	a.small = newPool(true, nil, a)
	a.large = newPool(false, nil, a)
	return a
}

// ErrOutOfMemory is the error of a request that failed after all releases.
var ErrOutOfMemory = errors.New("out of memory")

// largestRequest is the largest request, so that sums of sizes do not overflow.
const largestRequest = 1 << 56

// Malloc serves a request of n > 0 bytes from a stream. The error is ErrOutOfMemory.
func (a *Allocator) Malloc(n, stream uint64) (*Block, error) {
	if len(a.scopes) == 0 {
		a.freeDeferred()
	}
	if n > largestRequest {
		return nil, ErrOutOfMemory
	}
	size := a.settings.Round(n)
	p := a.poolOf(size, stream)
	b := a.search(p, size, stream)
	if b == nil {
		b = a.obtain(p, size, stream)
	}
	if b == nil {
		return nil, ErrOutOfMemory
	}
	return a.serve(b, size, n, a.splits(p, size, b.size-size)), nil
}

// serve hands out a block for a request of n bytes; split: only its first bytes, the rounded size.
func (a *Allocator) serve(b *Block, size, n uint64, split bool) *Block {
	if split {
		rest := b
		b = rest.cutFront(size)
		b.pool.insert(rest)
	}
	b.allocated, b.requested = true, n
	a.stats.served(b)
	return b
}

// poolOf returns the pool that serves a rounded size.
func (a *Allocator) poolOf(size, stream uint64) *pool {
	small, large := a.small, a.large
	for i := range a.scopes {
		s := &a.scopes[len(a.scopes)-1-i]
		if a.rules.oldestScope {
			s = &a.scopes[i]
		}
		if s.accept(stream) {
			small, large = s.pool.small, s.pool.large
			break
		}
	}
	if size <= smallLimit {
		return small
	}
	return large
}

// search removes the free block that serves a request from its pool and returns it; nil: there is none.
func (a *Allocator) search(p *pool, size, stream uint64) *Block {
	if a.collects() {
		p.searches++
	}
	found := a.find(p, size, stream)
	if found != nil {
		p.free.Delete(found)
	}
	return found
}

// find returns the free block that serves a request, or nil.
func (a *Allocator) find(p *pool, size, stream uint64) (found *Block) {
	a.key.stream, a.key.size = stream, size
	p.free.Ascend(&a.key, func(b *Block) bool {
		switch {
		case b.stream != stream:
			return false
		case !a.settings.Expandable:
			if b.expandable() {
				return true
			}
			found = b
			return false
		case found == nil || b.grown() < found.grown():
			found = b
			return b.expandable()
		}
		return false
	})
	if found == nil {
		return nil
	}
	s := a.settings.MaxSplit
	if size < s && found.size >= s || size >= s && found.size >= size+a.settings.MaxNonSplitRounding {
		return nil
	}
	return found
}

// splits says whether the rest of a block beyond a rounded size becomes a block.
func (a *Allocator) splits(p *pool, size, rest uint64) bool {
	if p.small || a.settings.Expandable {
		return rest >= unit
	}
	return size < a.settings.MaxSplit && rest > smallLimit
}

// obtain returns a block of at least size from new memory, after releasing free blocks where memory is
// refused; nil: it is still refused.
func (a *Allocator) obtain(p *pool, size, stream uint64) *Block {
	if a.collects() {
		a.collectGarbage()
	}
	if b := a.grow(p, size, stream); b != nil {
		return b
	}
	if a.releaseOversize(p, size, stream) {
		if b := a.grow(p, size, stream); b != nil {
			return b
		}
	}
	if len(a.scopes) > 0 {
		return nil
	}
	a.releaseAll()
	a.stats.Retries++
	return a.grow(p, size, stream)
}

// grow requests new memory once; nil: the limit or the device refuses.
func (a *Allocator) grow(p *pool, size, stream uint64) *Block {
	bytes := a.settings.segment(size)
	if a.stats.Reserved.Now+bytes > a.limit {
		return nil
	}
	if a.settings.Expandable {
		return a.expand(p, size, stream)
	}
	addr, ok := a.device.Alloc(bytes)
	if !ok {
		a.placed = true
		return nil
	}
	a.stats.DeviceAllocs++
	a.stats.reserve(bytes)
	return a.newSegment(p, addr, bytes, stream, 0)
}

// newSegment returns the only block of a new segment. page is 0 for one that is not expandable. The
// block is in no pool's order.
func (a *Allocator) newSegment(p *pool, addr, bytes, stream, page uint64) *Block {
	a.segments++
	s := &segment{addr: addr, size: bytes, number: a.segments, expandable: page > 0, page: page}
	b := &Block{addr: addr, size: bytes, stream: stream, mapped: page == 0, segment: s, pool: p}
	s.first = b
	a.open[s] = struct{}{}
	if p.owner != nil {
		p.owner.segments++
	}
	return b
}

// closeSegment removes a segment that was released.
func (a *Allocator) closeSegment(b *Block) {
	delete(a.open, b.segment)
	if b.pool.owner != nil {
		b.pool.owner.segments--
	}
}

// RecordStream says that another stream uses an allocated block. The block's own stream does
// not count.
func (a *Allocator) RecordStream(b *Block, stream uint64) {
	if stream == b.stream {
		return
	}
	at := slices.IndexFunc(b.streams, func(u use) bool { return u.stream == stream })
	if at < 0 {
		at = len(b.streams)
		b.streams = append(b.streams, use{stream: stream})
	}
	b.streams[at].captured = b.streams[at].captured || len(a.scopes) > 0
}

// Free ends an allocation and returns whether its block is pending: until Complete, or until a release
// of everything completes it.
func (a *Allocator) Free(b *Block) (pending bool) {
	b.allocated = false
	a.stats.freed(b)
	switch {
	case len(b.streams) == 0:
		a.free(b)
	case len(a.scopes) > 0:
		b.deferred = true
		a.deferred = append(a.deferred, b)
	default:
		b.pending = true
		a.pending = append(a.pending, b)
	}
	return b.pending || b.deferred
}

// Complete says that the last event of a pending block has passed. It does nothing to blocks
// that are not pending (any more).
func (a *Allocator) Complete(b *Block) {
	if !b.pending {
		return
	}
	at := slices.Index(a.pending, b)
	a.pending = slices.Delete(a.pending, at, at+1)
	a.complete(b)
}

// Pending returns the blocks that wait for events, in the order of their frees.
func (a *Allocator) Pending() []*Block { return slices.Clone(a.pending) }

func (a *Allocator) complete(b *Block) {
	b.pending, b.streams = false, nil
	a.free(b)
}

// freeDeferred frees the blocks whose free was deferred in scopes that have ended.
func (a *Allocator) freeDeferred() {
	for _, b := range a.deferred {
		b.deferred = false
		b.streams = slices.DeleteFunc(b.streams, func(u use) bool { return u.captured })
		if len(b.streams) == 0 {
			a.complete(b)
			continue
		}
		b.pending = true
		a.pending = append(a.pending, b)
	}
	a.deferred = nil
}

// free makes a block available to requests.
func (a *Allocator) free(b *Block) {
	a.stats.idle(b)
	b.pool.merge(b)
	b.pool.insert(b)
}
