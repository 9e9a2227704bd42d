package report

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/report/page"
	"github.com/memprof/memprof/report/reporttest"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

var pageEvents = flag.Int64("page-events", 200_000, "events of the recordings whose pages are measured; 10000000 for what is promised")

// job is a process that is recorded a step at a time, so that none of its events are kept.
type job struct {
	*modeltest.Recorder
	arena *modeltest.Arena
	step  func(j *job, i int)
	most  int64 // events

	steps   int
	seq     int64
	now     int64
	random  *rand.Rand // of times; nil for steps of 100 ms
	batches *modeltest.Batches
}

func newJob(t testing.TB, most int64, step func(*job, int)) *job {
	return newLimitedJob(t, most, 1<<40, step)
}

// newLimitedJob is one of which the allocator may have so many bytes.
func newLimitedJob(t testing.TB, most int64, limit uint64, step func(*job, int)) *job {
	j := &job{Recorder: modeltest.New(), step: step, most: most, batches: modeltest.Source(nil, 1)}
	var err error
	j.arena, err = j.NewArena(0, bfc.Options{Limit: limit}, bfc.NewDevice(bfc.DeviceOptions{VMM: true, Granularity: 2 << 20, Base: 1 << 44}), nil)
	assert.NoError(t, err)
	return j
}

// Next is the next batch of events: 1 to 40 µs apart, or in steps of 100 ms and more the more they do.
func (j *job) Next() (*trace.Batch, error) {
	for {
		b, err := j.batches.Next()
		if !errors.Is(err, io.EOF) {
			return b, err
		}
		if j.seq >= j.most {
			return nil, io.EOF
		}
		j.step(j, j.steps)
		j.steps++
		for i := range j.Events {
			e := &j.Events[i]
			e.Seq = j.seq
			e.Time = int64(j.steps)*100_000_000 + int64(i)*20_000
			if j.random != nil {
				j.now += 1000 + j.random.Int64N(39_000)
				e.Time = j.now
			}
			j.seq++
		}
		j.batches = modeltest.Source(j.Events, 4096)
		j.Events = j.Events[:0]
	}
}

func (j *job) take(t testing.TB, size uint64, context string) uint64 {
	addr, ok := j.arena.Alloc(size, context)
	assert.Must(t, ok, "no memory for %d bytes", size)
	return addr
}

func (j *job) mark(kind trace.Kind, requested, provided int64, text string) {
	j.Add(trace.Event{Kind: kind, Device: trace.NoDevice, Arena: trace.NoArena, Requested: requested, Provided: provided, Context: j.Strings.Intern(text)})
}

// trainingJob makes steps of a model whose batches differ in length, with weights that stay.
func trainingJob(t testing.TB, layers int) func(*job, int) {
	random := rand.New(rand.NewPCG(1, 2))
	return func(j *job, i int) {
		module := func(layer int) string {
			return fmt.Sprintf("module=model.decoder.layers.%d.%s\tstack=%d", layer, []string{"self_attn.q_proj", "self_attn.out", "mlp.up", "mlp.down"}[layer%4], 2+layer)
		}
		if i == 0 {
			j.mark(trace.KindStack, 1, 0, "main train.py:210")
			for layer := range layers {
				j.mark(trace.KindStack, int64(2+layer), 1, fmt.Sprintf("forward modeling.py:%d", 100+layer))
				w := j.take(t, uint64(1<<20+layer*4096), module(layer))
				j.Add(trace.Event{Kind: trace.KindLabel, Addr: int64(w), Context: j.Strings.Intern(fmt.Sprintf("category=weights\tname=model.decoder.layers.%d.w", layer))})
			}
		}
		length := uint64(256 + 64*random.IntN(12))
		j.mark(trace.KindPhaseBegin, 0, 0, "forward")
		var kept []uint64
		for layer := range layers {
			kept = append(kept, j.take(t, length*4096, module(layer)), j.take(t, length*length*16, module(layer)))
			j.arena.Free(j.take(t, length*8192, module(layer)), false)
		}
		j.mark(trace.KindPhaseEnd, 0, 0, "forward")
		j.mark(trace.KindPhaseBegin, 0, 0, "backward")
		for layer := range layers {
			scratch := j.take(t, length*4096, module(layers-1-layer))
			for range 2 {
				j.arena.Free(kept[len(kept)-1], false)
				kept = kept[:len(kept)-1]
			}
			j.arena.Free(scratch, false)
		}
		j.mark(trace.KindPhaseEnd, 0, 0, "backward")
		j.Mark(int64(i))
	}
}

