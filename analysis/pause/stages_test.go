package pause_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/analysis/pause"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// colocated is a job made by hand: a trainer, an engine's weights and its cache in regions, and
// memory outside of any, each all of one arena. Sizes are MiB, times ms.
type colocated struct {
	t       *testing.T
	strings *dataset.Strings
	events  []trace.Event
	time    int64
	paused  map[int32]int64
	mapped  map[int32]int64
}

const (
	outsideArena int32 = iota
	trainerArena
	rolloutArena
	cacheArena
)

func newColocated(t *testing.T) *colocated {
	j := &colocated{t: t, strings: dataset.NewStrings(), paused: map[int32]int64{}, mapped: map[int32]int64{}}
	for id, tag := range []string{"", "trainer", "rollout", "kv_cache"} {
		text := fmt.Sprintf("growth=needed headroom=0 fraction=0 gc=0 granularity=%d coalesces=1 pool=0.0 tag=%s main=0", 2*mib, tag)
		j.add(trace.Event{Kind: trace.KindArena, Arena: int32(id), Addr: startOf(int32(id)), Provided: 1 << 40, Context: j.strings.Intern(text)})
	}
	return j
}

func startOf(arena int32) int64 { return int64(arena+1) << 41 }

func (j *colocated) add(e trace.Event) {
	e.Seq, e.Time = int64(len(j.events)), j.time*1e6
	j.events = append(j.events, e)
}

// take maps and hands out memory at the end of what an arena has.
func (j *colocated) take(arena int32, size int64, context string) int64 {
	at := startOf(arena) + j.mapped[arena]
	j.add(trace.Event{Kind: trace.KindMap, Arena: arena, Addr: at, Requested: size * mib, Provided: size * mib})
	j.add(trace.Event{Kind: trace.KindAlloc, Arena: arena, Addr: at, Requested: size * mib, Provided: size * mib, Context: j.strings.Intern(context)})
	j.mapped[arena] += size * mib
	return at
}

func (j *colocated) label(addr int64, text string) {
	j.add(trace.Event{Kind: trace.KindLabel, Addr: addr, Context: j.strings.Intern(text)})
}

// pause and resume are one call about several arenas, which takes a ms.
func (j *colocated) pause(copied int64, arenas ...int32) {
	j.transition(trace.KindPause, copied, arenas)
}
func (j *colocated) resume(copied int64, arenas ...int32) {
	j.transition(trace.KindResume, copied, arenas)
}

func (j *colocated) transition(kind trace.Kind, copied int64, arenas []int32) {
	j.time++
	for _, arena := range arenas {
		text := "tag=" + []string{"", "trainer", "rollout", "kv_cache"}[arena]
		j.add(trace.Event{Kind: kind, Arena: arena, Addr: 1e6, Requested: j.mapped[arena], Provided: copied * mib, Context: j.strings.Intern(text)})
	}
}

// phase is one of the job's own that takes some ms.
func (j *colocated) phase(name string, ms int64, do func()) {
	mark := trace.Event{Kind: trace.KindPhaseBegin, Device: trace.NoDevice, Arena: trace.NoArena, Context: j.strings.Intern(name)}
	if name != "" {
		j.add(mark)
	}
	if do != nil {
		do()
	}
	j.time += ms
	if mark.Kind = trace.KindPhaseEnd; name != "" {
		j.add(mark)
	}
}

func (j *colocated) run() *analysis.DeviceResult {
	j.t.Helper()
	r, err := analysis.Run(modeltest.Source(j.events, 3), analysis.Options{Text: j.strings.Text})
	if err != nil {
		j.t.Fatal(err)
	}
	return &r.Devices[0]
}

// inTurns is two iterations of a trainer and an engine whose tags are all resumed before the sync. Phases
// say what they use by their names; "" is no phase.
func inTurns(t *testing.T, train, sync, rollout string) *colocated {
	j := newColocated(t)
	j.take(outsideArena, 10, "")
	j.take(trainerArena, 20, "")
	j.take(rolloutArena, 16, "")
	j.take(cacheArena, 40, "")
	j.pause(0, rolloutArena, cacheArena)
	for range 2 {
		j.phase(train, 100, nil)
		j.resume(0, rolloutArena, cacheArena)
		j.phase(sync, 10, nil)
		j.pause(20, trainerArena)
		j.phase(rollout, 50, nil)
		j.pause(0, rolloutArena, cacheArena)
		j.resume(20, trainerArena)
	}
	return j
}

