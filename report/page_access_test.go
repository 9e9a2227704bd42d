package report

import (
	"bytes"
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
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/report/page"
	"github.com/memprof/memprof/report/reporttest"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

var axePath = flag.String("axe", "", "check pages with the axe-core in this file: those of the tests, and those that -page, a pattern, names")

// press has the page take a key.
func press(b *reporttest.Browser, key string) {
	for _, what := range []string{"keyDown", "keyUp"} {
		b.Must("Input.dispatchKeyEvent", map[string]any{"type": what, "key": key}, nil)
	}
	b.Eval(reporttest.TwoFrames)
}

// focus has an element take the keys, as if Tab had led there.
func focus(b *reporttest.Browser, selector string) {
	press(b, "Shift") // the keyboard is what was used last
	b.Eval(fmt.Sprintf(`document.querySelector(%q).focus()`, selector))
	b.Eval(reporttest.TwoFrames)
}

// servingPage is richPage with a KV cache.
func servingPage(t *testing.T) page.Page {
	p := richPage(t)
	p.Results[0].Devices[0].KV = recordedServer(t).Devices[0].KV
	return p
}

// Every chart has a name, is reached by Tab, and says by keys what it says by mouse.
func TestChartsByKeyboard(t *testing.T) {
	b := reporttest.NewBrowser(t)
	b.Open(pageOf(t, servingPage(t)))
	waitForEvents(b)
	unnamed := b.Eval(`[...document.querySelectorAll('canvas')].filter((c) => c.tabIndex !== 0 || c.getAttribute('role') !== 'application' || !c.getAttribute('aria-label')).map((c) => c.className).join()`)
	assert.Equal(t, unnamed, "", "canvases without name, role or place in the order of Tab")
	kinds, _ := b.Eval(`[...new Set([...document.querySelectorAll('canvas')].map((c) => c.className))].sort().join()`).(string)
	assert.Equal(t, kinds, "arena,categories,flame,kv,overview,stripes,timeline", "canvases")
	b.Eval(`[...document.querySelectorAll('#pin button')].find((button) => button.textContent === 'Peak').click()`)
	pinned := func() string { return b.Text("#split [role=status]") }
	for _, chart := range []string{"timeline", "categories", "kv", "stripes"} {
		before := pinned()
		focus(b, "canvas."+chart)
		press(b, "ArrowRight")
		assert.That(t, pinned() != before, "%s: the right arrow leaves %q pinned", chart, before)
		press(b, "ArrowLeft")
		assert.Equal(t, pinned(), before, "%s: after the left arrow", chart)
	}
	focus(b, "canvas.overview")
	press(b, "+")
	zoomed := b.Text(".in-view")
	assert.That(t, strings.HasSuffix(zoomed, " in view"), "a zoomed overview says %q", zoomed)
	picture := func() any { return b.Eval(`document.querySelector('canvas.overview').toDataURL()`) }
	before := picture()
	press(b, "ArrowRight")
	assert.That(t, picture() != before, "the right arrow moves nothing")
	press(b, "0")
	assert.Equal(t, b.Text(".in-view"), "", "all is in view, and it says")
	for chart, says := range map[string]string{"categories": "requested", "kv": "sequence", "stripes": " requested", "arena": "from0x", "flame": "share of the graph100.0%"} {
		focus(b, "canvas."+chart)
		b.Says(t, ".tooltip", says)
	}
	b.Quiet()
}

// The span, the stripe and the row that the keyboard chose are those that it acts on.
func TestChosenByKeyboard(t *testing.T) {
	b := reporttest.NewBrowser(t)
	result := explored(t, 30, nil)
	b.Open(pageOf(t, page.Page{Results: []*analysis.Result{result}, Path: "run"}))
	waitForEvents(b)
	focus(b, "canvas.arena")
	b.Says(t, ".tooltip", "live, 3 MiBfrom0x", "modulemodel.layer1")
	press(b, "ArrowRight")
	b.Says(t, ".tooltip", "slack, 1 MiBfrom0x")
	press(b, "ArrowLeft")
	press(b, "Enter")
	b.Says(t, "#allocations .chips", "Module: model.layer1 ×")
	b.Eval(`document.querySelector('#allocations .chip').click()`)

	focus(b, "canvas.stripes")
	b.Says(t, ".tooltip", "3 MiB requested", "diedlives at the end")
	press(b, "ArrowUp")
	b.Says(t, ".tooltip", "activations")
	press(b, "ArrowDown")
	press(b, "Enter")
	b.Says(t, ".pin strong", "event "+plain.FormatCount(result.Devices[0].Keyframes.Largest[0].Seq)+" ")

	focus(b, "#iterations .long-body")
	press(b, "ArrowDown")
	press(b, "ArrowDown")
	assert.Equal(t, b.Eval(`document.activeElement.firstChild.textContent`), "1", "the second row is of iteration")
	press(b, "Enter")
	b.Says(t, ".pin strong", "iteration 1 ")
	b.Quiet()
}

// What the pinned event did, and what was reserved then, stand beside the timeline in a wide window.
func TestPinnedEventBesideTimeline(t *testing.T) {
	b := reporttest.NewBrowser(t)
	b.Open(pageOf(t, page.Page{Results: []*analysis.Result{explored(t, 30, nil)}, Path: "run"}))
	waitForEvents(b)
	beside := b.Eval(`(() => {
		const chart = document.querySelector('canvas.timeline').getBoundingClientRect(), split = document.getElementById('split').getBoundingClientRect();
		return split.left >= chart.right && split.top < chart.bottom && split.bottom > chart.top && split.right <= innerWidth;
	})()`)
	assert.Equal(t, beside, true, "the pinned event is beside the timeline")
	aligned := b.Eval(`['timeline', 'categories', 'stripes'].map((name) => document.querySelector('canvas.' + name).getBoundingClientRect()).every((box, _, all) => box.left === all[0].left && box.right === all[0].right)`)
	assert.Equal(t, aligned, true, "a time is at one place in all charts")
	b.Eval(`document.querySelector('canvas.stripes').scrollIntoView({ block: 'end' })`)
	b.Eval(reporttest.TwoFrames)
	stays := b.Eval(`document.getElementById('split').getBoundingClientRect().top >= document.getElementById('pin').getBoundingClientRect().bottom && document.getElementById('split').getBoundingClientRect().bottom <= innerHeight`)
	assert.Equal(t, stays, true, "the pinned event is still there below, and is not covered by the pin")
	said := map[string]bool{}
	b.Eval(`location.hash = '#event=20'`)
	waitForPin(b, 20)
	focus(b, "canvas.timeline")
	for range 8 { // an iteration
		press(b, "ArrowRight")
		assert.Equal(t, "Pinned: "+strings.TrimPrefix(b.Text("#split [role=status]"), "Pinned: "), b.Text(".pin strong"), "the bar and the card say")
		said[b.Text(".event")] = true
	}
	b.Says(t, ".pin strong", "event 28 ")
	all := fmt.Sprint(said)
	for _, want := range []string{"This event allocatesrequested1.00 MiB", "This event frees", "modulemodel.layer2", "↳forward model.py:12", "This event changes no single allocation"} {
		assert.That(t, strings.Contains(all, want), "the events say %s, want %q", all, want)
	}
	b.Quiet()
}

// The title of a page is its job and the date, as text.
func TestPageTitle(t *testing.T) {
	b := reporttest.NewBrowser(t)
	result := explored(t, 2, nil)
	result.Job = &analysis.Job{Path: "run", Command: []string{"python3", "train.py", "</title><b>&"}, Start: time.Date(2026, 11, 21, 15, 40, 9, 0, time.UTC)}
	other := explored(t, 2, nil)
	other.Job = &analysis.Job{Path: "run2", Command: []string{"python3", "eval.py"}, Start: result.Job.Start}
	var diff bytes.Buffer
	assert.NoError(t, DiffHTML(&diff, compared()))
	for want, html := range map[string][]byte{
		"python3 train.py </title><b>& | 2026-11-21 15:40 UTC": pageOf(t, page.Page{Results: []*analysis.Result{result, result}, Path: "run"}),
		"run run2":                    pageOf(t, page.Page{Results: []*analysis.Result{result, other}, Path: "run run2"}),
		"mine":                        pageOf(t, page.Page{Results: []*analysis.Result{explored(t, 2, nil)}, Path: "mine"}),
		compared().BaseNames[0] + " ": diff.Bytes(),
	} {
		b.Open(html)
		got, _ := b.Eval(`document.title`).(string)
		if strings.HasSuffix(want, " ") {
			assert.That(t, strings.HasPrefix(got, want) && strings.Contains(got, " -> "), "the title is %q, want %q", got, want)
			continue
		}
		assert.Equal(t, got, want, "the title")
	}
	b.Quiet()
}

// Each finding leads to a part of the page that shows what it is about, and does not change what the address says otherwise.
func TestFindingsLinkToEvidence(t *testing.T) {
	b := reporttest.NewBrowser(t)
	result := richResult(t, "rank0", true)
	d := &result.Devices[0]
	d.Replays = []analysis.Replay{{Allocator: "torch", Setting: "native", Reserved: 2 << 30, LeastCard: 3 << 30, Recorded: true}}
	d.Savings = []analysis.Saving{
		{ID: "checkpoint", Text: "checkpoint layers: 1 GiB of saved tensors", LeastCard: 1 << 30, Reserved: 1 << 30},
		{ID: "use-cache", Text: "use_cache=False while training", LeastCard: 3 << 20},
		{ID: "allocator", Text: "PyTorch's own allocator, expandable", Allocator: "torch", Setting: "expandable_segments:True", LeastCard: 1 << 20},
	}
	d.Leak = &iterations.Leak{Verdict: iterations.Leaks, Per: "iteration", Points: 24, Slope: 1 << 20, Module: "train.history", Allocations: []attribution.AllocationGroup{{Blocks: 1, Requested: 512, Provided: 512}}}
	b.Open(pageOf(t, page.Page{Results: []*analysis.Result{result}, Path: "run"}))
	waitForEvents(b)
	links, _ := b.Eval(`[...document.querySelectorAll('.findings a')].map((a) => a.getAttribute('href') + ' ' + (a.dataset.category || ''))`).([]any)
	got := fmt.Sprint(links...)
	for _, want := range []string{"#allocations activations", "#allocations kv_cache", "#allocations weights", "#what-it-takes-to-hold-that ", "#leaks ", "#ooms "} {
		assert.That(t, strings.Contains(got, want), "the links are %s, want %q", got, want)
	}
	for i, link := range links {
		b.Eval(fmt.Sprintf(`document.querySelectorAll('.findings a')[%d].scrollIntoView()`, i))
		b.Eval(fmt.Sprintf(`document.querySelectorAll('.findings a')[%d].click()`, i))
		b.Eval(reporttest.TwoFrames)
		id, category, _ := strings.Cut(strings.TrimPrefix(link.(string), "#"), " ")
		seen := b.Eval(fmt.Sprintf(`(() => {
			const node = document.getElementById(%q);
			const box = node && node.getBoundingClientRect();
			return Boolean(box) && node.contains(document.elementFromPoint(box.left + 30, box.top + 20)); // nothing covers it
		})()`, id))
		assert.Equal(t, seen, true, "the top of #%s is seen after a click", id)
		switch category {
		case "weights", "activations":
			b.Says(t, "#allocations .chips", "Category: "+category+" ×")
			b.Says(t, ".pin strong", "event "+plain.FormatCount(d.Peak.Seq)+" ")
		case "kv_cache": // there is none
			assert.Equal(t, b.Text("#allocations .chips"), "", "the filters")
		}
	}
	b.Quiet()
}

// The flame graph is as wide as the page, and is searched, inverted and reset; layer2 is before layer10.
func TestFlameGraph(t *testing.T) {
	b := reporttest.NewBrowser(t)
	kept := 0
	result := explored(t, 30, func(_ *modeltest.Recorder, a *modeltest.Arena) {
		if layers := []string{"layer10", "layer2", "layer9", "layer2"}; kept < len(layers) {
			a.Alloc(uint64(4-kept)<<20, "module=net."+layers[kept]+"\tstack=2")
			kept++
		}
	})
	b.Open(pageOf(t, page.Page{Results: []*analysis.Result{result}, Path: "run"}))
	waitForEvents(b)
	wide := b.Eval(`document.querySelector('canvas.flame').clientWidth / document.querySelector('main').clientWidth`).(float64)
	assert.That(t, wide > 0.9, "the graph has %.2f of the page's width", wide)
	choose := func(name string) {
		b.Eval(`[...document.querySelectorAll('#flame button')].find((button) => button.textContent === '` + name + `').click()`)
		b.Eval(reporttest.TwoFrames)
	}
	// row is the names of a row of the graph, from left to right.
	row := func(down int) (names []string) {
		b.Eval(`document.activeElement.blur()`)
		focus(b, "canvas.flame")
		press(b, "Escape")
		for range 8 {
			press(b, "ArrowUp")
		}
		for range down {
			press(b, "ArrowDown")
		}
		for range 8 {
			press(b, "ArrowLeft")
		}
		for said := ""; said != b.Text(".tooltip"); press(b, "ArrowRight") {
			said = b.Text(".tooltip")
			names = append(names, b.Text(".tooltip .tip-head"))
		}
		return names
	}
	choose("Modules")
	assert.Diff(t, []string{"model", "net"}, row(1), "modules")
	assert.Diff(t, []string{"layer1", "layer2", "layer2", "layer9", "layer10"}, row(2), "layers of both")
	choose("Stacks")
	outermost := row(1)
	choose("Inverted")
	innermost := row(1)
	assert.That(t, slices.Contains(outermost, "main train.py:40") && !slices.Contains(outermost, "forward model.py:12"), "the outermost frames are %q", outermost)
	assert.That(t, slices.Contains(innermost, "forward model.py:12") && !slices.Contains(innermost, "main train.py:40"), "inverted, they are %q", innermost)
	assert.Equal(t, b.Eval(`document.querySelector('#flame [aria-pressed]').getAttribute('aria-pressed')`), "true", "inverted is pressed")
	search := func(text string) string {
		b.Eval(`(() => { const input = document.querySelector('#flame input'); input.value = '` + text + `'; input.dispatchEvent(new Event('input')); })()`)
		b.Eval(reporttest.TwoFrames)
		return b.Text(".flame-path")
	}
	if got := search("model.py"); !regexp.MustCompile(`^[\d.]+ MiB in frames that match, [\d.]+%$`).MatchString(got) {
		t.Errorf("a search says %q", got)
	}
	assert.Equal(t, search("nothing is called this"), "0 B in frames that match, 0.0%", "another says")
	row(1) // Escape resets
	assert.Equal(t, b.Text(".flame-path"), "", "after a reset")
	press(b, "Enter")
	b.Says(t, ".flame-path", "only ")
	search("model.py")
	choose("Reset")
	assert.Equal(t, b.Text(".flame-path")+b.Eval(`document.querySelector('#flame input').value`).(string), "", "after another")
	assert.That(t, !strings.Contains(b.Text("#flame"), "--stacks python"), "a page with stacks says how to record them")
	b.Open(pageOf(t, page.Page{Results: []*analysis.Result{reporttest.Explored(t, withoutStacks(t), analysis.Options{Process: "rank0"}, true)}}))
	b.Says(t, "#flame .note", "No stacks were recorded: memprof record --stacks python does")
	b.Quiet()
}

// Of 64 failed requests three are seen; the others are folded.
func TestFailedRequestsFold(t *testing.T) {
	b := reporttest.NewBrowser(t)
	result := richResult(t, "rank0", true)
	d := &result.Devices[0]
	d.OOMs, d.OOMCount = slices.Repeat(d.OOMs[:1], 64), 70
	b.Open(pageOf(t, page.Page{Results: []*analysis.Result{result}, Path: "run"}))
	seen := func() any {
		return b.Eval(`[...document.querySelectorAll('#ooms li')].filter((li) => li.checkVisibility()).length + ' of ' + document.querySelectorAll('#ooms li').length`)
	}
	assert.Equal(t, seen(), "3 of 64", "failed requests that are seen")
	assert.Equal(t, b.Text("#ooms summary"), "61 more", "the fold says")
	b.Eval(`document.querySelector('#ooms summary').click()`)
	assert.Equal(t, seen(), "64 of 64", "after a click")
	b.Says(t, "#ooms", "6 more requests failed later")
	b.Quiet()
}

// faint lists the texts of a page whose contrast with what is behind them is less than 4.5, the least for people with poor sight.
const faint = `(() => {
	const rgba = (text) => { const n = text.match(/[\d.]+/g).map(Number); return text.startsWith('color(') ? [...n.slice(0, 3).map((v) => 255 * v), n[3] ?? 1] : [n[0], n[1], n[2], n[3] ?? 1]; };
	const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
	const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
	const behind = (node) => { const own = rgba(getComputedStyle(node).backgroundColor); return own[3] === 1 ? own : over(own, node.parentElement ? behind(node.parentElement) : [255, 255, 255, 1]); };
	const found = new Set(), walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	let seen = 0;
	for (let text = walker.nextNode(); text; text = walker.nextNode()) {
		const node = text.parentElement;
		if (text.data.trim() === '' || !node.checkVisibility()) continue;
		const back = behind(node), [a, b] = [light(over(rgba(getComputedStyle(node).color), back)), light(back)];
		const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		seen++;
		if (contrast < 4.5) found.add(contrast.toFixed(2) + ' ' + node.tagName + '.' + node.className + ': ' + text.data.slice(0, 30));
	}
	return seen < 50 ? 'only ' + seen + ' texts are seen' : [...found].join('\n');
})()`

// theme has pages be light or dark.
func theme(b *reporttest.Browser, name string) {
	b.Must("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": name}}}, nil)
}

