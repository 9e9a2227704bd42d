package analysis

import (
	"cmp"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/keyframes"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
	"pgregory.net/rapid"
)

// explore is both passes, of which the second remembers so many stretches at a time.
func explore(t interface {
	Helper()
	Fatal(...any)
}, r *modeltest.Recorder, limit int,
) *Result {
	opt := Options{Text: r.Strings.Text, Explore: true}
	result, err := Run(modeltest.Source(r.Events, 7), opt)
	assert.NoError(t, err)
	a := newSecond(opt, nil, result)
	a.history = keyframes.NewSecond(nil, 0, limit)
	second, err := a.run(modeltest.Source(r.Events, 5))
	assert.NoError(t, err)
	result.explored(second)
	return result
}

// placed is a span at its address; live ones have the owner of the block and its phase.
type placed struct {
	Arena       int32
	Addr, Bytes int64
	Kind        ledger.SpanKind
}

// spansAt lays out the stretches of a frame the way At lays out an instant.
func spansAt(k *keyframes.Result, frame int32) (spans []placed) {
	var mapped, within []keyframes.Stretch
	for _, s := range k.Stretches {
		switch {
		case frame < s.From || frame >= s.To:
		case s.Kind == keyframes.StretchMapped:
			mapped = append(mapped, s)
		default:
			within = append(within, s)
		}
	}
	order := func(x, y keyframes.Stretch) int {
		return cmp.Or(cmp.Compare(x.Arena, y.Arena), cmp.Compare(x.Addr, y.Addr))
	}
	slices.SortFunc(mapped, order)
	slices.SortFunc(within, order)
	put := func(arena int32, from, to int64, kind ledger.SpanKind) {
		if from >= to {
			return
		}
		spans = append(spans, placed{arena, from, to - from, kind})
	}
	regions := map[int64]bool{}
	next, at := 0, int64(0)
	for i, m := range mapped {
		if i == 0 || mapped[i-1].Arena != m.Arena {
			at = m.Addr
		}
		put(m.Arena, at, m.Addr, ledger.SpanUnmapped)
		regions[m.Addr] = m.Region
		at = max(at, m.Addr)
		end := m.Addr + m.Bytes
		for ; next < len(within) && within[next].Arena == m.Arena && within[next].Addr < end; next++ {
			w := within[next]
			put(m.Arena, at, w.Addr, ledger.SpanExternal)
			at = w.Addr + w.Bytes
			switch w.Kind {
			case keyframes.StretchLive:
				put(m.Arena, w.Addr, w.Addr+w.Requested, ledger.SpanLive)
				put(m.Arena, w.Addr+w.Requested, at, ledger.SpanSlack)
			case keyframes.StretchPending:
				put(m.Arena, w.Addr, at, ledger.SpanPending)
			case keyframes.StretchUntouched:
				put(m.Arena, w.Addr, at, ledger.SpanReserve)
			}
		}
		put(m.Arena, at, end, ledger.SpanExternal)
		at = max(at, end)
	}
	return joinedSpans(withReusable(spans, regions))
}

// withReusable has what was handed out before of each arena's largest free chunk be reusable.
func withReusable(spans []placed, regions map[int64]bool) []placed {
	for begin := 0; begin < len(spans); {
		end := begin
		var most, from, to int64 // the largest chunk
		var run, start int64
		for ; end < len(spans) && spans[end].Arena == spans[begin].Arena; end++ {
			s := spans[end]
			if !s.Kind.Free() {
				run = 0
				continue
			}
			if regions[s.Addr] {
				run = 0
			}
			if run == 0 {
				start = s.Addr
			}
			if run += s.Bytes; run > most {
				most, from, to = run, start, s.Addr+s.Bytes
			}
		}
		for ; begin < end; begin++ {
			if s := &spans[begin]; s.Kind == ledger.SpanExternal && s.Addr >= from && s.Addr < to {
				s.Kind = ledger.SpanReusable
			}
		}
	}
	return spans
}