func TestPausesOfGivenPhases(t *testing.T) {
	s := inTurns(t, "train\tuses=trainer", "sync\tuses=trainer rollout", "rollout\tuses=rollout kv_cache nobody").run().Pauses
	want := pause.Cycle{
		Tags: []pause.Tag{{Name: "trainer", Bytes: 20 * mib, Copied: true}, {Name: "rollout", Bytes: 16 * mib}, {Name: "kv_cache", Bytes: 40 * mib, KV: true}},
		Stages: []pause.Stage{
			{Name: "train", Base: 10 * mib, Sizes: []int64{20 * mib, -1, -1}, Needs: []bool{true, false, false}},
			{Name: "sync", Base: 10 * mib, Sizes: []int64{20 * mib, 16 * mib, 40 * mib}, Needs: []bool{true, true, false}},
			{Name: "rollout", Base: 10 * mib, Sizes: []int64{-1, 16 * mib, 40 * mib}, Needs: []bool{false, true, true}},
		},
	}
	assert.Diff(t, want, s.Cycle, "cycle")
	uses := []pause.StageUse{
		{Visits: 2, Duration: 200e6, Peak: 30 * mib, Given: true},
		{Visits: 2, Duration: 20e6, Peak: 86 * mib, Given: true},
		{Visits: 2, Duration: 100e6, Peak: 66 * mib, Given: true},
	}
	assert.Diff(t, uses, s.Stages, "stages")
	got := s.Cycle.Unneeded(1)
	kv := slices.ContainsFunc(s.Cycle.Tags, func(tag pause.Tag) bool { return tag.KV })
	assert.That(t, got == 40*mib && s.Phases && kv, "%d bytes are held in vain, phases %v, kv %v", got, s.Phases, kv)
	type outcome struct{ Peak, Copied, KV int64 }
	for name, test := range map[string]struct {
		plan pause.Plan
		want outcome
	}{
		"recorded": {s.Recorded, outcome{86 * mib, 40 * mib, 54 * mib}},
		"resident": {s.NeverPaused, outcome{86 * mib, 0, 54 * mib}},
		"at once":  {s.Together, outcome{86 * mib, 40 * mib, 54 * mib}},
		"staged":   {s.OnUse, outcome{66 * mib, 40 * mib, 74 * mib}},
	} {
		kv, _ := test.plan.LargestKV(100 * mib)
		assert.Diff(t, test.want, outcome{test.plan.Peak, test.plan.Copied, kv}, "%s", name)
	}
	assert.That(t, s.Recorded.PeakStage == -1, "the peak came with the resume, before stage %d", s.Recorded.PeakStage)
}

// A cycle that was cut off after its first stage is none more.
func TestCopiedInACycle(t *testing.T) {
	j := inTurns(t, "train", "sync", "rollout")
	j.phase("train", 100, nil)
	s := j.run().Pauses
	assert.That(t, s.Stages[0].Visits == 3 && s.Recorded.Copied == 40*mib, "%d visits, %d copied", s.Stages[0].Visits, s.Recorded.Copied)
}

// Phases without uses= need what was resident.
func TestPausesOfPhases(t *testing.T) {
	s := inTurns(t, "train", "sync", "rollout").run().Pauses
	if s.OnUse.Peak != 86*mib || s.Stages[1].Given || s.Cycle.Unneeded(1) != 0 {
		t.Errorf("the plan's peak is %d, uses given %v, %d resident but unneeded", s.OnUse.Peak, s.Stages[1].Given, s.Cycle.Unneeded(1))
	}
}

// A tag that slept through one visit of a stage is not needed in it.
func TestPauseThroughOneVisit(t *testing.T) {
	j := newColocated(t)
	j.take(trainerArena, 20, "")
	j.take(cacheArena, 40, "")
	j.phase("train", 10, nil)
	j.phase("rollout", 10, nil)
	j.pause(0, cacheArena)
	j.phase("train", 10, nil)
	j.resume(0, cacheArena)
	j.phase("rollout", 10, nil)
	s := j.run().Pauses
	diff := cmp.Diff([]bool{true, false, false}, s.Cycle.Stages[0].Needs)
	assert.That(t, diff == "" && s.Cycle.Unneeded(0) == 40*mib, "train needs (-want +got):\n%s%d held in vain", diff, s.Cycle.Unneeded(0))
}

