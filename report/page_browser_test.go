package report

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/page"
	"github.com/memprof/memprof/report/reporttest"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

func TestMain(m *testing.M) { reporttest.Main(m) }

var (
	pagePath     = flag.String("page", "", "draw this page, made by memprof report --html, instead of those of the tests")
	pagePictures = flag.String("pictures", "", "write pictures of the pages into this directory")
)

// TestPagePictures draws pages to be looked at: go test ./report -run TestPagePictures -pictures DIR [-page FILE].
func TestPagePictures(t *testing.T) {
	if *pagePictures == "" {
		t.Skip("no -pictures")
	}
	b := reporttest.NewBrowser(t)
	page, err := os.ReadFile(*pagePath)
	if *pagePath == "" {
		page, err = pageOf(t, richPage(t)), nil
	}
	assert.NoError(t, err)
	t.Logf("ready after %v", b.Open(page))
	name := strings.TrimSuffix(filepath.Base(cmp.Or(*pagePath, "rich.html")), ".html")
	if !strings.HasPrefix(name, "diff") {
		b.Mouse("canvas.timeline", "mouseMoved", 0.62, 0.5, nil)
	}
	b.Picture(filepath.Join(*pagePictures, name+"-light.png"), false)
	b.Picture(filepath.Join(*pagePictures, name+"-dark.png"), true)
	b.Quiet()
}

// richPage has something of everything: two ranks, of which one runs out of memory, phases, stacks,
// labels, and readings of what the device has in use.
func richPage(t *testing.T) page.Page {
	p := page.Page{Used: map[*analysis.DeviceResult]accounting.Course{}, Path: "runs/two ranks"}
	for rank := range 2 {
		r := richResult(t, fmt.Sprintf("rank%d", rank), rank == 0)
		p.Results = append(p.Results, r)
		used := modeltest.New()
		for i := range int64(40) {
			used.Add(trace.Event{Kind: trace.KindDeviceUsed, Requested: 80 << 30, Provided: 700<<20 + 30<<20*(i/3), Context: used.Strings.Intern("all=1")})
			used.Events[i].Time = 90_000_000 + i*100_000_000
		}
		readings, err := analysis.ReadReadings(modeltest.Source(used.Events, 8), used.Strings.Text)
		assert.NoError(t, err)
		p.Used[&r.Devices[0]] = readings.GPUs[0].All
	}
	return p
}

func richResult(t *testing.T, process string, fails bool) *analysis.Result {
	var texts *dataset.Strings
	source := func() trace.Source {
		step := trainingJob(t, 24)
		j := newJob(t, 9000, func(j *job, i int) {
			step(j, i)
			if i < 3 { // blocks that stay between others
				j.take(t, 3<<20, "module=model.cache\tstack=9")
			}
		})
		if fails {
			j = newLimitedJob(t, 9000, 760<<20, func(j *job, i int) {
				step(j, i)
				j.take(t, uint64(1<<20+i*4096), "module=train.history\tstack=3")
				if i == 20 {
					j.arena.Alloc(500<<20, "module=model.head\tstack=5")
				}
			})
		}
		texts = j.Strings
		return j
	}
	text := func(context int32) string { return texts.Text(context) }
	return reporttest.Explored(t, source, analysis.Options{Process: process, Text: text, MaxPoints: 16384}, true)
}

// hostileModule would be seen to run, or to become an element, if it were taken for markup.
const hostileModule = `<img src=x onerror="document.title='owned'"></script><script>document.title='owned'</script>`

