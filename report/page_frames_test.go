package report

import (
	"math"
	"testing"
	"time"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/report/page"
	"github.com/memprof/memprof/report/reporttest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// What a page may take on a quiet machine: to open, and to draw a frame while the view moves. Both are times, so that only
// make page-bench holds pages to them; mostStrokes holds on any machine.
const (
	mostReady = 2 * time.Second
	mostFrame = 16.0 // ms
)

// mostStrokes is how many lines, rectangles and texts a frame of panning may draw, however long the recording is: a few for
// each column of a screen.
const mostStrokes = 20_000

// frame is what a frame of panning takes, in ms: the least of a few tries.
func frame(b *reporttest.Browser) float64 {
	least := math.Inf(1)
	for try := 0; try < 5 && least > mostFrame; try++ {
		took, _ := b.Eval(panning).(float64)
		least = min(least, took)
	}
	return least
}

// What panning draws is bounded by the screen.
func TestPageFrames(t *testing.T) {
	b := reporttest.NewBrowser(t)
	b.Open(pageOf(t, page.Page{Results: []*analysis.Result{explored(t, 4000, nil)}}))
	b.Mouse("canvas.timeline", "mouseWheel", 0.5, 0.5, map[string]any{"deltaX": 0, "deltaY": -120})
	checkStrokes(t, b)
	t.Logf("a frame of panning takes %.2f ms", frame(b))
	b.Quiet()
}

func checkStrokes(t *testing.T, b *reporttest.Browser) {
	t.Helper()
	drawn, _ := b.Eval(strokes).(float64)
	t.Logf("a frame of panning draws %.0f lines, rectangles and texts", drawn)
	assert.That(t, drawn >= 1 && drawn <= mostStrokes, "a frame of panning draws %.0f lines, rectangles and texts, want 1 to %d", drawn, mostStrokes)
}

// strokes is how many lines, rectangles and texts are drawn in a frame while the view moves: the most of 10 frames.
const strokes = `(async () => {
	const context = CanvasRenderingContext2D.prototype, own = {};
	let drawn = 0;
	for (const name of ['lineTo', 'rect', 'fillRect', 'strokeRect', 'arc', 'fillText', 'drawImage']) {
		own[name] = context[name];
		context[name] = function (...all) { drawn++; return own[name].apply(this, all); };
	}
	const canvas = document.querySelector('canvas.timeline');
	let most = 0;
	for (let i = 0; i < 10; i++) {
		drawn = 0;
		canvas.dispatchEvent(new WheelEvent('wheel', { deltaX: i % 2 ? 40 : -40, deltaY: 0, cancelable: true }));
		await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
		most = Math.max(most, drawn);
	}
	Object.assign(context, own);
	return most;
})()`

// panning is how long a frame takes while the view moves: the median of 60.
const panning = `(async () => {
	const canvas = document.querySelector('canvas.timeline');
	const times = [];
	for (let i = 0; i < 60; i++) {
		canvas.dispatchEvent(new WheelEvent('wheel', { deltaX: i % 2 ? 40 : -40, deltaY: 0, cancelable: true }));
		times.push(await new Promise((done) => requestAnimationFrame((begin) => {
			const channel = new MessageChannel();
			channel.port1.onmessage = () => done(performance.now() - begin);
			channel.port2.postMessage(0);
		})));
	}
	return times.sort((a, b) => a - b)[30];
})()`
