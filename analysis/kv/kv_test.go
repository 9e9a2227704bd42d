package kv_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/memprof/memprof/analysis"
	kvtracker "github.com/memprof/memprof/analysis/kv"
	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// engine records marks of KV caches, each a microsecond after the last.
type engine struct {
	*modeltest.Recorder
	time int64
}

func (r *engine) mark(kind trace.Kind, cache, sequence, requested, provided int64, context string) {
	r.time += 1000
	e := trace.Event{
		Seq: int64(len(r.Events)), Time: r.time, Kind: kind, Device: trace.NoDevice, Arena: trace.NoArena, Stream: cache,
		Addr: sequence, Requested: requested, Provided: provided, Context: r.Strings.Intern(context),
	}
	if kind == trace.KindKVCache {
		e.Device = 0
	}
	r.Events = append(r.Events, e)
}

// serve has some requests of a paged cache come, grow, share a prefix and go.
func serve(requests int, seed uint64) *engine {
	r := &engine{Recorder: modeltest.New()}
	random := rand.New(rand.NewPCG(seed, 1))
	r.mark(trace.KindKVCache, 1, 0, 1024, 100, "layout=paged\tblock=16\tnull=1\tengine=mine")
	type running struct {
		tokens, output int64
		blocks         []int64
	}
	free := []int64{}
	for b := range int64(63) {
		free = append(free, b+1)
	}
	live := map[int64]*running{}
	grow := func(id int64, s *running, tokens int64) {
		for int64(len(s.blocks))*16 < s.tokens+tokens {
			r.mark(trace.KindKVReserve, 1, id, free[0], 16, "prompt=30")
			s.blocks, free = append(s.blocks, free[0]), free[1:]
		}
		s.tokens += tokens
	}
	for next := int64(0); next < int64(requests) || len(live) > 0; {
		for id := range next {
			if s := live[id]; s != nil {
				if s.output--; s.output < 0 {
					r.mark(trace.KindKVFree, 1, id, 0, 0, "")
					free = append(free, s.blocks...)
					delete(live, id)
				}
			}
		}
		for id := range next {
			if s := live[id]; s != nil {
				grow(id, s, 1)
			}
		}
		if len(live) > 0 {
			r.mark(trace.KindKVAppend, 1, -1, 1, 0, "")
		}
		if next < int64(requests) && len(live) < 8 {
			s := &running{output: 1 + random.Int64N(60)}
			grow(next, s, 30)
			r.mark(trace.KindKVAppend, 1, next, 30, 0, "")
			live[next] = s
			next++
		}
	}
	return r
}

func (r *engine) analyze(t *testing.T) *kvtracker.Result {
	t.Helper()
	result, err := analysis.Run(modeltest.Source(r.Events, 100), analysis.Options{Text: r.Strings.Text})
	assert.NoError(t, err)
	assert.Must(t, len(result.Devices) == 1 && len(result.Devices[0].KV) == 1, "devices %+v, want one with one KV cache", result.Devices)
	return result.Devices[0].KV[0]
}

func TestKVCaches(t *testing.T) {
	kv := serve(50, 1).analyze(t)
	if kv.Fault != "" {
		t.Fatal(kv.Fault)
	}
	r := kv.Recorded
	if r.Requests != 50 || r.Finished != 50 || r.Peak != 8 || r.Capacity != 1024 || kv.Engine != "mine" {
		t.Errorf("requests %d, finished %d, peak %d, capacity %d, engine %q", r.Requests, r.Finished, r.Peak, r.Capacity, kv.Engine)
	}
	for _, p := range r.Series {
		assert.Must(t, p.Shares.Sum() == 1024 && p.Shares.Null == 16, "at %d ns the shares are %+v", p.Time, p.Shares)
	}
	for _, q := range kv.Requests {
		assert.That(t, q.Prompt == 30 && q.Output >= 1 && q.Output <= 60, "request %+v", q)
	}
	for name, want := range map[string]float64{
		"kv.token": r.Mean.Token, "kv.internal": r.Mean.Internal, "kv.reserve": r.Mean.Reserve,
		"kv.external": 0, "kv.idle": 1 - r.Mean.Token - r.Mean.Internal - r.Mean.Reserve - 16./1024, "kv.cached": 0, "kv.batch": r.Batch, "kv.batch.peak": 8,
	} {
		m, found := analysis.LookupMetric(name)
		assert.Must(t, found, "no metric %s", name)
		got, _, ok := m.Value((&analysis.DeviceResult{KV: []*kvtracker.Result{kv}}).Subjects())
		assert.That(t, ok && math.Abs(got-want) <= 1e-9, "%s is %v, want %v", name, got, want)
		if _, _, ok := m.Value((&analysis.DeviceResult{}).Subjects()); ok {
			t.Errorf("%s has a value without a KV cache", name)
		}
	}
	assert.NoError(t, kv.Simulate(context.Background()))
	var names []string
	for _, p := range kv.Policies {
		names = append(names, p.Policy)
		assert.That(t, p.Finished >= 500 && p.Steps == 18_000, "%s served %d requests in %d steps", p.Policy, p.Finished, p.Steps)
	}
	assert.Diff(t, []string{"max:128", "pow2", "oracle", "paged:16"}, names, "policies")
}