// churningJob takes and frees blocks of random sizes, so many live at a time: what is hardest to store in few bytes.
func churningJob(t testing.TB, live int) func(*job, int) {
	random := rand.New(rand.NewPCG(3, 4))
	var blocks []uint64
	return func(j *job, _ int) {
		for range 1000 {
			if len(blocks) >= live || len(blocks) > 0 && random.IntN(8) < 3 {
				at := random.IntN(len(blocks))
				j.arena.Free(blocks[at], false)
				blocks[at] = blocks[len(blocks)-1]
				blocks = blocks[:len(blocks)-1]
				continue
			}
			blocks = append(blocks, j.take(t, 1+random.Uint64N(1<<(8+random.IntN(16))), fmt.Sprintf("module=m%d", random.IntN(200))))
		}
	}
}

// mostPageBytes is how long a page may be if its Page has no MaxBytes.
const mostPageBytes = 3_000_000

// The page of a long recording keeps within its bound and opens at once, and the view moves at the pace of
// the screen.
func TestLargePages(t *testing.T) {
	for _, c := range []struct {
		name string
		step func() func(*job, int)
		most int // keyframes at least
	}{
		{"training", func() func(*job, int) { return trainingJob(t, 96) }, 200},
		{"churn", func() func(*job, int) { return churningJob(t, 2000) }, 16},
	} {
		if os.Getenv("MEMPROF_TEST_ALL") == "" && *pageEvents < 1_000_000 && c.name == "training" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			start := time.Now()
			var texts *dataset.Strings
			source := func() trace.Source {
				j := newJob(t, *pageEvents, c.step())
				j.random = rand.New(rand.NewPCG(5, 6))
				texts = j.Strings
				return j
			}
			opt := analysis.Options{Process: "rank0", Text: func(context int32) string { return texts.Text(context) }, MaxPoints: 16384}
			r := reporttest.Explored(t, source, opt, *pageEvents <= 1_000_000) // as memprof report has it
			analyzed := time.Since(start)
			start = time.Now()
			page := pageOf(t, page.Page{Results: []*analysis.Result{r}, Path: c.name})
			k := r.Devices[0].Keyframes
			t.Logf("%d events in %v, %d bytes in %v; %d keyframes, %d stretches", r.Events, analyzed, len(page), time.Since(start), len(k.Frames), len(k.Stretches))
			exact := eventBytes(t, page)
			stored := float64(exact) / float64(r.Events)
			row := func(measured, value, promised string) {
				reporttest.Row(t, fmt.Sprintf("%s, %d events: %s", c.name, r.Events, measured), value, promised)
			}
			if exact > 0 {
				row("an exact event, as text of the page", fmt.Sprintf("%.2f bytes", stored), "at most 6")
			}
			row("the page without exact events", fmt.Sprintf("%.2f MB", float64(len(page)-exact)/1e6), "at most 3")
			t.Logf("%d bytes of exact events, %.2f each", exact, stored)
			assert.That(t, len(page)-exact <= mostPageBytes, "%d bytes, want at most %d", len(page)-exact, mostPageBytes)
			assert.That(t, stored <= mostEventBytes, "%.2f bytes of exact events, want at most %v each", stored, mostEventBytes)
			device := reporttest.Unpack(t, page).(map[string]any)["processes"].([]any)[0].(map[string]any)["devices"].([]any)[0].(map[string]any)
			n := len(device["keyframes"].(map[string]any)["seq"].([]int64))
			assert.That(t, n >= c.most, "%d keyframes are on the page, want at least %d", n, c.most)
			if *pagePictures != "" {
				assert.NoError(t, os.WriteFile(filepath.Join(*pagePictures, c.name+".html"), page, 0o644))
			}
			b := reporttest.NewBrowser(t)
			start = time.Now()
			ready := b.Open(page)
			if exact > 0 {
				waitForEvents(b)
				t.Logf("exact events after %v", time.Since(start))
			}
			b.Mouse("canvas.timeline", "mouseWheel", 0.5, 0.5, map[string]any{"deltaX": 0, "deltaY": -120})
			frame := frame(b)
			t.Logf("ready after %v, %.1f ms for a frame of panning", ready, frame)
			row("opens in", ready.Round(time.Millisecond).String(), "less than 2s")
			row("a frame of panning, median", fmt.Sprintf("%.1f ms", frame), "less than 16")
			checkStrokes(t, b)
			if *pageEvents >= 1_000_000 && (ready > mostReady || frame > mostFrame) {
				t.Errorf("ready after %v and %.1f ms for a frame of panning, want at most %v and %v ms", ready, frame, mostReady, mostFrame)
			}
			b.Quiet()
		})
	}
}
