package reporttest

import (
	"cmp"
	"slices"
)

// Allocation is one that a page has at some of its exact events, by position.
type Allocation struct {
	From, To               int64
	Addr, Bytes, Requested int64
}

// Kinds of a stretch on a page.
const (
	mapped    = 0
	untouched = 1
	live      = 3
	region    = 4 // mapped, and chunks do not reach into it from below
)

// Allocations decodes the live allocations of a device's exact events, as the page's script does. Bases are those of
// the arenas.
func Allocations(device map[string]any, positions int, bases []int64) (all []Allocation) {
	column := func(name string) []int64 { return device[name].([]int64) }
	unit := int64(device["unit"].(float64))
	lastAddr, lastExtra := make([]int64, len(column("arena"))), make([]int64, len(column("arena")))
	arenas := map[int64]*freeRanges{}
	type taken struct {
		arena, to int64
		freeRange
	}
	var present []taken
	sorts := 0
	for i, sort := range column("sort") {
		at := int(sort) - 1
		if sort == 0 {
			at = sorts
			sorts++
		}
		arena, kind, requested := column("arena")[at], column("kind")[at], column("requested")[at]
		from, to := column("from")[i], int64(positions)
		if n := column("events")[i]; n > 0 {
			to = from + n
		}
		present = slices.DeleteFunc(present, func(p taken) bool {
			if p.to <= from {
				arenas[p.arena].give(p.freeRange)
			}
			return p.to <= from
		})
		if arenas[arena] == nil {
			arenas[arena] = &freeRanges{walls: map[int64]bool{}}
		}
		free := arenas[arena]
		rounded := (requested + 255) / 256 * 256
		var place freeRange
		switch d := column("addr")[i]; {
		case d == 0:
			place = free.bestFit(rounded)
			place.bytes += column("extra")[i]
		case d > 0:
			place = freeRange{lastAddr[at] + (d-1)*unit, rounded + lastExtra[at] + column("extra")[i]}
		default:
			place = freeRange{lastAddr[at] + d*unit, rounded + lastExtra[at] + column("extra")[i]}
		}
		lastAddr[at], lastExtra[at] = place.at, place.bytes-rounded
		switch {
		case kind == mapped || kind == region:
			free.grow(place, kind == region)
		case kind != untouched && free.take(place):
			present = append(present, taken{arena, to, place})
		}
		if kind == live {
			all = append(all, Allocation{from, to, bases[arena] + place.at, place.bytes, requested})
		}
	}
	return all
}

// freeRanges are the free ranges of an arena, by address: the simplest form of what the page's encoder and script have.
type freeRanges struct {
	free, mapped []freeRange
	walls        map[int64]bool
}

type freeRange struct{ at, bytes int64 }

func (r freeRange) end() int64 { return r.at + r.bytes }

func (f *freeRanges) bestFit(needed int64) freeRange {
	fits := slices.DeleteFunc(slices.Clone(f.free), func(r freeRange) bool { return r.bytes < needed })
	best := slices.MinFunc(fits, func(a, b freeRange) int { return cmp.Or(cmp.Compare(a.bytes, b.bytes), cmp.Compare(a.at, b.at)) })
	if best.bytes >= 2*needed || best.bytes-needed >= 128<<20 {
		best.bytes = needed
	}
	return best
}

// grow has what was never mapped before be free.
func (f *freeRanges) grow(r freeRange, region bool) {
	if region {
		f.walls[r.at] = true
	}
	fresh := []freeRange{r}
	for _, old := range f.mapped {
		var left []freeRange
		for _, part := range fresh {
			if end := min(part.end(), old.at); part.at < end {
				left = append(left, freeRange{part.at, end - part.at})
			}
			if at := max(part.at, old.end()); at < part.end() {
				left = append(left, freeRange{at, part.end() - at})
			}
		}
		fresh = left
	}
	f.mapped = append(f.mapped, fresh...)
	for _, part := range fresh {
		f.give(part)
	}
}

// take has a range be free no more. It says whether all of it was in one free range.
func (f *freeRanges) take(r freeRange) bool {
	at := slices.IndexFunc(f.free, func(w freeRange) bool { return w.at <= r.at && r.end() <= w.end() })
	if at < 0 {
		return false
	}
	within := f.free[at]
	f.free = slices.Replace(f.free, at, at+1, freeRange{within.at, r.at - within.at}, freeRange{r.end(), within.end() - r.end()})
	f.free = slices.DeleteFunc(f.free, func(r freeRange) bool { return r.bytes == 0 })
	return true
}

// give has a range be free, one with the free ranges that it touches.
func (f *freeRanges) give(r freeRange) {
	f.free = append(f.free, r)
	slices.SortFunc(f.free, func(a, b freeRange) int { return cmp.Compare(a.at, b.at) })
	joined := f.free[:1]
	for _, next := range f.free[1:] {
		if last := &joined[len(joined)-1]; last.end() == next.at && !f.walls[next.at] {
			last.bytes += next.bytes
			continue
		}
		joined = append(joined, next)
	}
	f.free = joined
}