// A policy that could serve none of the requests says so, and ends.
func TestKVCachesThatAPolicyCannotServe(t *testing.T) {
	r := &engine{Recorder: modeltest.New()}
	r.mark(trace.KindKVCache, 1, 0, 48, 100, "layout=contiguous")
	r.mark(trace.KindKVReserve, 1, 0, 0, 40, "")
	r.mark(trace.KindKVAppend, 1, 0, 33, 0, "")
	r.mark(trace.KindKVFree, 1, 0, 0, 0, "")
	kv := r.analyze(t)
	assert.NoError(t, kv.Simulate(context.Background()))
	if p := kv.Policies[0]; p.Policy != "max:64" || p.Rejected != kvtracker.MostServed || p.Finished != 0 || p.Steps != 0 {
		t.Errorf("%s: %d rejected, %d finished in %d steps", p.Policy, p.Rejected, p.Finished, p.Steps)
	}
	if p := kv.Policies[3]; p.Policy != "paged:16" || p.Finished == 0 {
		t.Errorf("%s: %d finished", p.Policy, p.Finished)
	}
}

// Of many caches those with the most bytes are shown and simulated, the largest first; few stay as they come.
func TestLargest(t *testing.T) {
	var caches []*kvtracker.Result
	for i := range kvtracker.MostShown + 4 {
		caches = append(caches, &kvtracker.Result{Description: kvtracker.Description{Name: fmt.Sprint(i), TokenBytes: int64(i / 2)}, Recorded: &kvcache.Result{Capacity: 3}})
	}
	names := func(of []*kvtracker.Result) (found []string) {
		for _, k := range of {
			found = append(found, k.Name)
		}
		return found
	}
	want := []string{"18", "19", "16", "17", "14", "15", "12", "13", "10", "11", "8", "9", "6", "7", "4", "5"}
	assert.Diff(t, want, names(kvtracker.Largest(caches)), "the largest")
	assert.Diff(t, names(caches[:16]), names(kvtracker.Largest(caches[:16])), "as many as are shown")
}

// TestKVCachesOfAPart: the later parts of a trace alone say what they say of their time.
func TestKVCachesOfAPart(t *testing.T) {
	r := serve(200, 2)
	whole := r.analyze(t)
	var texts []string
	for id := range int32(r.Strings.Len()) {
		texts = append(texts, r.Strings.Text(id))
	}
	dir := t.TempDir()
	tracetest.WriteRun(t, dir, tracetest.Process{Events: r.Events, Texts: texts, Options: dataset.WriterOptions{PartEvents: 700}})
	run, err := dataset.Open(dir)
	assert.NoError(t, err)
	parts := run.Processes[0].Parts
	assert.Must(t, len(parts) >= 2, "%d parts, want several", len(parts))
	part, err := dataset.Open(parts[1].Path)
	assert.NoError(t, err)
	p := part.Processes[0]
	reader, err := p.NewReader()
	assert.NoError(t, err)
	defer reader.Close()
	result, err := analysis.Run(reader, analysis.Options{Text: p.Strings().Text, FirstSeq: p.Parts[0].FirstSeq})
	assert.NoError(t, err)
	got := result.Devices[0].KV[0]
	if got.Fault != "" {
		t.Fatal(got.Fault)
	}
	// A point is of the same moment in both, and kept in both, if its time is.
	want := map[int64]kvcache.Shares{}
	for _, point := range whole.Recorded.Series {
		want[point.Time] = point.Shares
	}
	last := r.Events[parts[1].FirstSeq+parts[1].Events-1].Time
	same := 0
	for _, point := range got.Recorded.Series {
		w, found := want[point.Time]
		if !found || point.Time > last-100_000 { // what is cut off is not known to be of no use
			continue
		}
		same++
		diff := cmp.Diff(w, point.Shares, cmpopts.IgnoreFields(kvcache.Shares{}, "Reserve", "Internal"))
		assert.Must(t, diff == "", "at %d ns (-whole +part):\n%s", point.Time, diff)
	}
	assert.That(t, same >= 100, "only %d moments are in both", same)
}