func TestPageInBrowser(t *testing.T) {
	b := reporttest.NewBrowser(t)
	kept := false
	result := explored(t, 300, func(_ *modeltest.Recorder, a *modeltest.Arena) {
		if !kept {
			_, kept = a.Alloc(123_456, "module="+hostileModule)
		}
	})
	t.Logf("ready after %v", b.Open(pageOf(t, page.Page{Results: []*analysis.Result{result}, Path: "runs/mine"})))

	t.Run("the peak is pinned", func(t *testing.T) {
		peak := result.Devices[0].Peak
		b.Says(t, ".pin strong", "event "+plain.FormatCount(peak.Seq))
		b.Says(t, ".split-list", plain.FormatSize(peak.T), plain.FormatSize(peak.R), plain.FormatSize(peak.Reusable), plain.FormatSize(peak.External))
	})
	t.Run("hover shows the numbers", func(t *testing.T) {
		b.Mouse("canvas.timeline", "mouseMoved", 0.5, 0.5, nil)
		b.Eval(reporttest.TwoFrames)
		b.Says(t, ".tooltip", "reserved8 MiB", "iteration1", "requested", "event")
	})
	t.Run("click pins the last event before", func(t *testing.T) {
		before := b.Text(".pin strong")
		b.Click("canvas.timeline", 0.25, 0.5)
		after := b.Text(".pin strong")
		assert.That(t, after != before, "still %q", after)
		if got := b.Text(".snap"); !regexp.MustCompile(`^You clicked at \S+ m?s: this is the last event before, .* earlier\.$`).MatchString(got) {
			t.Errorf("the snap says %q", got)
		}
		if got := b.Text(".exact code"); !regexp.MustCompile(`^memprof report --at \d+ runs/mine$`).MatchString(got) {
			t.Errorf("the command is %q", got)
		}
	})
	t.Run("what is pinned is what was kept", func(t *testing.T) {
		b.Eval(`document.querySelector('canvas.timeline').focus()`)
		k := result.Devices[0].Keyframes
		for range 3 {
			b.Must("Input.dispatchKeyEvent", map[string]any{"type": "keyDown", "key": "ArrowRight", "modifiers": 8}, nil)
			at := int(b.Eval(`Number(document.querySelector('.snap').textContent.match(/instant (\d+) of/)[1])`).(float64)) - 1
			f := &k.Frames[at]
			t.Logf("keyframe %d", at)
			b.Says(t, ".split-list", plain.FormatSize(f.At.T), plain.FormatSize(f.At.R), plain.FormatSize(f.At.Reusable), plain.FormatSize(f.At.External))
			b.Says(t, ".arena-head", plain.Counted(f.At.Live, "allocation"))
		}
	})
	t.Run("the address space is that of the instant", func(t *testing.T) {
		b.Eval(`[...document.querySelectorAll('#pin button')].find((button) => button.textContent === 'Peak').click()`)
		b.Eval(reporttest.TwoFrames)
		arena := result.Devices[0].Map.Arenas[0]
		for _, s := range arena.Spans {
			if s.Bytes < arena.Extent/500 { // finer than what a pointer meets
				continue
			}
			b.Mouse("canvas.arena", "mouseMoved", (float64(s.Start)+float64(s.Bytes)/2)/float64(arena.Extent), 0.3, nil)
			b.Eval(reporttest.TwoFrames)
			kind := map[ledger.SpanKind]string{ledger.SpanReserve: "reserve", ledger.SpanReusable: "reusable", ledger.SpanExternal: "external", ledger.SpanLive: "live", ledger.SpanSlack: "slack"}[s.Kind]
			want := fmt.Sprintf("%s, %sfrom%#x", kind, plain.FormatSize(s.Bytes), arena.Base+s.Start)
			got := b.Text(".tooltip")
			assert.That(t, strings.HasPrefix(got, want), "at %d there is %q, want %q", s.Start, got, want)
		}
	})
	t.Run("the wheel zooms and a drag pans", func(t *testing.T) {
		b.Mouse("canvas.timeline", "mouseWheel", 0.5, 0.5, map[string]any{"deltaX": 0, "deltaY": -400})
		b.Eval(reporttest.TwoFrames)
		zoomed := b.Text(".in-view")
		assert.Must(t, strings.Contains(zoomed, " in view"), "after a turn of the wheel %q is in view", zoomed)
		pinned := b.Text(".pin strong")
		picture := func() any { return b.Eval(`document.querySelector('canvas.overview').toDataURL()`) }
		before := picture()
		b.Mouse("canvas.timeline", "mousePressed", 0.5, 0.5, map[string]any{"button": "left", "buttons": 1, "clickCount": 1})
		for _, x := range []float64{0.45, 0.4, 0.35} {
			b.Mouse("canvas.timeline", "mouseMoved", x, 0.5, map[string]any{"button": "left", "buttons": 1})
		}
		b.Mouse("canvas.timeline", "mouseReleased", 0.35, 0.5, map[string]any{"button": "left", "buttons": 0, "clickCount": 1})
		b.Eval(reporttest.TwoFrames)
		assert.That(t, picture() != before, "the drag moved nothing")
		assert.Equal(t, b.Text(".in-view"), zoomed, "the drag changed %q to", zoomed)
		assert.Equal(t, b.Text(".pin strong"), pinned, "the drag pinned")
		b.Eval(`[...document.querySelectorAll('#timeline button')].find((button) => button.textContent === 'All').click()`)
		b.Eval(reporttest.TwoFrames)
		assert.Equal(t, b.Text(".in-view"), "", "all is in view, and it says")
	})
	t.Run("search and filter", func(t *testing.T) {
		// What it made lives on to the peak.
		b.Eval(`[...document.querySelectorAll('#pin button')].find((button) => button.textContent === 'Peak').click()`)
		b.Eval(`(() => { const input = document.querySelector('#allocations input'); input.value = 'onerror'; input.dispatchEvent(new Event('input')); })()`)
		b.Eval(reporttest.TwoFrames)
		b.Says(t, "#allocations .long-space", hostileModule)
		b.Click("#allocations .long-row", 0.1, 0.5)
		b.Says(t, "#allocations .chips", "Module: <img src=x")
		b.Eval(`document.querySelector('#allocations .chip').click()`)
		b.Eval(`(() => { const input = document.querySelector('#allocations input'); input.value = 'nothing is called this'; input.dispatchEvent(new Event('input')); })()`)
		b.Says(t, "#allocations .note", "No live allocation matches")
	})
	t.Run("names are text", func(t *testing.T) {
		n := b.Eval(`document.querySelectorAll('img, iframe, object, embed').length`)
		assert.That(t, n == 0.0, "%v elements came from names", n)
		assert.Equal(t, b.Eval(`document.title`), "runs/mine", "the title")
	})
	t.Run("the policy holds", func(t *testing.T) {
		if got := b.Eval(`new Promise((done) => {
			addEventListener('securitypolicyviolation', (event) => done(event.effectiveDirective));
			const s = document.createElement('script');
			s.textContent = 'document.title = "owned"';
			document.body.append(s);
		})`); got != "script-src-elem" {
			t.Errorf("a script that was put in violates %v", got)
		}
		b.Forget() // the browser reported that violation
	})
	b.Quiet()
}

