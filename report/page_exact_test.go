package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/keyframes"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/report/page"
	"github.com/memprof/memprof/report/reporttest"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// mostEventBytes is how much an exact event of a page may take, as text of the page.
const mostEventBytes = 6.0

// exactPage is the page of some events, all of which it shows exactly.
func exactPage(t testing.TB, events []trace.Event, text func(int32) string) []byte {
	t.Helper()
	source := func() trace.Source { return modeltest.Source(events, 4096) }
	r := reporttest.Explored(t, source, analysis.Options{Process: "rank0", Text: text, MaxPoints: 16384}, true)
	return pageOf(t, page.Page{Results: []*analysis.Result{r}, Path: "run"})
}

// eventBytes is how many bytes of a page the exact events take.
func eventBytes(t testing.TB, page []byte) int {
	text, _ := reporttest.Stored(t, page, "events")
	return len(text)
}

// mixedJob has several arenas, blocks that wait for other streams, blocks that lose their slack, and phases.
func mixedJob(t testing.TB, steps int) *modeltest.Recorder {
	t.Helper()
	r := modeltest.New()
	random := rand.New(rand.NewPCG(9, 9))
	var arenas []*modeltest.Arena
	for i := range 3 {
		a, err := r.NewArena(0, bfc.Options{Limit: 1 << 30}, bfc.NewDevice(bfc.DeviceOptions{VMM: true, Granularity: 2 << 20, Base: uint64(1+i) << 42}), nil)
		assert.NoError(t, err)
		arenas = append(arenas, a)
	}
	live, pending := make([][]uint64, 3), make([][]uint64, 3)
	take := func(from *[]uint64) uint64 {
		i := random.IntN(len(*from))
		addr := (*from)[i]
		*from = slices.Delete(*from, i, i+1)
		return addr
	}
	for step := range steps {
		which := random.IntN(3)
		a := arenas[which]
		switch op := random.IntN(12); {
		case op < 6 || len(live[which]) == 0:
			if addr, ok := a.Alloc(1+random.Uint64N(1<<(8+random.IntN(12))), fmt.Sprintf("module=m%d", step%7)); ok {
				live[which] = append(live[which], addr)
			}
		case op < 9:
			a.Free(take(&live[which]), false)
		case op == 9:
			addr := take(&live[which])
			a.Use(addr, 7)
			a.Free(addr, true)
			pending[which] = append(pending[which], addr)
		case op == 10 && len(pending[which]) > 0:
			a.FreeDone(take(&pending[which]))
		default:
			r.Mark(int64(step))
		}
	}
	return r
}

// nativeJob has an allocator that was only observed: chunks are not known.
func nativeJob(steps int) *modeltest.Recorder {
	r := modeltest.New()
	random := rand.New(rand.NewPCG(4, 4))
	add := func(kind trace.Kind, addr, requested, provided int64, text string) {
		r.Add(trace.Event{Kind: kind, Addr: addr, Requested: requested, Provided: provided, Context: r.Strings.Intern(text)})
	}
	add(trace.KindArena, 0, 0, 0, "allocator=torch provided=unknown pool=0 tag= main=1")
	const base = 1 << 40
	add(trace.KindMap, base, 64<<20, 64<<20, "")
	live := map[int64]int64{}
	for range steps {
		slot := random.Int64N(64)
		addr := int64(base) + slot<<20
		if bytes, taken := live[addr]; taken {
			add(trace.KindFree, addr, bytes, bytes, "")
			delete(live, addr)
			continue
		}
		bytes := 1 + random.Int64N(1<<20)
		add(trace.KindAlloc, addr, bytes, bytes, "module=m")
		live[addr] = bytes
	}
	return r
}

// recordedEvents are the events of a sample's first process.
func recordedEvents(t testing.TB, path string) ([]trace.Event, func(int32) string) {
	t.Helper()
	run, err := dataset.Open(path)
	assert.NoError(t, err)
	var events []trace.Event
	assert.NoError(t, run.Processes[0].Each(func(e *trace.Event) error { events = append(events, *e); return nil }))
	return events, run.Processes[0].Strings().Text
}

// decoded are the allocations of a device's exact events, as a page has them.
func decoded(t testing.TB, html []byte) (allocations []reporttest.Allocation, micros []int64) {
	t.Helper()
	process := reporttest.UnpackEvents(t, html).(map[string]any)["processes"].([]any)[0].(map[string]any)
	device := process["devices"].([]any)[0].(map[string]any)
	micros = process["time"].([]int64)
	arenas := reporttest.Unpack(t, html).(map[string]any)["processes"].([]any)[0].(map[string]any)["devices"].([]any)[0].(map[string]any)["arenas"].([]any)
	var bases []int64
	for _, arena := range arenas {
		base, err := strconv.ParseInt(arena.(map[string]any)["base"].(string), 0, 64)
		assert.NoError(t, err)
		bases = append(bases, base)
	}
	return reporttest.Allocations(device, len(micros), bases), micros
}