// Without phases stages are the stretches between transitions; what is shorter than a
// transition is a switch, and torch's own phases are parts of steps.
func TestPausesWithoutPhases(t *testing.T) {
	j := inTurns(t, "", "", "")
	j.phase("forward", 1, nil)
	j.phase("backward", 1, nil)
	s := j.run().Pauses
	var names []string
	for _, stage := range s.Cycle.Stages {
		names = append(names, stage.Name)
	}
	want := []string{"trainer resident", "trainer + rollout + kv_cache resident", "rollout + kv_cache resident"}
	diff := cmp.Diff(want, names)
	assert.That(t, diff == "" && !s.Phases, "stages (-want +got), phases %v:\n%s", s.Phases, diff)
	assert.That(t, s.OnUse.Peak == 86*mib && s.Stages[1].Duration == 20e6-2e6+2e6, "peak %d, duration %d", s.OnUse.Peak, s.Stages[1].Duration)
}

func TestResidencies(t *testing.T) {
	s := inTurns(t, "", "", "").run().Pauses
	type moment struct{ ms, base, trainer, rollout, cache int64 }
	var got []moment
	for _, p := range s.Series {
		m := moment{ms: p.Start / 1e6, base: p.Last.Base / mib}
		for i, to := range []*int64{&m.trainer, &m.rollout, &m.cache} {
			if i < len(p.Last.Tags) {
				*to = p.Last.Tags[i] / mib
			}
		}
		got = append(got, m)
	}
	want := []moment{
		{0, 10, 20, 16, 40}, {1, 10, 20, 0, 0}, {102, 10, 20, 16, 40}, {113, 10, 0, 16, 40}, {164, 10, 0, 0, 0}, {165, 10, 20, 0, 0},
		{266, 10, 20, 16, 40}, {277, 10, 0, 16, 40}, {328, 10, 0, 0, 0}, {329, 10, 20, 0, 0},
	}
	assert.Diff(t, want, got, cmp.AllowUnexported(moment{}), "moments")
}

// However tags are paused and resumed, resident bytes of tags and untagged bytes add up to R, and their
// course has the greatest R.
func TestResidenciesAddUp(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		j := newColocated(t)
		paused := map[int32]bool{}
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			arena := rapid.Int32Range(outsideArena, cacheArena).Draw(rt, "arena")
			j.time += rapid.Int64Range(0, 3).Draw(rt, "ms")
			switch {
			case paused[arena]:
				j.resume(0, arena)
				paused[arena] = false
			case arena != outsideArena && j.mapped[arena] > 0 && rapid.Bool().Draw(rt, "pause"):
				j.pause(0, arena)
				paused[arena] = true
			default:
				j.take(arena, 2*rapid.Int64Range(1, 8).Draw(rt, "size"), "")
			}
		}
		d := j.run()
		var greatest int64
		for _, p := range d.Pauses.Series {
			greatest = max(greatest, p.At.Sum())
			if p.At.Base < 0 || p.Last.Sum() > p.At.Sum() {
				rt.Fatalf("residency %+v", p)
			}
		}
		if last := d.Pauses.Series[len(d.Pauses.Series)-1].Last; last.Sum() != d.Final.R || greatest != d.MaxR {
			rt.Fatalf("at the end %d of R %d, at most %d of %d", last.Sum(), d.Final.R, greatest, d.MaxR)
		}
	})
}