// Pages of all sorts of results open without a complaint.
func TestPagesOpen(t *testing.T) {
	b := reporttest.NewBrowser(t)
	for _, f := range fixtures() {
		b.Open(pageOf(t, page.Page{Results: f.results, Path: f.name}))
		n, _ := b.Eval(`document.querySelectorAll('select[aria-label="Process and device"] option').length`).(float64)
		for i := range int(n) {
			b.Eval(fmt.Sprintf(`(() => { const s = document.querySelector('select'); s.value = '%d'; s.dispatchEvent(new Event('change')); })()`, i))
			b.Eval(reporttest.TwoFrames)
		}
		if text := b.Text("main"); strings.Contains(text, "NaN") || strings.Contains(text, "undefined") || strings.Contains(text, "Infinity") {
			t.Errorf("%s: %s", f.name, text)
		}
		b.Quiet()
	}
}

// Chunks do not reach from one region into the next, so neither does what is free.
func TestPageOfRegionsThatTouch(t *testing.T) {
	r := modeltest.New()
	add := func(kind trace.Kind, addr, requested, provided int64, text string) {
		r.Add(trace.Event{Kind: kind, Addr: addr, Requested: requested, Provided: provided, Context: r.Strings.Intern(text)})
	}
	add(trace.KindArena, 1<<40, 0, 1<<30, "coalesces=0")
	add(trace.KindMap, 1<<40, 2<<20, 2<<20, "")
	add(trace.KindMap, 1<<40+2<<20, 2<<20, 2<<20, "")
	add(trace.KindAlloc, 1<<40, 1<<20, 1<<20, "")
	source := func() trace.Source { return modeltest.Source(r.Events, 8) }
	result := reporttest.Explored(t, source, analysis.Options{Process: "rank0", Text: r.Strings.Text}, false)
	got := result.Devices[0].Chunks.Largest()
	assert.Must(t, got == 2<<20, "the largest free chunk has %d bytes", got)
	b := reporttest.NewBrowser(t)
	b.Open(pageOf(t, page.Page{Results: []*analysis.Result{result}}))
	b.Says(t, ".arena-head", "free 3 MiBlargest free chunk 2 MiB")
	b.Quiet()
}

