package analysis

import (
	"cmp"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/keyframes"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// requestedOf is the requested bytes of all categories: T.
func requestedOf(categories attribution.CategoryBytes) (sum int64) {
	for _, bytes := range categories {
		sum += bytes
	}
	return sum
}

// The bytes of each category at each moment are those of the allocations that are live there. Which pools are of CUDA
// graphs is known for good after the first captures only, so of traces that have some only the sums agree.
func TestCategoriesOverTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := attributedScenario(t)
		result, err := explored(r, Options{Text: r.Strings.Text}, []keyframes.Span{{From: 0, To: 1 << 40}})
		assert.NoError(t, err)
		captures := slices.ContainsFunc(r.Events, func(e trace.Event) bool { return e.Kind == trace.KindCaptureBegin })
		for i := range result.Devices {
			d := &result.Devices[i]
			most := int64(0)
			for _, p := range d.ByCategory {
				most = max(most, requestedOf(p.Bytes))
				var want attribution.CategoryBytes
				for _, s := range d.Keyframes.Exact.Stretches {
					if s.Kind == keyframes.StretchLive && int64(s.From) <= p.Seq && p.Seq < int64(s.To) {
						want[d.Keyframes.Origins[s.Origin].Category] += s.Requested
					}
				}
				if captures {
					want, p.Bytes = attribution.CategoryBytes{requestedOf(want)}, attribution.CategoryBytes{requestedOf(p.Bytes)}
				}
				diff := gocmp.Diff(want, p.Bytes)
				assert.Must(t, diff == "", "after event %d (-want +got):\n%s", p.Seq, diff)
			}
			assert.Must(t, most == d.MaxT, "the most is %d, want %d", most, d.MaxT)
		}
	})
}

// A label of a block whose free another stream still delays moves its bytes at all moments of its life.
func TestCategoryOfPendingBlock(t *testing.T) {
	r := modeltest.New()
	a := newArena(t, r, bfc.Options{Limit: bfc.NoLimit}, bfc.DeviceOptions{VMM: true, Granularity: 2 * mib})
	x := alloc(t, a, 1000, "")
	alloc(t, a, 300, "") // the peak
	a.Use(x, 7)
	a.Free(x, true)
	r.Add(trace.Event{Kind: trace.KindLabel, Addr: int64(x), Context: r.Strings.Intern("category=inputs")})
	a.FreeDone(x)
	d := run(t, r, Options{}).Devices[0]
	peak := slices.MaxFunc(d.ByCategory, func(a, b attribution.CategoryPoint) int {
		return cmp.Compare(requestedOf(a.Bytes), requestedOf(b.Bytes))
	})
	assert.Equal(t, peak.Bytes, (attribution.CategoryBytes{attribution.Inputs: 1000, attribution.Other: 300}), "at the peak")
}

// Windows that are joined keep the sums at the moments that stay.
func TestCategoriesOfJoinedWindows(t *testing.T) {
	type block struct {
		from, to, bytes int64
		category        attribution.Category
	}
	rapid.Check(t, func(t *rapid.T) {
		k := attribution.NewCategoryCourse(4)
		d := new(ledger.Device)
		var live, all []block
		for seq := range int64(rapid.IntRange(1, 200).Draw(t, "events")) {
			if len(live) > 0 && rapid.Bool().Draw(t, "free") {
				at := rapid.IntRange(0, len(live)-1).Draw(t, "which")
				b := live[at]
				b.to = seq
				live = append(live[:at:at], live[at+1:]...)
				k.Live(b.bytes, b.category, b.from, b.to, nil)
				all = append(all, b)
				d.T -= b.bytes
			} else {
				b := block{seq, 1 << 40, rapid.Int64Range(1, 9).Draw(t, "bytes"), attribution.Category(rapid.IntRange(0, 9).Draw(t, "category"))}
				live = append(live, b)
				d.T += b.bytes
			}
			k.Observe(d, seq, seq)
		}
		for _, b := range live {
			k.Live(b.bytes, b.category, b.from, b.to, nil)
		}
		for _, p := range k.Finish() {
			var want attribution.CategoryBytes
			for _, b := range append(all, live...) {
				if b.from <= p.Seq && p.Seq < b.to {
					want[b.category] += b.bytes
				}
			}
			diff := gocmp.Diff(want, p.Bytes)
			assert.Must(t, diff == "", "after event %d (-want +got):\n%s", p.Seq, diff)
		}
	})
}
