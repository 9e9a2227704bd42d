package dataset

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestOpeningKVIsSaidAgain: the opening rows of a part make the same state, wherever the part begins.
func TestOpeningKVIsSaidAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		texts := NewStrings()
		f := newOpener(texts)
		seq := int64(0)
		add := func(kind trace.Kind, cache, sequence, requested, provided int64, text string) {
			f.add(&trace.Event{Seq: seq, Kind: kind, Stream: cache, Addr: sequence, Requested: requested, Provided: provided, Context: texts.Intern(text)})
			seq++
		}
		add(trace.KindKVCache, 1, 0, 64, 8, "layout=paged\tblock=4")
		add(trace.KindKVCache, 2, 0, 0, 8, "layout=contiguous")
		add(trace.KindKVCache, 3, 0, 64, 8, "layout=contiguous")
		small := rapid.Int64Range(0, 5)
		for range rapid.IntRange(0, 60).Draw(t, "marks") {
			cache, sequence, n := rapid.Int64Range(1, 3).Draw(t, "cache"), rapid.Int64Range(-1, 4).Draw(t, "sequence"), small.Draw(t, "n")
			switch rapid.IntRange(0, 11).Draw(t, "what") {
			case 10:
				if sequence >= 0 {
					add(trace.KindKVFree, cache, sequence, 0, 0, "swap=out")
				}
			case 11:
				if sequence >= 0 {
					add(trace.KindKVReserve, cache, sequence, n, 4*(n+1), "swap=in")
				}
			case 0, 1, 2:
				if cache > 1 || sequence >= 0 {
					add(trace.KindKVReserve, cache, sequence, n*int64(cache&1), 4*(n+1), rapid.SampledFrom([]string{"", "prompt=7"}).Draw(t, "prompt"))
				}
			case 3, 4, 5:
				add(trace.KindKVAppend, cache, sequence, n, 0, "")
			case 6:
				if cache == 1 {
					add(trace.KindKVShare, cache, sequence, n, 4, rapid.SampledFrom([]string{"", "position=0", "position=1"}).Draw(t, "position"))
				}
			case 7, 8:
				add(trace.KindKVFree, cache, sequence, 4*n, 4, "")
			case 9:
				if cache == 2 {
					add(trace.KindKVFree, cache, -1, 0, 0, "")
				}
			}
		}
		again := newOpener(texts)
		rows := f.rows(true)
		for i := range rows {
			if i > 0 && rows[i].Seq < rows[i-1].Seq {
				t.Fatalf("row %d of seq %d comes after seq %d", i, rows[i].Seq, rows[i-1].Seq)
			}
			again.add(&rows[i])
		}
		compare := cmp.Options{
			cmp.AllowUnexported(openingCache{}, openingSequence{}),
			cmpopts.IgnoreFields(openingSequence{}, "first"),
			cmpopts.EquateEmpty(),
			// What holds nothing needs no event.
			cmpopts.IgnoreMapEntries(func(_ int64, s *openingSequence) bool { return s.slots == 0 && len(s.table) == 0 }),
			// A block that is both comes of marks that make no sense.
			cmpopts.IgnoreMapEntries(func(_ int64, users int) bool { return users < 1 }),
		}
		diff := cmp.Diff(f.kv.caches, again.kv.caches, compare)
		assert.Must(t, diff == "", "said again (-want +got):\n%s", diff)
	})
}
