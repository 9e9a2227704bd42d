package view

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/report"
	"github.com/memprof/memprof/report/page"
	"github.com/memprof/memprof/report/reporttest"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

func TestMain(m *testing.M) { reporttest.Main(m) }

var viewEvents = flag.Int64("view-events", 0, "write a recording of so many events, and measure memprof report --open on it: 100000000 for what is promised")

// write writes a recording of a training job: a model's weights, then the same step again and again, at intervals that vary.
func write(t testing.TB, dir string, events int64, opt dataset.WriterOptions) {
	t.Helper()
	r := modeltest.New()
	a, err := r.NewArena(0, bfc.Options{Limit: 1 << 36}, bfc.NewDevice(bfc.DeviceOptions{VMM: true, Granularity: 2 << 20, Base: 1 << 44}), nil)
	assert.NoError(t, err)
	take := func(size uint64, context string) uint64 {
		addr, ok := a.Alloc(size, context)
		assert.Must(t, ok, "no memory")
		return addr
	}
	mark := func(kind trace.Kind, text string) {
		r.Add(trace.Event{Kind: kind, Device: trace.NoDevice, Arena: trace.NoArena, Context: r.Strings.Intern(text)})
	}
	const layers = 48
	for layer := range layers {
		w := take(uint64(1<<20+layer*4096), fmt.Sprintf("module=model.%d", layer))
		r.Add(trace.Event{Kind: trace.KindLabel, Addr: int64(w), Context: r.Strings.Intern("category=weights\tname=w")})
	}
	step := func(i int64) {
		mark(trace.KindPhaseBegin, "forward")
		var kept []uint64
		for layer := range layers {
			kept = append(kept, take(uint64(200_000+layer*1000), fmt.Sprintf("module=model.%d", layer)))
			for n := range 4 {
				a.Free(take(uint64(50_000*(n+1)), fmt.Sprintf("module=model.%d.scratch", layer)), false)
			}
		}
		mark(trace.KindPhaseEnd, "forward")
		mark(trace.KindPhaseBegin, "backward")
		for range layers {
			scratch := take(300_000, "module=model.backward")
			a.Free(kept[len(kept)-1], false)
			kept = kept[:len(kept)-1]
			a.Free(scratch, false)
		}
		mark(trace.KindPhaseEnd, "backward")
		r.Mark(i)
	}
	step(0)
	step(1)
	begin := len(r.Events)
	step(2)
	w := dataset.NewWriter(dir, dataset.ProcessMeta{RunID: "1", Name: "rank0", Rank: -1, LocalRank: -1, WorldSize: -1}, opt)
	contexts := map[int32]int32{}
	random := rand.New(rand.NewPCG(1, 2))
	var seq, now int64
	put := func(e trace.Event) {
		id, known := contexts[e.Context]
		if !known {
			id = w.Intern(r.Strings.Text(e.Context))
			contexts[e.Context] = id
		}
		now += 1000 + random.Int64N(20_000)
		e.Seq, e.Time, e.Context = seq, now, id
		assert.NoError(t, w.Append(&e))
		seq++
	}
	for _, e := range r.Events[:begin] {
		put(e)
	}
	for i := int64(2); seq < events; i++ {
		for _, e := range r.Events[begin:] {
			if e.Kind == trace.KindIteration {
				e.Requested = i
			}
			put(e)
		}
	}
	assert.NoError(t, w.Finish(dataset.Ending{State: dataset.StateClosed}))
	assert.NoError(t, dataset.WriteInfo(dir, &dataset.Info{ID: "1", Command: []string{"train"}}))
}

// served is a server of a recording and its address.
func served(t testing.TB, dir string) (s *Server, address string, run *dataset.Run) {
	t.Helper()
	return servedAfter(t, dir, nil)
}

