package iterations_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
)

const mib = 1 << 20

var newArena, alloc, job = modeltest.NewArena, modeltest.Alloc, modeltest.Job

// run analyzes what was recorded.
func run(t testing.TB, r *modeltest.Recorder, opt analysis.Options) *analysis.Result {
	t.Helper()
	opt.Text = r.Strings.Text
	result, err := analysis.Run(modeltest.Source(r.Events, 7), opt)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestLeak(t *testing.T) {
	d := run(t, job(t, 8, 12, 40_000, true), analysis.Options{}).Devices[0]
	if got := d.Leak.Iterations; got != (iterations.Trend{Valid: true, Points: 7, Slope: 40_000, Rising: true}) {
		t.Errorf("leak %+v, want a slope of 40000, rising", got)
	}
	// Seven blocks: that of the first iteration does not count.
	groups := []attribution.AllocationGroup{{Context: "history", Blocks: 7, Requested: 280_000, Provided: 7 * 40_192}}
	if diff := cmp.Diff(groups, d.Leak.Allocations); diff != "" {
		t.Error(diff)
	}
	sizes := []attribution.AllocationGroup{{Size: 40_000, Blocks: 7, Requested: 280_000, Provided: 7 * 40_192}}
	if diff := cmp.Diff(sizes, d.Leak.Sizes); diff != "" {
		t.Error(diff)
	}
	if l := d.Leak; l.Blocks != 7 || l.Requested != 280_000 || l.Provided != 7*40_192 {
		t.Errorf("%d blocks of %d in %d bytes", l.Blocks, l.Requested, l.Provided)
	}
	if l := run(t, job(t, 8, 12, 0, true), analysis.Options{}).Devices[0].Leak; l.Iterations != (iterations.Trend{Valid: true, Points: 7}) || len(l.Allocations) > 0 {
		t.Errorf("leak %+v of a job that keeps nothing", l)
	}
	if l := run(t, job(t, 5, 12, 40_000, true), analysis.Options{}).Devices[0].Leak; l.Iterations != (iterations.Trend{Points: 4}) {
		t.Errorf("leak %+v of five iterations", l)
	}
}

// Allocations are of the last mark: a job that cleans up before it exits has leaked all the same. A block
// that is pending since then is one of them, once.
func TestLeakOutlivesCleaningUp(t *testing.T) {
	r := modeltest.New()
	a := newArena(t, r, bfc.Options{Limit: bfc.NoLimit}, bfc.DeviceOptions{VMM: true, Granularity: 2 * mib})
	var kept []uint64
	for n := range 6 {
		kept = append(kept, alloc(t, a, 5000, "list"))
		r.Mark(int64(n))
	}
	a.Use(kept[5], 7)
	for i, addr := range kept {
		a.Free(addr, i == 5)
	}
	d := run(t, r, analysis.Options{}).Devices[0]
	want := []attribution.AllocationGroup{{Context: "list", Blocks: 5, Requested: 25_000, Provided: 5 * 5120}}
	if diff := cmp.Diff(want, d.Leak.Allocations); diff != "" {
		t.Error(diff)
	}
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
		if got := d.Leak.Iterations; got != (iterations.Trend{Valid: true, Points: 7}) {
			t.Errorf("%s: %+v", name, got)
		}
		for i, it := range d.Iterations {
			want := [2]int64{36 * mib, 0}
			if paused[i] == 'p' {
				want = [2]int64{6 * mib, 30 * mib}
			}
			if got := [2]int64{it.EndT, it.EndPaused}; got != want {
				t.Errorf("%s, iteration %d: live and paused %v, want %v", name, i, got, want)
			}
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
	if got := d.Leak.Iterations; got != (iterations.Trend{Valid: true, Points: 7, Slope: 4 * mib, Rising: true}) {
		t.Errorf("%+v", got)
	}
	if l := d.Leak; l.Blocks != 7 || l.Requested != 28*mib {
		t.Errorf("%d blocks of %d bytes, want 7 of %d", l.Blocks, l.Requested, 28*mib)
	}
	if last := d.Iterations[7]; last.EndPaused != 32*mib {
		t.Errorf("%d paused at the end, want %d", last.EndPaused, 32*mib)
	}
}

// server is one without iterations: each request takes and frees some memory of its own size, and
// keeps so much. It takes 1<<22 ns.
type server struct {
	*modeltest.Recorder
	a *modeltest.Arena
}

const requestTime = 1 << 22

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
	if len(d.Iterations) != 0 {
		t.Fatalf("%d iterations", len(d.Iterations))
	}
	if got := d.Leak.Requests; got != (iterations.Trend{Valid: true, Points: 19, Slope: 10 * mib, Rising: true}) || d.Leak.Request != "request" {
		t.Errorf("by %q: %+v", d.Leak.Request, got)
	}
	if h := d.Leak.Allocations; len(h) != 1 || h[0].Context != "history" || h[0].Blocks != 19 || h[0].Requested != 190*mib {
		t.Errorf("allocations %+v", h)
	}
	if trend, per := d.Leak.Trend(); per != "request" || !trend.Rising {
		t.Errorf("%+v by %s", trend, per)
	}
	m, _ := analysis.LookupMetric("leak.per_request")
	if got, _, ok := m.Value(d.Subjects()); !ok || got != 10*mib {
		t.Errorf("%s = %v, %v", m.Name, got, ok)
	}

	s = newServer(t)
	for n := range 20 {
		s.request(t, n, "request", 0)
	}
	d = run(t, s.Recorder, analysis.Options{}).Devices[0]
	if got := d.Leak.Requests; got != (iterations.Trend{Valid: true, Points: 19}) || d.Leak.Seconds.Rising || len(d.Leak.Allocations) > 0 {
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
	if got := d.Leak.Requests; got != (iterations.Trend{Valid: true, Points: 31}) || d.Leak.Request != "request" || d.Leak.Seconds.Rising {
		t.Errorf("by %q: %+v", d.Leak.Request, d.Leak)
	}
}

func TestLeakByTime(t *testing.T) {
	s := newServer(t)
	for n := range 128 {
		s.request(t, n, "", 10*mib)
	}
	d := run(t, s.Recorder, analysis.Options{}).Devices[0]
	// 64 windows of two requests each; 47 of them without the first quarter and the last.
	const slope = 10 * mib / (requestTime / 1e9)
	if got := d.Leak.Seconds; !got.Valid || !got.Rising || got.Points != 47 || got.Slope < 0.999*slope || got.Slope > 1.001*slope {
		t.Errorf("%+v, want a slope of %v", got, slope)
	}
	if d.Leak.Requests.Valid || d.Leak.Iterations.Valid {
		t.Errorf("%+v", d.Leak)
	}
	m, _ := analysis.LookupMetric("leak.per_second")
	if got, _, ok := m.Value(d.Subjects()); !ok || got != d.Leak.Seconds.Slope {
		t.Errorf("%s = %v, %v", m.Name, got, ok)
	}
	// What the windows that count had made and was live when the last of them ended: 16 to 62.
	if h := d.Leak.Allocations; h[0].Context != "history" || h[0].Blocks != 94 || h[0].Requested != 940*mib {
		t.Errorf("allocations %+v", h)
	}

	s = newServer(t)
	for n := range 128 {
		s.request(t, n, "", 0)
	}
	if got := run(t, s.Recorder, analysis.Options{}).Devices[0].Leak.Seconds; got != (iterations.Trend{Valid: true, Points: 47}) {
		t.Errorf("of a server that keeps nothing: %+v", got)
	}
}

// A short job has no trend over time; nor does one with iterations that are too few.
func TestNoLeakByTime(t *testing.T) {
	s := newServer(t)
	for n := range 8 {
		s.request(t, n, "", 10*mib)
	}
	if l := run(t, s.Recorder, analysis.Options{}).Devices[0].Leak; l.Seconds.Valid || l.Seconds.Rising {
		t.Errorf("%+v", l.Seconds)
	}
	for n := 8; n < 100; n++ {
		s.request(t, n, "", 10*mib)
	}
	s.Mark(0)
	d := run(t, s.Recorder, analysis.Options{}).Devices[0]
	m, _ := analysis.LookupMetric("leak.per_second")
	if _, _, ok := m.Value(d.Subjects()); ok || m.Unknown(d.Subjects()) != "1 iterations ended, and 6 are needed" {
		t.Errorf("%+v, unknown since %s", d.Leak.Seconds, m.Unknown(d.Subjects()))
	}
}

// Requests that repeat themselves are iterations, by their period; too few of those show no trend, and
// the trend over time decides.
func TestLeakByTimeOfFewPeriods(t *testing.T) {
	r := modeltest.New()
	a := newArena(t, r, bfc.Options{Limit: bfc.NoLimit}, bfc.DeviceOptions{VMM: true, Granularity: 2 * mib})
	for i := range 40 {
		from := len(r.Events)
		x := alloc(t, a, uint64(i%10+1)*mib, "activations")
		alloc(t, a, 10*mib, "history")
		a.Free(x, false)
		for j := from; j < len(r.Events); j++ {
			r.Events[j].Time = int64(i) * requestTime
		}
	}
	d := run(t, r, analysis.Options{}).Devices[0]
	if n := len(d.Iterations); d.Period != 20 || n < 2 || n > 5 {
		t.Fatalf("%d iterations, period %d", n, d.Period)
	}
	if got := d.Leak.Seconds; !got.Rising || got.Slope != 10*mib/(requestTime/1e9) {
		t.Errorf("%+v", got)
	}
	if h := d.Leak.Allocations; len(h) == 0 || h[0].Context != "history" {
		t.Errorf("%+v", h)
	}
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
	if got := d.Leak.Requests; got != (iterations.Trend{Valid: true, Points: 9, Slope: 3 * mib, Rising: true}) || d.Leak.Request != "KV cache sequence" {
		t.Errorf("by %q: %+v; %+v", d.Leak.Request, got, d.KV[0])
	}
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
	if got := d.Leak.Requests; got.Points != 23 || !got.Rising || got.Slope < 0.4*mib || got.Slope > 0.6*mib {
		t.Errorf("%+v", got)
	}
}
