package iterations_test

import (
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

const mib = 1 << 20

var newArena, alloc, job = modeltest.NewArena, modeltest.Alloc, modeltest.Job

// run analyzes what was recorded.
func run(t testing.TB, r *modeltest.Recorder, opt analysis.Options) *analysis.Result {
	t.Helper()
	opt.Text = r.Strings.Text
	result, err := analysis.Run(modeltest.Source(r.Events, 7), opt)
	assert.NoError(t, err)
	return result
}

// verdict is what a test expects of a leak, without its blocks.
type verdict struct {
	Verdict      iterations.Verdict
	Per, Request string
	Points       int
	Slope        float64
}

func verdictOf(l *iterations.Leak) verdict {
	return verdict{l.Verdict, l.Per, l.Request, l.Points, l.Slope}
}

func TestLeak(t *testing.T) {
	d := run(t, job(t, 8, 12, 40_000, true), analysis.Options{}).Devices[0]
	if got := verdictOf(d.Leak); got != (verdict{iterations.Leaks, "iteration", "", 8, 40_000}) || d.Leak.Module != "history" || d.Leak.Line != "" {
		t.Errorf("%+v in %s", got, d.Leak.Module)
	}
	// Of the points, the ends of iterations 1 to 7, the first third does not count.
	groups := []attribution.AllocationGroup{{Context: "history", Blocks: 5, Requested: 200_000, Provided: 5 * 40_192}}
	assert.Diff(t, groups, d.Leak.Allocations)
	if l := d.Leak; l.Blocks != 5 || l.Requested != 200_000 || l.Provided != 5*40_192 {
		t.Errorf("%d blocks of %d in %d bytes", l.Blocks, l.Requested, l.Provided)
	}
	l := run(t, job(t, 8, 12, 0, true), analysis.Options{}).Devices[0].Leak
	if got := verdictOf(l); got != (verdict{iterations.NoLeak, "iteration", "", 8, 0}) || len(l.Allocations) > 0 {
		t.Errorf("%+v of a job that keeps nothing", l)
	}
	if l := run(t, job(t, 7, 12, 40_000, true), analysis.Options{}).Devices[0].Leak; verdictOf(l) != (verdict{Verdict: iterations.TooShort}) {
		t.Errorf("%+v of seven iterations", l)
	}
}

// Allocations are of the last mark: a job that cleans up before it exits has leaked all the same. A block
// that is pending since then is one of them, once.
func TestLeakOutlivesCleaningUp(t *testing.T) {
	r := modeltest.New()
	a := newArena(t, r, bfc.Options{Limit: bfc.NoLimit}, bfc.DeviceOptions{VMM: true, Granularity: 2 * mib})
	var kept []uint64
	for n := range 9 {
		kept = append(kept, alloc(t, a, 5000, "list"))
		r.Mark(int64(n))
	}
	a.Use(kept[8], 7)
	for i, addr := range kept {
		a.Free(addr, i == 8)
	}
	d := run(t, r, analysis.Options{}).Devices[0]
	want := []attribution.AllocationGroup{{Context: "list", Blocks: 5, Requested: 25_000, Provided: 5 * 5120}}
	assert.Diff(t, want, d.Leak.Allocations)
}

// A tag that is paused at some iteration ends and resident at others is no leak: its allocations
// are held all the time.
func TestPausesAreNoLeak(t *testing.T) {
	for name, paused := range map[string]string{
		"in turns": "-p-p-p-p", "at the start": "ppppp---", "at the end": "----pppp", "later and later": "ppp--p--",
	} {
		p := modeltest.NewPausing(t)
		p.Take(t, p.Main, 6*mib)
		p.Take(t, p.Tagged, 30*mib)
		now := '-'
		for i, want := range paused {
			switch {
			case want == now:
			case want == 'p':
				p.Transition(trace.KindPause, 30*mib, "tag=kv")
			default:
				p.Transition(trace.KindResume, 30*mib, "tag=kv")
			}
			now = want
			p.Mark(int64(i))
		}
		d := &run(t, p.Recorder, analysis.Options{}).Devices[0]
		assert.Equal(t, verdictOf(d.Leak), (verdict{iterations.NoLeak, "iteration", "", len(paused), 0}), "%s", name)
		for i, it := range d.Iterations {
			want := [2]int64{36 * mib, 0}
			if paused[i] == 'p' {
				want = [2]int64{6 * mib, 30 * mib}
			}
			assert.Equal(t, [2]int64{it.EndT, it.EndPaused}, want, "%s, iteration %d: live and paused", name, i)
		}
	}
}

// What leaks in a tag leaks also while it is paused, and is among the live allocations; what is freed
// meanwhile is not held any more.
func TestLeakOfAPausedTag(t *testing.T) {
	p := modeltest.NewPausing(t)
	var freed uint64
	p.Take(t, p.Main, 2*mib)
	for i := range int64(8) {
		p.Take(t, p.Tagged, 4*mib)
		if i == 7 {
			freed = p.Take(t, p.Tagged, 2*mib)
		}
		mapped := 4 * mib * (i + 1)
		if i == 7 {
			mapped += 2 * mib
		}
		p.Transition(trace.KindPause, mapped, "tag=kv")
		if i == 7 {
			p.Tagged.Free(freed, false)
		}
		p.Mark(i)
		if i < 7 {
			p.Transition(trace.KindResume, mapped, "tag=kv")
		}
	}
	d := &run(t, p.Recorder, analysis.Options{}).Devices[0]
	assert.Equal(t, verdictOf(d.Leak), verdict{iterations.Leaks, "iteration", "", 8, 4 * mib})
	l := d.Leak
	assert.That(t, l.Blocks == 5 && l.Requested == 20*mib, "%d blocks of %d bytes, want 5 of %d", l.Blocks, l.Requested, 20*mib)
	last := d.Iterations[7]
	assert.That(t, last.EndPaused == 32*mib, "%d paused at the end, want %d", last.EndPaused, 32*mib)
}

// server is one without iterations: each request takes and frees some memory of its own size, and
// keeps so much. It takes 1<<27 ns.
type server struct {
	*modeltest.Recorder
	a *modeltest.Arena
}

const requestTime = 1 << 27

func newServer(t *testing.T) *server {
	r := modeltest.New()
	s := &server{r, newArena(t, r, bfc.Options{Limit: bfc.NoLimit}, bfc.DeviceOptions{VMM: true, Granularity: 2 * mib})}
	alloc(t, s.a, 64*mib, "weights")
	return s
}

func (s *server) phase(kind trace.Kind, name string) {
	s.Add(trace.Event{Kind: kind, Device: trace.NoDevice, Arena: trace.NoArena, Context: s.Strings.Intern(name)})
}

func (s *server) request(t *testing.T, n int, phase string, kept uint64) {
	from := len(s.Events)
	if phase != "" {
		s.phase(trace.KindPhaseBegin, phase)
	}
	inner := uint64(n*n%7+1) * mib // without a period
	x := alloc(t, s.a, inner, "activations")
	if phase != "" {
		s.phase(trace.KindPhaseBegin, "inner")
	}
	y := alloc(t, s.a, uint64(n*n*n%11+1)*mib, "logits")
	s.a.Free(x, false)
	if phase != "" {
		s.phase(trace.KindPhaseEnd, "inner")
	}
	if kept > 0 {
		alloc(t, s.a, kept, "history")
	}
	s.a.Free(y, false)
	if phase != "" {
		s.phase(trace.KindPhaseEnd, phase)
	}
	for i := from; i < len(s.Events); i++ {
		s.Events[i].Time = int64(n)*requestTime + int64(i-from)*1000
	}
}

func TestLeakByRequests(t *testing.T) {
	s := newServer(t)
	for n := range 20 {
		s.request(t, n, "request", 10*mib)
	}
	d := run(t, s.Recorder, analysis.Options{}).Devices[0]
	assert.Must(t, len(d.Iterations) == 0, "%d iterations", len(d.Iterations))
	assert.Equal(t, verdictOf(d.Leak), verdict{iterations.Leaks, "request", "request", 20, 10 * mib})
	h := d.Leak.Allocations
	assert.That(t, len(h) == 1 && h[0].Context == "history" && h[0].Blocks == 13 && h[0].Requested == 130*mib, "allocations %+v", h)
	m, _ := analysis.LookupMetric("leak.per_request")
	got, _, ok := m.Value(d.Subjects())
	assert.That(t, ok && got == 10*mib, "%s = %v, %v", m.Name, got, ok)

	s = newServer(t)
	for n := range 20 {
		s.request(t, n, "request", 0)
	}
	d = run(t, s.Recorder, analysis.Options{}).Devices[0]
	if got := verdictOf(d.Leak); got != (verdict{iterations.NoLeak, "request", "request", 20, 0}) || len(d.Leak.Allocations) > 0 {
		t.Errorf("of a server that keeps nothing: %+v", d.Leak)
	}
}

// A phase that came at the start only shows no leak, though memory rose in it.
func TestLeakOfAWarmUp(t *testing.T) {
	s := newServer(t)
	for n := range 8 {
		s.request(t, n, "warm up", 10*mib)
	}
	for n := 8; n < 40; n++ {
		s.request(t, n, "request", 0)
	}
	d := run(t, s.Recorder, analysis.Options{}).Devices[0]
	assert.Equal(t, verdictOf(d.Leak), verdict{iterations.NoLeak, "request", "request", 32, 0}, "by %q: %+v", d.Leak.Request, d.Leak)
}

func TestLeakByTime(t *testing.T) {
	s := newServer(t)
	for n := range 128 {
		s.request(t, n, "", 10*mib)
	}
	d := run(t, s.Recorder, analysis.Options{}).Devices[0]
	// 64 windows of two requests each; 62 of them without the first and the last.
	const slope = 10 * mib / (requestTime / 1e9)
	if got := d.Leak; got.Verdict != iterations.Leaks || got.Per != "second" || got.Points != 62 || got.Slope < 0.99*slope || got.Slope > 1.01*slope {
		t.Errorf("%+v, want a slope of %v", verdictOf(got), slope)
	}
	m, _ := analysis.LookupMetric("leak.per_second")
	if got, _, ok := m.Value(d.Subjects()); !ok || got != d.Leak.PerSecond || got < 0.99*slope || got > 1.01*slope {
		t.Errorf("%s = %v, %v", m.Name, got, ok)
	}
	// What was made after the first third of the windows that count.
	h := d.Leak.Allocations
	assert.That(t, h[0].Context == "history" && h[0].Blocks == 86 && h[0].Requested == 860*mib, "allocations %+v", h)

	s = newServer(t)
	for n := range 128 {
		s.request(t, n, "", 0)
	}
	if got := run(t, s.Recorder, analysis.Options{}).Devices[0].Leak; verdictOf(got) != (verdict{iterations.NoLeak, "second", "", 62, 0}) {
		t.Errorf("of a server that keeps nothing: %+v", got)
	}
}

// A job of less than ten seconds has no verdict by time; marks that are too few do not hide it in a longer one.
func TestTooShort(t *testing.T) {
	s := newServer(t)
	for n := range 74 {
		s.request(t, n, "", 10*mib)
	}
	d := run(t, s.Recorder, analysis.Options{}).Devices[0]
	m, _ := analysis.LookupMetric("leak.per_second")
	if _, _, ok := m.Value(d.Subjects()); ok || d.Leak.Verdict != iterations.TooShort || m.Unknown(d.Subjects()) != "too short: 0 iterations ended, and 8 are needed, or requests, or 10 s" {
		t.Errorf("%v %+v, unknown since %s", ok, d.Leak.Verdict, m.Unknown(d.Subjects()))
	}
	for n := 74; n < 128; n++ {
		s.request(t, n, "", 10*mib)
	}
	s.Mark(0)
	s.Events[len(s.Events)-1].Time = 128 * requestTime
	if d := run(t, s.Recorder, analysis.Options{}).Devices[0]; d.Leak.Verdict != iterations.Leaks || d.Leak.Per != "second" {
		t.Errorf("%+v", d.Leak)
	}
}

// Requests that repeat themselves are iterations, by their period.
func TestLeakOfPeriods(t *testing.T) {
	r := modeltest.New()
	a := newArena(t, r, bfc.Options{Limit: bfc.NoLimit}, bfc.DeviceOptions{VMM: true, Granularity: 2 * mib})
	for i := range 120 {
		x := alloc(t, a, uint64(i%10+1)*mib, "activations")
		alloc(t, a, 10*mib, "history")
		a.Free(x, false)
	}
	d := run(t, r, analysis.Options{}).Devices[0]
	assert.Must(t, d.Period == 20, "period %d", d.Period)
	got := d.Leak
	assert.That(t, got.Verdict == iterations.Leaks && got.Per == "iteration" && got.Slope == 100*mib && got.Module == "history", "%+v", verdictOf(got))
}

// The ends of sequences in a KV cache are requests, too.
func TestLeakBySequences(t *testing.T) {
	s := newServer(t)
	cache := func(e trace.Event) {
		e.Device, e.Arena = 0, trace.NoArena
		s.Add(e)
		s.Events[len(s.Events)-1].Stream = 5
	}
	cache(trace.Event{Kind: trace.KindKVCache, Requested: 4096, Provided: 1024, Context: s.Strings.Intern("engine=test")})
	for n := range 10 {
		cache(trace.Event{Kind: trace.KindKVReserve, Addr: int64(n + 1), Requested: 0, Provided: 16, Context: s.Strings.Intern("prompt=4")})
		alloc(t, s.a, 3*mib, "history")
		cache(trace.Event{Kind: trace.KindKVFree, Addr: int64(n + 1)})
	}
	d := run(t, s.Recorder, analysis.Options{}).Devices[0]
	got := verdictOf(d.Leak)
	assert.That(t, got == (verdict{iterations.Leaks, "request", "KV cache sequence", 10, 3 * mib}), "%+v; %+v", got, d.KV[0])
}

// Overlapping requests of several threads are distinguished by thread.
func TestRequestsOfThreads(t *testing.T) {
	s := newServer(t)
	for n := range 12 {
		for thread := range int32(2) {
			s.phase(trace.KindPhaseBegin, "request")
			s.Events[len(s.Events)-1].Thread = thread
		}
		alloc(t, s.a, 1*mib, "history")
		for thread := range int32(2) {
			s.phase(trace.KindPhaseEnd, "request")
			s.Events[len(s.Events)-1].Thread = thread
		}
		_ = n
	}
	d := run(t, s.Recorder, analysis.Options{}).Devices[0]
	got := d.Leak
	assert.That(t, got.Verdict == iterations.Leaks && got.Points == 24 && got.Slope >= 0.4*mib && got.Slope <= 0.6*mib, "%+v", verdictOf(got))
}