// servedAfter is one that reads all of it only after a channel was closed, if there is one.
func servedAfter(t testing.TB, dir string, begin <-chan struct{}) (s *Server, address string, run *dataset.Run) {
	t.Helper()
	run, err := dataset.Open(dir)
	assert.NoError(t, err)
	s, listener, address, err := Listen(Options{
		Run: run, Path: "run", Write: report.HTML,
		Page: func() (page.Page, error) {
			if begin != nil {
				<-begin
			}
			rec, err := recording.Analyze("run", run, analysis.Options{Explore: true, MaxPoints: 16384})
			return page.Page{Results: rec.Results, Path: "run", Server: &page.Server{}}, err
		},
	}, 0)
	assert.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s, address, run
}

// get is what an address answers.
func get(t testing.TB, address string) (int, []byte) {
	t.Helper()
	r, err := http.Get(address)
	assert.NoError(t, err)
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	assert.NoError(t, err)
	return r.StatusCode, body
}

// wait waits until all was read, and returns how long that took.
func wait(t testing.TB, address string) time.Duration {
	t.Helper()
	start := time.Now()
	for {
		_, body := get(t, address+"status")
		var state struct {
			Complete   bool
			Events, Of int64
			Error      string
		}
		if err := json.Unmarshal(body, &state); err != nil || state.Error != "" {
			t.Fatal(err, state.Error)
		}
		if state.Complete && state.Events == state.Of {
			return time.Since(start)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Whatever is asked, from the middle of parts and row groups: what is live at the event is what a replay from the first event finds.
func TestServedEventsAreExact(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, 30_000, dataset.WriterOptions{PartEvents: 7000, RowGroup: 900})
	_, address, run := served(t, dir)
	ask := func(query string, want int64) {
		t.Helper()
		code, body := get(t, address+"events?process=0&device=0&"+query)
		assert.Must(t, code == http.StatusOK, "%s: %d %s", query, code, body)
		answer := reporttest.UnpackBytes(t, body).(map[string]any)
		if got := int64(answer["event"].(float64)); got != want {
			t.Fatalf("%s: event %d, want %d", query, got, want)
		}
		span := answer["spans"].([]any)[0].([]any)
		position := want - int64(span[0].(float64))
		var got, live [][3]int64
		base, err := strconv.ParseInt(answer["arenas"].([]any)[0].(map[string]any)["base"].(string), 0, 64)
		assert.NoError(t, err)
		for _, a := range reporttest.Allocations(answer["device"].(map[string]any), len(answer["time"].([]int64)), []int64{base}) {
			if a.From <= position && position < a.To {
				got = append(got, [3]int64{a.Addr, a.Bytes, a.Requested})
			}
		}
		of := trace.NewLive()
		if err := run.Processes[0].Each(func(e *trace.Event) error {
			if e.Seq <= want {
				of.Add(e)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for b := range of.Blocks() {
			live = append(live, [3]int64{b.Alloc.Addr, b.Alloc.Provided, b.Alloc.Requested})
		}
		for _, blocks := range [][][3]int64{got, live} {
			slices.SortFunc(blocks, func(a, b [3]int64) int { return cmp.Compare(a[0], b[0]) })
		}
		diff := gocmp.Diff(live, got)
		assert.Must(t, diff == "", "%s (-replayed +served):\n%s", query, diff)
	}
	wait(t, address)
	random := rand.New(rand.NewPCG(3, 4))
	var times []int64
	assert.NoError(t, run.Processes[0].Each(func(e *trace.Event) error { times = append(times, e.Time); return nil }))
	last := int64(len(times)) - 1
	events := []int64{0, 1, 6999, 7000, 7001, last}
	for range 10 {
		events = append(events, random.Int64N(last))
	}
	for _, event := range events {
		ask("event="+strconv.FormatInt(event, 10), event)
		ask("time="+strconv.FormatInt(times[event], 10), event)
	}
	ask("from=13000&event=14000", 14000)
}

// Requests that do not know the token, come by another name or ask for what is not there get nothing.
func TestHostileRequestsAreRefused(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, 3000, dataset.WriterOptions{})
	_, address, _ := served(t, dir)
	wait(t, address)
	token := strings.Split(address, "/")[3]
	root := strings.TrimSuffix(address, token+"/")
	for _, c := range []struct {
		name, method, url, host, site string
		want                          int
	}{
		{"the page", "GET", address, "", "", 200},
		{"no token", "GET", root, "", "", 404},
		{"no token, a page", "GET", root + "status", "", "", 404},
		{"wrong token", "GET", root + strings.Repeat("0", 32) + "/", "", "", 404},
		{"half a token", "GET", root + token[:16] + "/", "", "", 404},
		{"token in capitals", "GET", root + strings.ToUpper(token) + "x/", "", "", 404},
		{"another name", "GET", address, "evil.example", "", 403},
		{"another port", "GET", address, "127.0.0.1:1", "", 403},
		{"no name", "GET", address, "0.0.0.0", "", 403},
		{"another site", "GET", address, "", "cross-site", 403},
		{"a neighbour", "GET", address + "events?process=0&device=0&event=1", "", "same-site", 403},
		{"own", "GET", address + "events?process=0&device=0&event=1", "", "same-origin", 200},
		{"post", "POST", address, "", "", 405},
		{"path up", "GET", address + "../../etc/passwd", "", "", 404},
		{"path up, escaped", "GET", address + "..%2f..%2fetc%2fpasswd", "", "", 404},
		{"a file", "GET", address + "run.json", "", "", 404},
		{"below", "GET", address + "events/", "", "", 404},
		{"no parameters", "GET", address + "events", "", "", 400},
		{"no event", "GET", address + "events?process=0&device=0", "", "", 400},
		{"a negative event", "GET", address + "events?process=0&device=0&event=-1", "", "", 400},
		{"beyond the last", "GET", address + "events?process=0&device=0&event=999999999", "", "", 404},
		{"greater than numbers", "GET", address + "events?process=0&device=0&event=99999999999999999999", "", "", 400},
		{"the greatest", "GET", address + "events?process=0&device=0&event=9223372036854775807", "", "", 404},
		{"the greatest time", "GET", address + "events?process=0&device=0&time=9223372036854775807", "", "", 200},
		{"no such process", "GET", address + "events?process=7&device=0&event=1", "", "", 400},
		{"no such device", "GET", address + "events?process=0&device=5&event=1", "", "", 404},
		{"a device beyond numbers", "GET", address + "events?process=0&device=4294967296&event=1", "", "", 400},
		{"backwards", "GET", address + "events?process=0&device=0&event=10&from=900", "", "", 404},
		{"twice", "GET", address + "events?process=0&device=0&event=1&event=2", "", "", 400},
		{"both", "GET", address + "events?process=0&device=0&event=1&time=2", "", "", 400},
		{"an unknown one", "GET", address + "events?process=0&device=0&event=1&file=/etc/passwd", "", "", 400},
		{"not a query", "GET", address + "events?%zz", "", "", 400},
		{"a word", "GET", address + "events?process=0&device=0&event=%3Cscript%3E", "", "", 400},
	} {
		request, err := http.NewRequest(c.method, c.url, nil)
		assert.NoError(t, err)
		if c.host != "" {
			request.Host = c.host
		}
		if c.site != "" {
			request.Header.Set("Sec-Fetch-Site", c.site)
		}
		r, err := http.DefaultTransport.RoundTrip(request)
		assert.NoError(t, err)
		body, _ := io.ReadAll(r.Body)
		r.Body.Close()
		assert.That(t, r.StatusCode == c.want, "%s: %d %s, want %d", c.name, r.StatusCode, body, c.want)
		if r.StatusCode != 200 && (bytes.Contains(body, []byte(token)) || bytes.Contains(body, []byte("root:")) || bytes.Contains(body, []byte("<"))) {
			t.Errorf("%s: the answer is %q", c.name, body)
		}
		assert.That(t, r.Header.Get("Cache-Control") == "no-store", "%s: kept by caches", c.name)
	}
}

// In the browser a click anywhere pins the last event before it, from the server.
func TestServedPageInBrowser(t *testing.T) {
	b := reporttest.NewBrowser(t)
	dir := t.TempDir()
	write(t, dir, 30_000, dataset.WriterOptions{PartEvents: 7000, RowGroup: 900})
	_, address, run := served(t, dir)
	wait(t, address)
	b.Visit(address)
	for _, x := range []float64{0.3, 0.71} {
		checkClick(t, b, run, x)
	}
	before := pinned(t, b)
	b.Eval(`[...document.querySelectorAll('#pin button')].find((button) => button.textContent === '→').click()`)
	b.Eval(reporttest.TwoFrames)
	assert.Equal(t, pinned(t, b), before+1, "the next event")
	b.QuietAt(address)
}

// Before all was read, the page shows where the parts begin, and a click pins an event as exactly as afterwards.
func TestServedPageBeforeAllWasRead(t *testing.T) {
	b := reporttest.NewBrowser(t)
	dir := t.TempDir()
	write(t, dir, 30_000, dataset.WriterOptions{PartEvents: 7000, RowGroup: 900})
	begin := make(chan struct{})
	_, address, run := servedAfter(t, dir, begin)
	t.Cleanup(func() { close(begin) })
	b.Visit(address)
	banner := b.Text(".banner[role=status]")
	assert.That(t, strings.Contains(banner, "any event can be pinned"), "the banner is %q", banner)
	checkClick(t, b, run, 0.42)
	b.QuietAt(address)
}

// checkClick clicks where a share x of the timeline's width is: what was requested at the event that is pinned is shown.
func checkClick(t *testing.T, b *reporttest.Browser, run *dataset.Run, x float64) {
	t.Helper()
	b.Click("canvas.timeline", x, 0.5)
	b.Eval(`new Promise((done) => { const look = () => /last event before/.test(document.querySelector('.snap').textContent) ? done('') : setTimeout(look, 10); look(); })`)
	seq := pinned(t, b)
	at, err := momentOf(run.Processes[0], seq)
	assert.NoError(t, err)
	got, _ := b.Eval(`document.querySelector('.split-list dd').title`).(string)
	want := strconv.FormatInt(at.T, 10) + " B"
	assert.That(t, strings.ReplaceAll(got, ",", "") == want, "event %d has %s requested, want %s", seq, got, want)
}

func pinned(t testing.TB, b *reporttest.Browser) int64 {
	t.Helper()
	seq, ok := b.Eval(`Number(document.querySelector('.pin strong').textContent.match(/event ([\d,]+)/)[1].replaceAll(',', ''))`).(float64)
	assert.Must(t, ok, "nothing is pinned")
	return int64(seq)
}

func momentOf(p *dataset.Process, seq int64) (ledger.Instant, error) {
	m, err := recording.InParts(p, seq)
	if err != nil {
		return ledger.Instant{}, err
	}
	return m[0].Devices[0].At, nil
}

// TestLargeView measures a long recording: go test ./report/view -run TestLargeView -view-events 100000000 -v.
func TestLargeView(t *testing.T) {
	if *viewEvents == 0 {
		t.Skip("no -view-events")
	}
	dir := t.TempDir()
	write(t, dir, *viewEvents, dataset.WriterOptions{})
	start := time.Now()
	_, address, _ := served(t, dir)
	get(t, address)
	prepared := time.Since(start)
	row := func(measured, value, promised string) {
		reporttest.Row(t, fmt.Sprintf("view, %d events: %s", *viewEvents, measured), value, promised)
	}
	b := reporttest.NewBrowser(t)
	first := b.Visit(address)
	row("first picture", (prepared + first).Round(time.Millisecond).String(), "less than 1s")
	random := rand.New(rand.NewPCG(1, 1))
	answers := func(when string) {
		var took []time.Duration
		for range 40 {
			start := time.Now()
			code, _ := get(t, fmt.Sprintf("%sevents?process=0&device=0&event=%d", address, random.Int64N(*viewEvents)))
			if code != 200 {
				t.Fatal(code)
			}
			took = append(took, time.Since(start))
		}
		slices.Sort(took)
		row("an event "+when+", median and slowest of 40", fmt.Sprint(took[len(took)/2].Round(time.Millisecond), ", ", took[len(took)-1].Round(time.Millisecond)), "less than 250ms")
	}
	answers("while the recording is read")
	read := wait(t, address)
	row("all was read after", read.Round(time.Millisecond).String(), "")
	answers("afterwards")
	t.Logf("the whole page is ready in %v", b.Visit(address))
}