// joinedSpans has free spans of one kind that touch be one.
func joinedSpans(spans []placed) (out []placed) {
	for _, s := range spans {
		if n := len(out); n > 0 && s.Kind.Free() && out[n-1].Arena == s.Arena && out[n-1].Kind == s.Kind && out[n-1].Addr+out[n-1].Bytes == s.Addr {
			out[n-1].Bytes += s.Bytes
			continue
		}
		out = append(out, s)
	}
	return out
}

func spansOf(m *ledger.AddressMap) (spans []placed) {
	for _, a := range m.Arenas {
		for _, s := range a.Spans {
			spans = append(spans, placed{a.Arena, a.Base + s.Start, s.Bytes, s.Kind})
		}
	}
	return joinedSpans(spans)
}

// stopped is the moment after an event, of a pass that ends there.
func stopped(t interface {
	Helper()
	Fatal(...any)
}, r *modeltest.Recorder, seq int64,
) *Moment {
	moments, err := At(modeltest.Source(r.Events[:seq+1], 5), Options{Text: r.Strings.Text}, seq)
	assert.NoError(t, err)
	return moments[0]
}

// Every keyframe, however many were given up, is what a pass that stops there finds.
func TestKeyframesAreWhatAPassThatStopsThereFinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := attributedScenario(t)
		result := explore(t, r, rapid.SampledFrom([]int{8, 64, keyframes.MostStretches}).Draw(t, "limit"))
		if len(result.Devices) == 0 || len(result.Devices[0].Keyframes.Frames) == 0 {
			return
		}
		d := &result.Devices[0]
		for i := range d.Keyframes.Frames {
			f := &d.Keyframes.Frames[i]
			m := stopped(t, r, f.At.Seq)
			want := m.Devices[0].At
			want.Time, want.Iteration = f.At.Time, f.At.Iteration
			if (f.Why&keyframes.IsGrowth != 0 || m.Kind == trace.KindOOM) && f.At.View != want.View { // as seen by that request
				assert.Must(t, f.At.Free() == want.Free(), "keyframe %d is %+v\nwant %+v", i, f.At, want)
				want.Stranded, want.Reserve, want.Reusable, want.External, want.View = f.At.Stranded, f.At.Reserve, f.At.Reusable, f.At.External, f.At.View
			}
			assert.Must(t, f.At == want, "keyframe %d is %+v\nwant %+v", i, f.At, want)
			diff := gocmp.Diff(spansOf(&m.Devices[0].Map), spansAt(d.Keyframes, int32(i)))
			assert.Must(t, diff == "", "keyframe %d, seq %d (-stopped +kept):\n%s", i, f.At.Seq, diff)
			if f.Why&keyframes.IsPeak == 0 {
				continue
			}
			sums, wanted := heldAt(d.Keyframes, int32(i)), map[string]int64{}
			for of, b := range map[string]*attribution.Breakdown{"owner": &d.Held.Modules, "category": &d.Held.Categories, "phase": &d.Held.Phases, "kind": &d.Held.Kinds} {
				for _, g := range b.Groups {
					wanted[of+" "+g.Name] = g.Requested
				}
			}
			if diff := gocmp.Diff(wanted, sums); diff != "" {
				t.Fatalf("held at the peak (-want +got):\n%s", diff)
			}
		}
	})
}