// TestWrongMarksOfKVCaches: the analysis of a KV cache ends at a mark that contradicts those before, and that
// of the memory goes on.
func TestWrongMarksOfKVCaches(t *testing.T) {
	for _, test := range []struct {
		name string
		mark func(r *engine)
		want string
	}{
		{"free of unknown", func(r *engine) { r.mark(trace.KindKVFree, 1, 9, 0, 0, "") }, "event seq 1, kv_free of cache 1: a free of sequence 9, which has no slots"},
		{"cache unknown", func(r *engine) { r.mark(trace.KindKVAppend, 3, 9, 1, 0, "") }, "event seq 1, kv_append of cache 3: no kv_cache event describes the cache"},
		{"tokens negative", func(r *engine) {
			r.mark(trace.KindKVReserve, 1, 0, 1, 16, "")
			r.mark(trace.KindKVAppend, 1, 0, -4, 0, "")
		}, "event seq 2, kv_append of cache 1: -4 tokens are appended"},
		{"share of unknown", func(r *engine) { r.mark(trace.KindKVShare, 1, 0, 5, 16, "") }, "event seq 1, kv_share of cache 1: sequence 0 shares block 5, which nobody uses"},
		{"blocks without end", func(r *engine) { r.mark(trace.KindKVReserve, 1, 0, 0, 1<<40, "") }, "slots from 0 on for sequence 0, of at most 64"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := &engine{Recorder: modeltest.New()}
			r.mark(trace.KindKVCache, 1, 0, 64, 100, "layout=paged\tblock=16")
			test.mark(r)
			r.mark(trace.KindKVReserve, 1, 1, 2, 16, "") // passed over
			result, err := analysis.Run(modeltest.Source(r.Events, 100), analysis.Options{Text: r.Strings.Text})
			assert.NoError(t, err)
			var faults []string
			for _, kv := range result.Devices[0].KV {
				if kv.Fault != "" {
					faults = append(faults, kv.Fault)
				}
			}
			assert.That(t, len(faults) == 1 && strings.Contains(faults[0], test.want), "faults %q, want one with %q", faults, test.want)
		})
	}
}

// TestBeams counts each beam as a sequence, up to the end of its cache, and keeps caches of other
// numbers of beams apart.
func TestBeams(t *testing.T) {
	r := &engine{Recorder: modeltest.New()}
	for cache, beams := range map[int64]string{1: "", 2: "\tbeams=2"} {
		r.mark(trace.KindKVCache, cache, 0, 0, 96, "layout=contiguous\tengine=transformers DynamicCache"+beams)
		for row := range int64(4) {
			r.mark(trace.KindKVReserve, cache, row, 0, 3, "prompt=3")
			r.mark(trace.KindKVAppend, cache, row, 3, 0, "")
		}
		r.mark(trace.KindKVReserve, cache, kvtracker.All, 0, 1, "")
		r.mark(trace.KindKVAppend, cache, kvtracker.All, 1, 0, "")
		r.mark(trace.KindKVFree, cache, kvtracker.All, 0, 0, "")
	}
	result, err := analysis.Run(modeltest.Source(r.Events, 100), analysis.Options{Text: r.Strings.Text})
	assert.NoError(t, err)
	got := map[int64]int64{}
	for _, kv := range result.Devices[0].KV {
		if kv.Fault != "" || kv.Caches != 1 || kv.Recorded.Finished != 4 || kv.Recorded.Peak != 4 || kv.Recorded.Capacity != 16 {
			t.Errorf("of %d beams: %q, %d caches, %d sequences finished, %d at once, %d slots; want 1, 4, 4, 16",
				kv.Beams, kv.Fault, kv.Caches, kv.Recorded.Finished, kv.Recorded.Peak, kv.Recorded.Capacity)
		}
		got[kv.Beams]++
	}
	assert.Diff(t, map[int64]int64{0: 1, 2: 1}, got, "caches by beams")
}