func TestOutside(t *testing.T) {
	j := newColocated(t)
	j.take(trainerArena, 20, "")
	j.phase("build", 1, func() {
		cache := j.take(cacheArena, 40, "module=engine.cache")
		j.label(cache, "category=kv_cache\tname=layers")
		j.take(outsideArena, 4, "module=engine.pages")
		j.label(j.take(outsideArena, 6, "module=engine.cache"), "category=kv_cache\tname=tables")
	})
	brief := j.take(outsideArena, 2, "")
	j.pause(0, cacheArena)
	j.add(trace.Event{Kind: trace.KindFree, Arena: outsideArena, Addr: brief, Requested: 2 * mib, Provided: 2 * mib})
	j.pause(0, trainerArena)              // with less outside
	j.take(outsideArena, 100, "too late") // no pause sees it
	d := j.run()
	want := pause.Untagged{
		Seq: d.Transitions[0].Seq, Time: 2e6, Bytes: 12 * mib, Blocks: 3,
		Groups: []pause.UntaggedGroup{
			{Phase: "build", Category: "kv_cache", Origin: "engine.cache", Blocks: 1, Bytes: 6 * mib, Mixed: true},
			{Phase: "build", Origin: "engine.pages", Blocks: 1, Bytes: 4 * mib, Mixed: true},
			{Phase: "other", Blocks: 1, Bytes: 2 * mib},
		},
	}
	assert.Diff(t, want, d.Pauses.Untagged, "outside")
}

// What is free outside of tags all through a stage could be unmapped before it.
func TestFreeOutsideOfTags(t *testing.T) {
	j := newColocated(t)
	j.take(cacheArena, 40, "")
	work := j.take(outsideArena, 30, "")
	more := j.take(outsideArena, 10, "")
	free := func(addr, size int64) {
		j.add(trace.Event{Kind: trace.KindFree, Arena: outsideArena, Addr: addr, Requested: size * mib, Provided: size * mib})
	}
	again := func(addr, size int64) {
		j.add(trace.Event{Kind: trace.KindAlloc, Arena: outsideArena, Addr: addr, Requested: size * mib, Provided: size * mib})
	}
	j.phase("train", 10, func() { free(work, 30); again(work, 24); free(more, 10) })
	j.phase("rollout", 10, func() { free(work, 24); again(work, 6) })
	j.phase("train", 10, func() { free(work, 6); again(work, 30) })
	s := j.run().Pauses
	assert.That(t, s.Stages[0].Free == 10*mib && s.Stages[1].Free == 16*mib,
		"free in train %d, want %d; in rollout %d, want %d", s.Stages[0].Free, 10*mib, s.Stages[1].Free, 16*mib)
}

func TestNoPausesWithoutTags(t *testing.T) {
	j := newColocated(t)
	j.events = j.events[:1]
	j.take(outsideArena, 2, "")
	s := j.run().Pauses
	assert.That(t, s == nil, "pauses %+v", s)
}

func TestPauseMetrics(t *testing.T) {
	j := inTurns(t, "train\tuses=trainer", "sync\tuses=trainer rollout", "rollout\tuses=rollout kv_cache")
	j.transition(trace.KindResume, 0, []int32{cacheArena})
	j.events[len(j.events)-1].Requested = 0
	j.events[len(j.events)-1].Context = j.strings.Intern("tag=kv_cache\tfailed=no memory")
	d := j.run()
	for name, want := range map[string]float64{
		"pause.untagged.bytes": 10 * mib, "pause.unneeded.bytes": 40 * mib, "pause.recorded.peak": 86 * mib,
		"pause.untagged.free.bytes": 0, "pause.on_use.peak": 66 * mib, "pause.excess": 20.0 / 66, "pause.failed.count": 1,
	} {
		m, ok := analysis.LookupMetric(name)
		assert.Must(t, ok, "no metric %s", name)
		if got, _, ok := m.Value(d.Subjects()); !ok || got != want {
			t.Errorf("%s is %v, %v, want %v", name, got, ok, want)
		}
		if _, _, ok := m.Value((&analysis.DeviceResult{}).Subjects()); ok {
			t.Errorf("%s without tags", name)
		}
	}
}

// What came before the first stage that came again is no part of the cycle; a stage between two
// visits of another is, if it came but once.
func TestCycleOfStages(t *testing.T) {
	j := newColocated(t)
	j.take(cacheArena, 40, "")
	for _, name := range []string{"load", "train", "sync", "train", "evaluate"} {
		j.phase(name, 10, nil)
	}
	var names []string
	for _, stage := range j.run().Pauses.Cycle.Stages {
		names = append(names, stage.Name)
	}
	assert.Diff(t, []string{"train", "sync"}, names, "stages")
}