// What the page stores of each event is what a replay up to it finds: addresses, chunks and requested bytes of all live
// allocations; in at most 6 bytes an event.
func TestExactEventsOfPages(t *testing.T) {
	mixed, churning := mixedJob(t, 3000), newJob(t, 0, churningJob(t, 500))
	for i := range 60 {
		churning.step(churning, i)
	}
	for _, c := range []struct {
		name string
		most float64
		get  func() ([]trace.Event, func(int32) string)
	}{
		{"mixed", mostEventBytes, func() ([]trace.Event, func(int32) string) { return mixed.Events, mixed.Strings.Text }},
		{"churn", mostEventBytes, func() ([]trace.Event, func(int32) string) { return timed(churning.Events), churning.Strings.Text }},
		{"resnet50", mostEventBytes, func() ([]trace.Event, func(int32) string) { return recordedEvents(t, "../samples/resnet50") }},
		{"gpt2", mostEventBytes, func() ([]trace.Event, func(int32) string) { return recordedEvents(t, "../samples/gpt2") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			events, text := c.get()
			html := exactPage(t, events, text)
			stored := float64(eventBytes(t, html)) / float64(len(events))
			t.Logf("%d events, %.2f bytes each in a page of %d bytes", len(events), stored, len(html))
			assert.That(t, stored <= c.most, "%.2f bytes an event, want at most %v", stored, c.most)
			stretches, micros := decoded(t, html)
			random := rand.New(rand.NewPCG(5, 6))
			picks := map[int]bool{0: true, len(events) - 1: true}
			for range 40 {
				picks[random.IntN(len(events))] = true
			}
			live := trace.NewLive()
			for i := range events {
				live.Add(&events[i])
				if !picks[i] {
					continue
				}
				assert.That(t, micros[i] == events[i].Time/1000, "event %d is at %d µs, want %d ns", i, micros[i], events[i].Time)
				var want, got [][3]int64
				for b := range live.Blocks() {
					if !b.Pending {
						want = append(want, [3]int64{b.Alloc.Addr, b.Alloc.Provided, b.Alloc.Requested})
					}
				}
				for _, s := range stretches {
					if int(s.From) <= i && i < int(s.To) {
						got = append(got, [3]int64{s.Addr, s.Bytes, s.Requested})
					}
				}
				for _, blocks := range [][][3]int64{want, got} {
					slices.SortFunc(blocks, func(a, b [3]int64) int { return cmp.Compare(a[0], b[0]) })
				}
				diff := gocmp.Diff(want, got)
				assert.Must(t, diff == "", "live after event %d (-replayed +page):\n%s", i, diff)
			}
		})
	}
}

// timed gives events times of 1 to 40 µs apart.
func timed(events []trace.Event) []trace.Event {
	random, now := rand.New(rand.NewPCG(5, 6)), int64(0)
	for i := range events {
		now += 1000 + random.Int64N(39_000)
		events[i].Time = now
	}
	return events
}

// shownTerms reads the exact bytes of the split of the pinned instant off the page.
const shownTerms = `JSON.stringify(Object.fromEntries([...document.querySelectorAll('.split-list > div')].map((item) =>
	[item.querySelector('dt').textContent, Number(item.querySelector('dd').title.replace(/\D/g, ''))])))`

// A browser that pins any event shows the terms that a replay up to it finds, to the byte.
func TestAnyEventCanBePinned(t *testing.T) {
	b := reporttest.NewBrowser(t)
	giver := rapid.Custom(func(t *rapid.T) *modeltest.Recorder { return giving(t) })
	mixed, native := mixedJob(t, 2000), nativeJob(500)
	given := giver.Example(4)
	for seed := 5; len(given.Events) < 40; seed++ {
		given = giver.Example(seed)
	}
	for _, c := range []struct {
		name string
		get  func() ([]trace.Event, func(int32) string)
	}{
		{"mixed", func() ([]trace.Event, func(int32) string) { return mixed.Events, mixed.Strings.Text }},
		{"paused", func() ([]trace.Event, func(int32) string) { return given.Events, given.Strings.Text }},
		{"native", func() ([]trace.Event, func(int32) string) { return native.Events, native.Strings.Text }},
		{"resnet50", func() ([]trace.Event, func(int32) string) { return recordedEvents(t, "../samples/resnet50") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			events, text := c.get()
			b.Open(exactPage(t, events, text))
			waitForEvents(b)
			random := rand.New(rand.NewPCG(7, 8))
			for range 12 {
				seq := int64(random.IntN(len(events)))
				moments, err := analysis.At(modeltest.Source(events, 4096), analysis.Options{Text: text}, seq)
				assert.NoError(t, err)
				m := moments[0]
				if len(m.Devices) == 0 || m.Kind == trace.KindOOM || growthBehind(events, seq) { // seen by a request, as stored
					continue
				}
				at := m.Devices[0].At
				want := map[string]int64{
					"Requested": at.T, "Rounding": at.Rounding, "Slack": at.Slack, "Pending": at.Pending, "External": at.External, "Stranded": at.Stranded,
					"Reusable": at.Reusable, "Reserve": at.Reserve, "= Reserved": at.R, "Paused": at.Paused, "Not requested": at.NotRequested,
				}
				for _, name := range []string{"Pending", "Stranded", "Paused", "Not requested"} {
					if want[name] == 0 {
						delete(want, name)
					}
				}
				b.Eval(fmt.Sprintf(`location.hash = '#event=%d'`, seq))
				waitForPin(b, seq)
				shown, _ := b.Eval(shownTerms).(string)
				var got map[string]int64
				assert.NoError(t, json.Unmarshal([]byte(shown), &got))
				if title := b.Text(".pin strong"); !strings.Contains(strings.ReplaceAll(title, ",", ""), fmt.Sprintf("event %d ", seq)) {
					t.Fatalf("pinned is %q, want event %d", title, seq)
				}
				diff := gocmp.Diff(want, got)
				assert.Must(t, diff == "", "after event %d (-replayed +page):\n%s", seq, diff)
			}
			b.Quiet()
		})
	}
}

