package ledger

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestLargestFree: whenever it is asked, the largest free chunk is that of the list of segments, and so
// are the number and the sizes of the chunks, whether or not the arena can pay for the reading of its segments.
func TestLargestFree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const cell, cells, base = 256, 48, 1 << 20
		l, d := New(), NewDevice(0)
		options := fmt.Sprintf("coalesces=%d", rapid.IntRange(0, 1).Draw(t, "coalesces"))
		ar, err := l.Describe(&trace.Event{Kind: trace.KindArena, Addr: base, Provided: cells * cell}, options, func(int32) *Device { return d })
		assert.NoError(t, err)
		ar.chunks.steps = rapid.SampledFrom([]int{-5000, -1000, 0, 1 << 30}).Draw(t, "steps")
		var blocks [cells]int64
		for seq := range rapid.Int64Range(20, 300).Draw(t, "events") {
			at := rapid.IntRange(0, cells-1).Draw(t, "at")
			r := Range{base + int64(at)*cell, base + int64(at+rapid.IntRange(1, min(6, cells-at)).Draw(t, "cells"))*cell}
			free, mapped := l.isFree(ar, r)
			switch {
			case blocks[at] > 0:
				i, err := l.Occupied(ar, &trace.Event{Addr: r.From}, LiveSegment)
				assert.NoError(t, err)
				l.Free(ar, i, seq)
				blocks[at] = 0
			case !mapped && l.CanMap(ar, r) == nil:
				l.Map(ar, r, seq)
			case free && rapid.IntRange(0, 5).Draw(t, "unmap") == 0:
				assert.NoError(t, l.Unmap(ar, r))
			case free:
				if _, err := l.Alloc(ar, &trace.Event{Seq: seq, Addr: r.From, Requested: r.Bytes(), Provided: r.Bytes()}); err != nil {
					t.Fatal(err)
				}
				blocks[at] = r.Bytes()
			}
			assert.NoError(t, l.EndChanges(ar))
			if rapid.IntRange(0, 3).Draw(t, "ask") == 0 {
				l.checkLargest(t, ar)
			}
		}
		l.checkLargest(t, ar)
	})
}

// isFree says whether all of r is free, and whether any of it is mapped.
func (l *Ledger) isFree(ar *Arena, r Range) (free, mapped bool) {
	bytes := int64(0)
	l.Each(ar, func(s *Segment) {
		in := min(s.End(), r.To) - max(s.Addr, r.From)
		if in <= 0 {
			return
		}
		mapped = true
		if s.Free() {
			bytes += in
		}
	})
	return bytes == r.Bytes(), mapped
}

// checkLargest counts the free chunks and what was handed out of the largest anew.
func (l *Ledger) checkLargest(t *rapid.T, ar *Arena) {
	t.Helper()
	var most, touched int64
	n := 0
	sizes := map[int64]int{}
	last := &Segment{}
	l.Each(ar, func(s *Segment) {
		assert.Must(t, !s.Free() || !last.Free() || last.End() != s.Addr || s.Region, "the chunk at %#x is two segments", last.Addr)
		last = s
		if !s.Free() {
			return
		}
		n++
		sizes[s.Size]++
		if s.Size > most {
			most, touched = s.Size, s.Size-ar.untouched.in(Range{s.Addr, s.End()})
		}
	})
	bytes, of := l.largestOf(ar)
	assert.Must(t, bytes == most && of == touched, "largest %d, touched %d, want %d, %d", bytes, of, most, touched)
	for _, size := range ar.ChunkSizes(nil) {
		sizes[size]--
	}
	for size, left := range sizes {
		assert.Must(t, left == 0, "%d chunks of %d bytes are missing", left, size)
	}
	assert.Must(t, ar.Chunks() == n, "%d chunks, want %d", ar.Chunks(), n)
}