// Every event of the spans that were asked for is what a pass that stops there finds, and no other is kept.
func TestExactEventsAreWhatAPassThatStopsThereFinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := attributedScenario(t)
		last := r.Events[len(r.Events)-1].Seq
		spans := []keyframes.Span{{From: 0, To: math.MaxInt64}}
		if rapid.Bool().Draw(t, "parts") {
			a := rapid.Int64Range(0, last+1).Draw(t, "a")
			b := rapid.Int64Range(a, last+1).Draw(t, "b")
			spans = []keyframes.Span{{From: b, To: b + 3}, {From: a / 2, To: a}}
		}
		result, err := explored(r, Options{Text: r.Strings.Text}, spans)
		assert.NoError(t, err)
		if len(result.Devices) == 0 {
			return
		}
		x := result.Devices[0].Keyframes.Exact
		if x == nil {
			return
		}
		at := int32(0)
		sparse := 1 + int32(len(x.Time)/12)
		for _, span := range x.Spans {
			for seq := span.From; seq < span.To; seq, at = seq+1, at+1 {
				if at%sparse != 0 {
					continue
				}
				m := stopped(t, r, seq)
				assert.Must(t, x.Time[at] == m.Time, "event %d was at %d, want %d", seq, x.Time[at], m.Time)
				var want []placed
				var paused int64
				if len(m.Devices) > 0 {
					want, paused = spansOf(&m.Devices[0].Map), m.Devices[0].At.Paused
				}
				diff := gocmp.Diff(want, spansAt(&keyframes.Result{Stretches: x.Stretches}, at))
				assert.Must(t, diff == "", "event %d (-stopped +kept):\n%s", seq, diff)
				kept := int64(0)
				for _, p := range x.Paused {
					if p.From <= at {
						kept = p.Bytes
					}
				}
				assert.Must(t, kept == paused, "event %d: %d bytes are paused, want %d", seq, kept, paused)
			}
		}
		assert.Must(t, int(at) == len(x.Time), "%d times of %d events", len(x.Time), at)
	})
}

// The largest allocations are those with most bytes times time, with their events and times.
func TestLargestAllocations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := attributedScenario(t)
		result, err := explored(r, Options{Text: r.Strings.Text}, nil)
		assert.NoError(t, err)
		if len(result.Devices) == 0 {
			return
		}
		allocs := map[int64]*trace.Event{}
		for i := range r.Events {
			if e := &r.Events[i]; (e.Kind == trace.KindAlloc || e.Kind == trace.KindRestore) && e.Requested > 0 {
				allocs[e.Seq] = e
			}
		}
		for _, s := range result.Devices[0].Keyframes.Largest {
			e := allocs[s.Seq]
			assert.Must(t, e != nil && e.Requested == s.Requested && e.Time == s.Birth, "%+v is not the allocation %+v", s, e)
			if s.Freed < 0 {
				continue
			}
			f := &r.Events[s.Freed]
			assert.Must(t, s.Gone == f.Time && (f.Kind != trace.KindFree || f.Addr == e.Addr), "%+v ended by %+v", s, f)
		}
	})
}

// heldAt is the requested bytes of a frame by what is recorded of their origins.
func heldAt(k *keyframes.Result, frame int32) map[string]int64 {
	sums := map[string]int64{}
	for _, s := range k.Stretches {
		if s.Kind == keyframes.StretchLive && s.From <= frame && frame < s.To {
			h := &k.Origins[s.Origin]
			for _, name := range []string{"owner " + h.Name, "kind " + h.Kind, "category " + h.Category.String(), "phase " + h.Phase} {
				sums[name] += s.Requested
			}
		}
	}
	return sums
}

// A job of steps whose greatest and least T are known.
func marked(t testing.TB, n int) *modeltest.Recorder {
	r := modeltest.New()
	a := newArena(t, r, bfc.Options{Limit: 1 << 30}, bfc.DeviceOptions{})
	alloc(t, a, mib, "weights")
	for i := range n {
		x := alloc(t, a, uint64(256*(i%7+1)), "x")
		y := alloc(t, a, 4096, "y")
		a.Free(x, false)
		a.Free(y, false)
		r.Mark(int64(i))
	}
	return r
}

