package snapshot

import (
	"github.com/memprof/memprof/analysis/torchalloc"
	"github.com/memprof/memprof/trace"
)

// Entries of torch 2.11 do not name their pool; segments that exist at the end do. A segment that torch released before belongs to a
// private pool if torch took it although the default pool had room for the request. Each such segment counts as a pool of its own:
// the best fit among several is the best fit in its own, too.

// unnamed is the first number of the ids of such pools; torch counts from 1.
const unnamed = 1 << 63

// poolOf is the pool of memory that an entry takes and that no segment of the end names.
func (l *layout) poolOf(e *entry) [2]uint64 {
	if e.pool != ([2]uint64{}) || l.settings.MaxSplit != torchalloc.DefaultSettings().MaxSplit {
		return e.pool
	}
	if before := l.memoryAt(e.addr - 1); e.action == actionSegmentMap && before != nil && before.class.pool[1] >= unnamed {
		return before.class.pool // more pages of it
	}
	if n := l.asked[l.entries]; n == 0 || !l.hasRoom(e, l.settings.Round(n)) {
		return e.pool
	}
	l.pooled++
	return [2]uint64{0, unnamed + l.pooled - 1}
}

// giveUnnamed unmaps memory of such a pool. With the last of it the pool is released, since torch keeps the memory of a pool in use. Where the
// cache is emptied, a replay releases the pool's memory only at the next emptying, so that one more is written.
func (l *layout) giveUnnamed(e *entry, arena int32) error {
	if err := l.give(e.addr, e.addr+e.size, e.stack); err != nil {
		return err
	}
	for from, m := l.memory.from(0); m != nil; from, m = l.memory.from(from + 1) {
		if m.arena == arena {
			return nil
		}
	}
	if err := l.write(trace.Event{Kind: trace.KindPoolRelease, Arena: arena}); err != nil || !l.emptying {
		return err
	}
	return l.emptyCache()
}

// hasRoom says whether a free block of the default pool has so many bytes, in a segment like the one that an entry takes.
func (l *layout) hasRoom(e *entry, bytes uint64) bool {
	arena, err := l.arenaOf(arenaKey{e.stream, classOf(e.action, e.size, [2]uint64{})})
	if err != nil {
		return false // the next event fails, too
	}
	for from, m := l.memory.from(0); m != nil; from, m = l.memory.from(from) {
		to := m.to
		for next := l.memory.get(to); m.class.expandable && next != nil && next.arena == m.arena; next = l.memory.get(to) {
			to = next.to
		}
		if m.arena == arena && l.freeIn(from, to, bytes) {
			return true
		}
		from = to
	}
	return false
}

// freeIn says whether a free block of a segment has so many bytes.
func (l *layout) freeIn(from, to, bytes uint64) bool {
	for from+bytes <= to {
		addr, b := l.blocks.from(from)
		if b == nil || addr >= from+bytes {
			return true
		}
		from = addr + b.size
	}
	return false
}