// A page of a job that failed opens at the failure, below the findings, which name it first.
func TestPageOpensAtFailure(t *testing.T) {
	b := reporttest.NewBrowser(t)
	result := richResult(t, "rank0", true)
	result.Job = &analysis.Job{Path: "run", Command: []string{"python3", "train.py"}, Host: "node7", Frameworks: []string{"torch 9.9"}}
	failed := result.Devices[0].OOMs[0]
	b.Open(pageOf(t, page.Page{Results: []*analysis.Result{result}}))
	b.Says(t, ".pin strong", "event "+plain.FormatCount(failed.Seq))
	b.Says(t, ".provenance", "python3 train.py", "torch 9.9 | host node7")
	b.Eval(`[...document.querySelectorAll('.pin button')].find((button) => button.textContent === 'Peak').click()`)
	b.Says(t, ".pin strong", "event "+plain.FormatCount(result.Devices[0].Peak.Seq))
	b.Eval(`[...document.querySelectorAll('.pin button')].find((button) => button.textContent === 'Failure').click()`)
	b.Says(t, ".pin strong", "event "+plain.FormatCount(failed.Seq))
	b.Quiet()
}

// The page of a comparison draws both runs over the same axes.
func TestDiffOverlay(t *testing.T) {
	b := reporttest.NewBrowser(t)
	var out bytes.Buffer
	c := compared()
	c.BaseCourse, c.NewCourse = CourseOf([]*analysis.Result{reporttest.Training(5, 3, 4)}), CourseOf([]*analysis.Result{reporttest.Training(7, 3, 4)})
	assert.NoError(t, DiffHTML(&out, c))
	b.Open(out.Bytes())
	got := b.Eval(`[...document.querySelectorAll('.overlay path')].map((path) => path.getAttribute('class') + (path.getAttribute('d').includes('NaN') ? ' NaN' : '') + (path.getTotalLength() > 100 ? '' : ' short')).join(', ')`)
	assert.That(t, got == "base requested, base reserved, new requested, new reserved", "the curves are %v", got)
	b.Quiet()
}

func TestDiffPageInBrowser(t *testing.T) {
	b := reporttest.NewBrowser(t)
	var out bytes.Buffer
	assert.NoError(t, DiffHTML(&out, compared()))
	b.Open(out.Bytes())
	n := b.Eval(`document.querySelectorAll('script:not([type])').length`)
	assert.That(t, n == 1.0, "%v scripts, want that of the page alone", n)
	shown := func() any {
		return b.Eval(`[...document.querySelectorAll('tbody tr')].filter((row) => !row.hidden && row.dataset.outcome === 'better').length + ' of ' +
			[...document.querySelectorAll('tbody tr')].filter((row) => !row.hidden).length`)
	}
	b.Eval(`document.querySelector('.choice button[data-value=better]').click()`)
	got := shown()
	assert.That(t, got == "1 of 1", "shown are %v that are better", got)
	b.Quiet()
}

// In a window of 800 pixels no table has to be moved to read its last column.
func TestNarrowPages(t *testing.T) {
	b := reporttest.NewBrowser(t)
	wide(b, 800)
	var diff bytes.Buffer
	assert.NoError(t, DiffHTML(&diff, compared()))
	for name, page := range map[string][]byte{"report": pageOf(t, richPage(t)), "diff": diff.Bytes()} {
		b.Open(page)
		b.Eval(reporttest.TwoFrames)
		hidden := b.Eval(`[...document.querySelectorAll('.long, .scroll, main')].filter((box) => box.scrollWidth > box.clientWidth)
			.map((box) => box.scrollWidth - box.clientWidth + ' pixels of ' + box.textContent.slice(0, 60)).join('; ')`)
		assert.That(t, hidden == "", "%s: out of sight are %v", name, hidden)
		if name == "report" { // of long recordings
			b.Eval(`document.querySelector('#growths .long-row').firstChild.textContent = '10,000,000'`)
		}
		cut := b.Eval(`[...document.querySelectorAll('.long-row > .number')].filter((cell) => cell.scrollWidth > cell.clientWidth).map((cell) => cell.textContent).join('; ')`)
		assert.That(t, cut == "", "%s: cut are %v", name, cut)
		b.Quiet()
	}
}