// wide has the window be so many pixels wide.
func wide(b *reporttest.Browser, pixels int) {
	b.Must("Emulation.setDeviceMetricsOverride", map[string]any{"width": pixels, "height": 900, "deviceScaleFactor": 1, "mobile": false}, nil)
}

// Tab leads to a table that does not fit the window, so that arrow keys can move it, and to no other.
func TestWideTablesByKeyboard(t *testing.T) {
	b := reporttest.NewBrowser(t)
	for name, html := range accessPages(t) {
		for pixels, scrolled := range map[int]bool{1360: false, 420: true} {
			wide(b, pixels)
			b.Open(html)
			b.Eval(reporttest.TwoFrames)
			got := b.Eval(`[...document.querySelectorAll('.scroll')].filter((box) => (box.tabIndex === 0) !== (box.scrollWidth > box.clientWidth)).length + ' ' + Boolean(document.querySelector('.scroll[tabindex="0"]'))`)
			assert.Equal(t, got, any(fmt.Sprint("0 ", scrolled)), "%s, %d pixels: wrong tables, any that is scrolled", name, pixels)
		}
	}
	b.Quiet()
}

// Texts stand out from what is behind them, in both themes.
func TestContrast(t *testing.T) {
	b := reporttest.NewBrowser(t)
	for _, scheme := range []string{"light", "dark"} {
		theme(b, scheme)
		for name, html := range accessPages(t) {
			b.Open(html)
			b.Eval(`document.querySelectorAll('details').forEach((details) => { details.open = true; })`)
			b.Eval(reporttest.TwoFrames)
			assert.Equal(t, b.Eval(`document.documentElement.dataset.theme`), any(scheme), "the theme")
			assert.Equal(t, b.Eval(faint), "", "%s, %s: texts that are too faint", name, scheme)
		}
	}
}