func TestKeyframesOfEachIteration(t *testing.T) {
	r := marked(t, 3)
	k := explore(t, r, keyframes.MostStretches).Devices[0].Keyframes
	type frame struct {
		Seq, T int64
		Why    keyframes.Reason
		Event  int64
	}
	var got []frame
	for _, f := range k.Frames {
		got = append(got, frame{f.At.Seq, f.At.T, f.Why, f.Event})
	}
	// 0 arena, 1 map, 2 weights; then steps of alloc x, alloc y, free x, free y, mark.
	want := []frame{
		{0, 0, keyframes.IsGrowth, 1},
		{1, 0, keyframes.IsFirst | keyframes.IsIterationTrough | keyframes.IsHigh | keyframes.IsLow, -1},
		{2, mib, keyframes.IsHigh | keyframes.IsLow, -1},
		{3, mib + 256, keyframes.IsHigh | keyframes.IsLow, -1},
		{4, mib + 4352, keyframes.IsIterationPeak | keyframes.IsHigh | keyframes.IsLow, -1},
		{5, mib + 4096, keyframes.IsHigh | keyframes.IsLow, -1},
		{6, mib, keyframes.IsHigh | keyframes.IsLow, -1},
		{7, mib, keyframes.IsIterationTrough, -1}, // what the second begins with
		{8, mib + 512, keyframes.IsHigh | keyframes.IsLow, -1},
		{9, mib + 4608, keyframes.IsIterationPeak | keyframes.IsHigh | keyframes.IsLow, -1},
		{10, mib + 4096, keyframes.IsHigh | keyframes.IsLow, -1},
		{11, mib, keyframes.IsHigh | keyframes.IsLow, -1},
		{12, mib, keyframes.IsIterationTrough, -1},
		{13, mib + 768, keyframes.IsHigh | keyframes.IsLow, -1},
		{14, mib + 4864, keyframes.IsPeak | keyframes.IsIterationPeak | keyframes.IsHigh | keyframes.IsLow, -1},
		{15, mib + 4096, keyframes.IsHigh | keyframes.IsLow, -1},
		{16, mib, keyframes.IsHigh | keyframes.IsLow, -1},
		{17, mib, keyframes.IsLast | keyframes.IsIterationPeak | keyframes.IsIterationTrough, -1},
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	assert.That(t, k.IterationsEach == 1 && k.EventsEach == 1 && k.GrowthsEach == 1,
		"a pair for each %d iterations, %d events; each %d. growth", k.IterationsEach, k.EventsEach, k.GrowthsEach)
	// The weights are one stretch, for as long as they live.
	var live []keyframes.Stretch
	for _, s := range k.Stretches {
		if s.Kind == keyframes.StretchLive && s.Bytes >= mib {
			live = append(live, s)
		}
	}
	assert.That(t, len(live) == 1 && live[0].From == 2 && live[0].To == 18 && live[0].Requested == mib && k.Origins[live[0].Origin].Name == "weights",
		"the weights are %+v", live)
}

// A device of one of many processes has few points, and what is drawn beside them is as coarse.
func TestKeyframesOfFewPoints(t *testing.T) {
	r := marked(t, 5000)
	opt := Options{Text: r.Strings.Text, Explore: true, MaxPoints: 32}
	result, err := Run(modeltest.Source(r.Events, 5), opt)
	assert.NoError(t, err)
	assert.NoError(t, result.Explore(modeltest.Source(r.Events, 5), opt, nil))
	d := &result.Devices[0]
	assert.That(t, len(d.Keyframes.Frames) <= 4*32+keyframes.MaxGrowths && d.Keyframes.IterationsEach >= 128, "%d keyframes, a pair for each %d iterations",
		len(d.Keyframes.Frames), d.Keyframes.IterationsEach)
	assert.That(t, len(d.ByCategory) <= 32 && len(d.Series.Points) <= 32, "%d moments by category, %d points", len(d.ByCategory), len(d.Series.Points))
}

// Of many iterations neighbours share a pair: the extremes stay, and memory does not grow.
func TestKeyframesAreBounded(t *testing.T) {
	r := marked(t, 5000)
	result := explore(t, r, 3000)
	d := &result.Devices[0]
	k := d.Keyframes
	assert.That(t, k.IterationsEach >= 8 && k.EventsEach >= 32, "a pair for each %d iterations, %d events", k.IterationsEach, k.EventsEach)
	n := len(k.Frames)
	assert.That(t, n >= 200 && n <= 4*keyframes.MaxWindows+keyframes.MaxGrowths, "%d keyframes", n)
	most, least := int64(0), int64(1)<<40
	for _, f := range k.Frames {
		most = max(most, f.At.T)
		if f.At.Iteration > 0 {
			least = min(least, f.At.T)
		}
	}
	assert.That(t, most == mib+4096+7*256 && least == mib, "from %d to %d requested at keyframes, want %d to %d", least, most, mib, mib+4096+7*256)
	// In each run of iterations is one with the greatest x.
	for i := int64(0); i+k.IterationsEach <= 5000; i += k.IterationsEach {
		found := slices.ContainsFunc(k.Frames, func(f keyframes.Frame) bool {
			return f.Why&keyframes.IsIterationPeak != 0 && f.At.T == mib+4096+7*256 && int64(f.At.Iteration)/k.IterationsEach == i/k.IterationsEach
		})
		assert.Must(t, found, "iterations from %d on have no peak", i)
	}
}

func TestKeyframesOfPausedArenas(t *testing.T) {
	p := modeltest.NewPausing(t)
	p.Take(t, p.Main, 6*mib)
	gone := p.Take(t, p.Tagged, 8*mib)
	p.Take(t, p.Tagged, 4*mib)
	p.Transition(trace.KindPause, 12*mib, "tag=kv")
	p.Take(t, p.Main, 20*mib)
	p.Tagged.Free(gone, false)
	p.Tagged.Unmap(gone, 8*mib)
	p.Transition(trace.KindResume, 4*mib, "tag=kv")
	d := explore(t, p.Recorder, keyframes.MostStretches).Devices[0]
	for i := range d.Keyframes.Frames {
		m := stopped(t, p.Recorder, d.Keyframes.Frames[i].At.Seq)
		assert.Diff(t, spansOf(&m.Devices[0].Map), spansAt(d.Keyframes, int32(i)), "keyframe %d (-stopped +kept)", i)
	}
}

// What a part says of a moment is what a pass from the first event finds: all terms and all addresses.
func TestAtFromAPart(t *testing.T) {
	dir := t.TempDir()
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		r := attributedScenario(rt)
		separate := func(e trace.Event) bool {
			return e.Kind == trace.KindArena && !strings.Contains(r.Strings.Text(e.Context), "coalesces=1")
		}
		if slices.ContainsFunc(r.Events, separate) && slices.ContainsFunc(r.Events, func(e trace.Event) bool { return e.Kind == trace.KindUnmap }) {
			return // no part restates where a region began whose start was mapped again
		}
		n := rapid.IntRange(1, len(r.Events)).Draw(rt, "events of a part")
		runs++
		run := filepath.Join(dir, strconv.Itoa(runs))
		assert.NoError(rt, os.Mkdir(run, 0o700))
		for i := range r.Events {
			r.Events[i].Time &^= dataset.TimeStep - 1
		}
		var texts []string
		for i := range r.Strings.Len() {
			texts = append(texts, r.Strings.Text(int32(i)))
		}
		tracetest.WriteRun(t, run, tracetest.Process{Events: r.Events, Texts: texts, Options: dataset.WriterOptions{PartEvents: n, NoSync: true}})
		p := tracetest.One(t, run)
		seq := rapid.Int64Range(0, int64(len(r.Events))-1).Draw(rt, "event")
		want := stopped(rt, r, seq)
		reader, part, err := p.NewReaderBetween(seq, seq)
		assert.NoError(rt, err)
		defer reader.Close()
		got, err := At(reader, Options{Text: p.Strings().Text, FirstSeq: part.FirstSeq, Marks: int(part.Marks)}, seq)
		assert.NoError(rt, err)
		for _, m := range []*Moment{want, got[0]} {
			for i := range m.Devices {
				m.Devices[i].Held = nil // by what came before, too
			}
		}
		diff := gocmp.Diff(want, got[0])
		assert.Must(rt, diff == "", "event %d, %d events in a part (-whole +part):\n%s", seq, n, diff)
	})
}