// An address that is entered while the one of the last view waits to be written is read, not overwritten.
func TestAddressEnteredBeforeAnother(t *testing.T) {
	b := reporttest.NewBrowser(t)
	events, text := recordedEvents(t, "../samples/resnet50")
	b.Open(exactPage(t, events, text))
	waitForEvents(b)
	b.Eval(`location.hash = '#event=201'`)
	waitForPin(b, 201)
	b.Mouse("canvas.timeline", "mouseWheel", 0.5, 0.5, map[string]any{"deltaX": 0, "deltaY": -120})
	b.Eval(`(() => { const until = performance.now() + 400; while (performance.now() < until); location.hash = '#event=420'; })()`)
	b.Eval(`new Promise((done) => setTimeout(done, 1000))`)
	b.Says(t, ".pin strong", "event 420 ")
	b.Quiet()
}

// growthBehind says whether the event after seq is a growth: the page stores what its request saw.
func growthBehind(events []trace.Event, seq int64) bool {
	return int(seq)+1 < len(events) && events[seq+1].Kind == trace.KindMap
}

// waitForEvents waits until the page has unpacked its exact events.
func waitForEvents(b *reporttest.Browser) {
	b.Eval(`new Promise((done) => { const look = () => document.querySelector('main').dataset.events ? done('') : setTimeout(look, 10); look(); })`)
}

// waitForPin waits until the page shows that event, at most a minute: a busy machine draws late.
func waitForPin(b *reporttest.Browser, seq int64) {
	b.Eval(fmt.Sprintf(`new Promise((done) => { const until = performance.now() + 60000; const look = () => {
		const pin = document.querySelector('.pin strong');
		pin && pin.textContent.replaceAll(',', '').includes('event %d ') || performance.now() > until ? done('') : setTimeout(look, 10); }; look(); })`, seq))
	b.Eval(reporttest.TwoFrames)
}

// Of a recording with more events than a page takes, the first, peak, last and worst iterations are exact, and the page
// says which events these are.
func TestPageOfTooManyEvents(t *testing.T) {
	run, err := dataset.Open("../samples/resnet50")
	assert.NoError(t, err)
	rec, err := recording.Analyze("run", run, analysis.Options{Explore: true, ExactEvents: 20_000, MaxPoints: 4096})
	assert.NoError(t, err)
	d := &rec.Results[0].Devices[0]
	exact := func(seq int64) bool {
		return slices.ContainsFunc(d.Keyframes.Exact.Spans, func(s keyframes.Span) bool { return s.From <= seq && seq < s.To })
	}
	worst := slices.MaxFunc(d.Iterations, func(a, b iterations.Iteration) int { return cmp.Compare(a.PeakT, b.PeakT) })
	for name, it := range map[string]iterations.Iteration{"first": d.Iterations[0], "last": d.Iterations[len(d.Iterations)-1], "worst": worst} {
		assert.That(t, exact(it.StartSeq) && exact(it.EndSeq),
			"the %s iteration, events %d to %d, is not in %v", name, it.StartSeq, it.EndSeq, d.Keyframes.Exact.Spans)
	}
	assert.That(t, exact(d.Peak.Seq), "the peak, event %d, is not in %v", d.Peak.Seq, d.Keyframes.Exact.Spans)
	n := len(d.Keyframes.Exact.Time)
	assert.That(t, n <= 20_000, "%d events are exact", n)
	b := reporttest.NewBrowser(t)
	b.Open(pageOf(t, page.Page{Results: rec.Results, Path: "run"}))
	waitForEvents(b)
	if got := b.Text(".reach"); !regexp.MustCompile(`^Exact here: events 0–[\d,]+.*\(the first, peak, last and worst iterations\) and [\d,]+ stored instants.*memprof report --open run`).MatchString(got) {
		t.Errorf("the page says %q", got)
	}
	b.Quiet()
}