// accessPages are pages with everything that a page can have.
func accessPages(t *testing.T) map[string][]byte {
	var diff bytes.Buffer
	c := compared()
	c.BaseCourse, c.NewCourse = CourseOf([]*analysis.Result{reporttest.Training(5, 3, 4)}), CourseOf([]*analysis.Result{reporttest.Training(7, 3, 4)})
	assert.NoError(t, DiffHTML(&diff, c))
	return map[string][]byte{"rich": pageOf(t, servingPage(t)), "diff": diff.Bytes(), "troubled": pageOf(t, page.Page{Results: []*analysis.Result{troubled()}, Path: "run"})}
}

// TestAxe runs axe-core, which is not in this tree: make axe.
func TestAxe(t *testing.T) {
	if *axePath == "" {
		t.Skip("no -axe")
	}
	axe, err := os.ReadFile(*axePath)
	assert.NoError(t, err)
	pages := accessPages(t)
	files, err := filepath.Glob(*pagePath)
	assert.NoError(t, err)
	for _, file := range files {
		pages[filepath.Base(file)], err = os.ReadFile(file)
		assert.NoError(t, err)
	}
	b := reporttest.NewBrowser(t)
	for name, html := range pages {
		for i, scheme := range []string{"light", "dark", "light"} {
			theme(b, scheme)
			wide(b, []int{1360, 1360, 420}[i])
			b.Open(html)
			b.Eval(string(axe) + "; ''")
			found, _ := b.Eval(`axe.run({ resultTypes: ['violations'] }).then(({ violations, passes }) => [violations.filter((v) => v.impact === 'serious' || v.impact === 'critical'), violations, passes]
				.map((list) => list.map((v) => v.impact + ' ' + v.id + ' at ' + v.nodes.length + ', ' + v.nodes.slice(0, 3).map((n) => n.html.slice(0, 120) + ' ' + n.failureSummary).join(' | ')).join('\n')))`).([]any)
			assert.Must(t, len(found) == 3 && len(found[2].(string)) > 1000, "%s: axe found %v", name, found)
			t.Logf("%s, %s: all violations: %s", name, scheme, found[1])
			assert.Equal(t, found[0], "", "%s, %s: serious violations", name, scheme)
		}
	}
}

// withoutStacks is a recording whose allocations have no call stacks.
func withoutStacks(t *testing.T) func() trace.Source {
	r := modeltest.New()
	a, err := r.NewArena(0, bfc.Options{Limit: 1 << 30}, bfc.NewDevice(bfc.DeviceOptions{VMM: true, Granularity: 2 << 20}), nil)
	assert.NoError(t, err)
	a.Alloc(1<<20, "")
	return func() trace.Source { return modeltest.Source(r.Events, 8) }
}