// What a page shows is in its address: opened again by it, it shows the same.
func TestViewInAddress(t *testing.T) {
	b := reporttest.NewBrowser(t)
	html := pageOf(t, richPage(t))
	b.Open(html)
	hash := `#from=600000000&to=1700000000&fit=1&overlay=1&event=700&color=phase&group=phase&find=decoder&only=category%3Aactivations&flame=mean`
	seen := func() string {
		text, _ := b.Eval(`[location.hash, document.querySelector('.pin strong').textContent, document.querySelector('.in-view').textContent,
			document.querySelector('select[aria-label=Overlay]').value, document.querySelector('#allocations .chips').textContent,
			document.querySelector('#allocations input').value, document.querySelector('#space [aria-checked=true]').textContent,
			document.querySelector('#flame [aria-checked=true]').textContent, document.querySelector('#allocations [aria-checked=true]').textContent].join(' | ')`).(string)
		return text
	}
	b.Eval(`location.hash = '` + hash + `&unknown=1'`)
	// The address follows the view, and the view the address, a while later.
	await := func(done func(text string) bool) string {
		text := seen()
		for end := time.Now().Add(time.Minute); !done(text) && time.Now().Before(end); text = seen() {
			time.Sleep(20 * time.Millisecond)
		}
		return text
	}
	parts := []string{hash + " |", "event 700 ", "from=600000000&to=1700000000", "1.10 s of ", "| 1 | Category: activations × | decoder | Phase | Interval in view | Phase"}
	want := await(func(text string) bool {
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
	})
	for _, part := range parts {
		assert.That(t, strings.Contains(want, part), "the address shows %q, want %q", want, part)
	}
	b.Open(pageOf(t, page.Page{})) // elsewhere, so that the page is made anew
	b.Open(html)
	b.Eval(`location.hash = '` + strings.SplitN(want, " | ", 2)[0] + `'`)
	assert.Equal(t, await(func(text string) bool { return text == want }), want, "again it shows")
	for _, bad := range []string{`#from=a&to=b&event=-4&color=x&group=__proto__&gpu=99&overlay=77&only=x:y&flame=zz`, `#event=999999999`, `#from=9e99&to=1e300`, `#%zz`, `#only=%3Cimg%20src=x%3E`} {
		b.Eval(`location.hash = '` + bad + `'`)
		b.Eval(reporttest.TwoFrames)
		got := b.Text(".pin strong")
		assert.That(t, strings.Contains(got, "Pinned: event "), "%s: %q", bad, got)
	}
	b.Quiet()
}

// The chart of categories shows what the replay finds, and that of the largest allocations names birth, death and stack.
func TestChartsBelowTheTimeline(t *testing.T) {
	b := reporttest.NewBrowser(t)
	result := explored(t, 30, nil)
	b.Open(pageOf(t, page.Page{Results: []*analysis.Result{result}, Path: "run"}))
	waitForEvents(b)
	assert.Equal(t, b.Text("#categories .in-view"), "every event", "the chart shows")
	shown := ""
	for x := 0.4; x < 0.5; x += 0.01 {
		b.Mouse("canvas.categories", "mouseMoved", x, 0.5, nil)
		b.Eval(reporttest.TwoFrames)
		shown += b.Text(".tooltip")
	}
	assert.That(t, strings.Contains(shown, "weights3 MiB") && strings.Contains(shown, "activations"), "the categories are %q", shown)
	b.Mouse("canvas.stripes", "mouseMoved", 0.5, 0.85, nil)
	b.Eval(reporttest.TwoFrames)
	b.Says(t, ".tooltip", "3 MiB requested", "modulemodel.layer1", "categoryweights", "born", "diedlives at the end")
	b.Click("canvas.stripes", 0.5, 0.85)
	b.Says(t, ".pin strong", "event "+plain.FormatCount(result.Devices[0].Keyframes.Largest[0].Seq)+" ")
	choose := func(name string) string {
		b.Eval(`[...document.querySelectorAll('#flame [role=radio]')].find((button) => button.textContent === '` + name + `').click()`)
		b.Eval(reporttest.TwoFrames)
		return b.Text("#flame .note")
	}
	if got := choose("Interval in view"); !regexp.MustCompile(`^Mean of live bytes over time, [\d,]+ events in view, exact\.$`).MatchString(got) {
		t.Errorf("the flame graph is of %q", got)
	}
	if got := choose("Allocated in view"); !strings.HasPrefix(got, "Bytes allocated, ") {
		t.Errorf("the flame graph is of %q", got)
	}
	b.Quiet()
}
