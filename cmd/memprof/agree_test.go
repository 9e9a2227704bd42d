package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/tune"
	"github.com/memprof/memprof/analysis/verify"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// Jobs of testdata/served are made up from seeds: a campaign runs more of them, from another one.
var (
	servedJobs = flag.Int("served-jobs", 0, "how many jobs of random seeds TestModelAgrees and TestResultsAgree run each; 0 is the short form")
	servedSeed = flag.Uint64("served-seed", 0, "the first seed of these jobs; 0 takes the clock's, with -served-jobs, and else 1")
)

// firstSeed is the first of n seeds that follow each other, and how many they are.
func firstSeed(t *testing.T, short int) (first uint64, n int) {
	first, n = max(*servedSeed, 1), short
	if *servedJobs > 0 {
		n = *servedJobs
		if *servedSeed == 0 {
			first = uint64(time.Now().UnixNano())
		}
	}
	t.Logf("%d jobs: -served-seed %d -served-jobs %d", n, first, n)
	return first, n
}

// newServedBench is a bench whose job is testdata/served.
func newServedBench(t *testing.T) *bench {
	needHook(t)
	sources, err := filepath.Glob("testdata/served/*.c")
	assert.Must(t, err == nil && len(sources) != 0, "no testdata/served/*.c: %v", err)
	job := compile(t, "served", append(sources, "-I../../hooks/capture")...)
	return &bench{T: t, job: job, cache: cache, dir: t.TempDir()}
}

// allPolicies are both presets without a trim and with one at the end of each iteration.
func allPolicies() []bfc.Policy {
	var policies []bfc.Policy
	for _, preset := range bfc.Presets() {
		trimmed := preset.Policy()
		trimmed.Trim.When = bfc.TrimIteration
		policies = append(policies, preset.Policy(), trimmed)
	}
	return policies
}

// recordFlags are a policy's of record.
func recordFlags(p bfc.Policy) []string {
	size := func(bytes uint64) string { return fmt.Sprint(bytes, "B") }
	return []string{"--preset", p.Preset.String(), "--limit", size(p.Limit), "--headroom", size(p.Headroom), "--handle", size(p.Handle), "--trim", p.Trim.Text(time.Duration.String)}
}

// served records a job of testdata/served under a policy and returns what it printed.
func (b *bench) served(dir, memory string, p bfc.Policy, words ...string) string {
	b.Helper()
	args := append([]string{"record", "-q", "--force", "--device", "sim", "--sim-memory", memory, "--serve", "-o", b.path(dir)}, recordFlags(p)...)
	cmd, stderr := b.memprof(append(append(args, "--", b.job), words...)...)
	out, err := cmd.Output()
	assert.Must(b, err == nil, "%s: %v\n%s", strings.Join(cmd.Args, " "), err, stderr)
	return string(out)
}

// most is the greatest requested, provided and reserved bytes of a job.
type most struct{ requested, provided, reserved int64 }

// agreement is what the hook did with a job, and what tune says that it would.
type agreement struct {
	hook, model most
	refused     int64 // requests, by the model
	steady, end int64 // bytes reserved in steady iterations by the model, and in the end by the hook
	// further is the event by which an arena has used up its first addresses, or a request that the hook refused got memory
	// of the driver, -1 if there is none. Where the driver reserves more addresses the model cannot know, and the order of
	// addresses decides between free chunks of one size, and which granules are taken first; nor can it know to how many
	// bytes the driver rounds a request up. Under preset compact it does not know, either, to which of its addresses a page returns that a refused
	// request had moved, nor what is over while a stream is captured.
	further int64
	// short says that the device was short of memory: what is refused then depends on that order, too.
	short bool
	// captured says that a stream was captured under preset compact, or while memory was reclaimed: the hook cannot ask then what the
	// device is done with, and no event says when it could again.
	captured bool
	// late is the first request or free behind a time in which the job did nothing for so long that trim idle unmaps free memory,
	// but not for so long that the hook, which looks at intervals, must have done so; -1 if there is none, or trim is another.
	late int64
	// apart is the first event after which they have different bytes reserved, -1 if there is none; how says
	// which they have.
	apart int64
	how   string
}

// agrees says whether the model comes to what the hook did: to the byte at each event, and with further addresses
// at each event before them, and to within a fiftieth of what is reserved behind, if nothing was short. Behind a trim of which nobody
// knows whether it was done nothing is compared.
func (o *agreement) agrees() bool {
	switch {
	case o.late >= 0:
		return o.apart < 0 || o.apart >= o.late || o.further >= 0 && o.apart >= o.further
	case o.further < 0:
		return o.hook == o.model && o.refused == 0 && o.apart < 0
	case o.apart >= 0 && o.apart < o.further:
		return false
	case o.short || o.captured:
		return true
	}
	gap := o.hook.reserved - o.model.reserved
	return o.hook.requested == o.model.requested && max(gap, -gap) <= o.hook.reserved/50 && o.refused == 0
}

// replayed verifies a recording and replays it under the policy that it was recorded with.
func (b *bench) replayed(dir string, p bfc.Policy) (o agreement) {
	b.Helper()
	run, err := dataset.Open(b.path(dir))
	assert.NoError(b, err)
	process := run.Processes[0]
	if result, err := verify.Process(context.Background(), process); err != nil || !result.Complete {
		b.Fatalf("%v: %+v, %v", p, result, err)
	}
	reader := func() *dataset.Reader {
		reader, err := process.NewReader()
		assert.NoError(b, err)
		return reader
	}
	recorded, err := analysis.Run(reader(), analysis.Options{Text: process.Strings().Text})
	assert.NoError(b, err)
	modeled := map[int64]uint64{} // reserved bytes after an event
	tuned, err := tune.Run(context.Background(), reader(), tune.Options{
		Policies: []bfc.Policy{p}, Text: process.Strings().Text,
		Observe: func(seq int64, reserved uint64) { modeled[seq] = reserved },
	})
	assert.NoError(b, err)
	d, m := &recorded.Devices[0], &tuned.Outcomes[0]
	events, err := process.ReadAll()
	assert.NoError(b, err)
	o = agreement{
		hook: most{d.MaxT, d.MaxC, d.MaxR}, model: most{m.PeakT, m.PeakC, m.PeakR},
		refused: m.Refused, steady: m.SteadyR, end: d.Final.R,
		late:  lateTrim(events, p.Trim, process.Strings().Text),
		short: slices.ContainsFunc(events, func(e trace.Event) bool { return e.Kind == trace.KindShortage }),
	}
	o.further, o.captured = furtherAddresses(events, p.Preset)
	o.apart, o.how = firstApart(events, modeled)
	return o
}

// firstApart returns the first request or free after which the recording has other bytes reserved than
// the model, and describes it; -1 if there is none.
func firstApart(events []trace.Event, modeled map[int64]uint64) (seq int64, how string) {
	live := trace.NewLive()
	underWay := false // a request has mapped or unmapped something, and goes on; the model does it all at its end
	for i := range events {
		e := &events[i]
		live.Add(e)
		switch e.Kind {
		case trace.KindMap, trace.KindMapFailed, trace.KindUnmap, trace.KindGrowFailed, trace.KindReclaim:
			underWay = true
		case trace.KindFreeDone:
			if underWay {
				continue
			}
		case trace.KindAlloc, trace.KindOOM, trace.KindFree, trace.KindIteration:
			underWay = false
		}
		if reserved, ok := modeled[e.Seq]; ok && int64(reserved) != live.Totals().Reserved {
			return e.Seq, fmt.Sprintf("%v of %d bytes: the hook has %d bytes reserved and the model %d", e.Kind, e.Requested, live.Totals().Reserved, reserved)
		}
	}
	return -1, ""
}

// lateTrim returns the first request or free behind an idle time that a trim may have come too late for, see agreement.
func lateTrim(events []trace.Event, trim bfc.Trim, text func(int32) string) int64 {
	if trim.When != bfc.TrimIdle {
		return -1
	}
	idle := trim.Idle.Nanoseconds()
	live := trace.NewLive()
	var last int64
	known := false // the hook has unmapped since, before anything else happened after the idle time
	for i := range events {
		e := &events[i]
		paused := live.IsPaused(e.Arena)
		live.Add(e)
		switch passed := e.Time - last; {
		case (e.Kind == trace.KindAlloc || e.Kind == trace.KindFree) && !paused:
			if last > 0 && !known && idle <= passed && passed < restFor(trim).Nanoseconds()*3/4 {
				return e.Seq
			}
			last, known = e.Time, false
		case passed < idle:
		case e.Kind == trace.KindReclaim && text(e.Context) == "idle":
			known = true
		case !known && last > 0 && passed < restFor(trim).Nanoseconds()*3/4:
			return e.Seq
		}
	}
	return -1
}

// restFor is how long a job rests for a trim when idle: the hook has looked by then even on a machine that is busy.
func restFor(trim bfc.Trim) time.Duration { return 4 * trim.Idle }

// furtherAddresses returns the first event that maps anything outside of what its arena reserved first, by which the driver served
// a request, or behind which the model is not exact; -1 if there is none. captured is as in agreement.
func furtherAddresses(events []trace.Event, preset bfc.Preset) (further int64, captured bool) {
	arenas := map[int32]*trace.Event{}
	captures := 0
	further = -1
	for i := range events {
		e := &events[i]
		behind := false
		switch e.Kind {
		case trace.KindArena:
			arenas[e.Arena] = e
		case trace.KindExternalAlloc:
			behind = true
		case trace.KindCaptureBegin:
			captures++
			behind = preset == bfc.Compact
			captured = captured || behind
		case trace.KindCaptureEnd:
			captures--
		case trace.KindReclaim:
			behind = captures > 0
			captured = captured || behind
		case trace.KindMap:
			a := arenas[e.Arena]
			behind = preset == bfc.Compact && e.AheadOfNeed() || a != nil && (e.Addr < a.Addr || e.Addr >= a.Addr+a.Provided)
		}
		if behind && further < 0 {
			further = e.Seq
		}
	}
	return further, captured
}

// agrees demands that the model, given the requests of a job, comes to what the hook did.
// The hook trims beside the job, and the model as if at once: so the job waits for the trimmer after each iteration, or
// for longer than it takes the hook to find out that the job is idle.
func (b *bench) agrees(memory string, p bfc.Policy, kind string, seed uint64) {
	b.Helper()
	rest := int64(1)
	if p.Trim.When == bfc.TrimIdle {
		rest = restFor(p.Trim).Milliseconds()
	}
	b.served("run", memory, p, kind, fmt.Sprint(seed), fmt.Sprint(rest))
	o := b.replayed("run", p)
	if o.late >= 0 {
		b.Logf("%s %d: compared up to event %d, since the machine was busy then", kind, seed, o.late)
	}
	assert.That(b, o.agrees(), "%s %d on %s under %v: %+v", kind, seed, memory, p, o)
}

// TestModelOfAComb: 77 GiB are live at most. What the second iteration needs lies behind all else, in memory of blocks that are
// gone; compact has it moved there.
func TestModelOfAComb(t *testing.T) {
	t.Parallel()
	b := newServedBench(t)
	p := bfc.Compact.Policy()
	p.Trim.When = bfc.TrimIteration
	b.agrees("140GiB", p, "stash", 0)
	const gib = 1 << 30
	o := b.replayed("run", p)
	assert.That(t, o.hook.requested == 77*gib && o.hook.reserved <= 77*gib*102/100, "at most %v, want 77 GiB requested and 2 %% more reserved", o.hook)
}

// TestModelTrimsHandles: maps of 8 GiB and more are of larger handles than a page, of which a trim unmaps those
// that lie as a whole in what an iteration did not use.
func TestModelTrimsHandles(t *testing.T) {
	t.Parallel()
	p := bfc.Classic.Policy()
	p.Trim.When = bfc.TrimIteration
	newServedBench(t).agrees("24GiB", p, "random", 129)
}

// TestModelOfPages: jobs under compact, where a decision of the model that differs from the hook's moves other pages.
func TestModelOfPages(t *testing.T) {
	iteration := bfc.Trim{When: bfc.TrimIteration}
	for _, c := range []struct {
		name, memory string
		seed         uint64
		more         bfc.Policy
	}{
		{"a pending block is freed during a request", "12GiB", 1018, bfc.Policy{}},
		{"less than a page of the device is left", "6GiB", 20426, bfc.Policy{}},
		{"frames of a trim", "24GiB", 21215, bfc.Policy{Trim: iteration}},
		{"pages that are larger than a slice of a trim", "24GiB", 2, bfc.Policy{Handle: 64 << 20, Trim: iteration}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.more.Preset, c.more.Headroom = bfc.Compact, bfc.DefaultHeadroom
			newServedBench(t).agrees(c.memory, c.more, "direct", c.seed)
		})
	}
}

// varied is a policy with other handles, headroom and limit, as chosen at random.
func varied(p bfc.Policy, kind string, choice *rand.Rand) bfc.Policy {
	p.Handle = []uint64{0, 0, 0, 2 << 20, 8 << 20, 64 << 20}[choice.IntN(6)]
	p.Headroom = []uint64{p.Headroom, p.Headroom, 0, 64 << 20, 5 << 30}[choice.IntN(5)]
	if kind != "comb" { // all its requests can be larger
		p.Limit = []uint64{0, 0, 0, 3 << 30, 5<<30 + 12345, 20 << 30}[choice.IntN(6)]
	}
	return p
}

// randomJobs records random jobs, as many as n unless a flag says otherwise, and compares each with the model. draw gets the number of a
// job and one of all policies, and returns the job's own, its kind and the memory of its card. The tests have different streams of choices.
func randomJobs(t *testing.T, n int, stream uint64, draw func(i int, p bfc.Policy, choice *rand.Rand) (policy bfc.Policy, kind, memory string)) {
	b := newServedBench(t)
	first, jobs := firstSeed(t, n)
	policies := allPolicies()
	for i := range jobs {
		seed := first + uint64(i)
		choice := rand.New(rand.NewPCG(seed, stream))
		p, kind, memory := draw(i, policies[choice.IntN(len(policies))], choice)
		t.Run(fmt.Sprint(kind, seed), func(t *testing.T) { b.part(t).agrees(memory, p, kind, seed) })
	}
}

// TestModelAgrees records combs and random jobs under all policies, on cards that have room for them
// and on cards that have not, so that pages wander and requests are refused. The model has as many bytes
// reserved as the hook after each request and free, under the policy that a job was recorded with.
func TestModelAgrees(t *testing.T) {
	randomJobs(t, 8, 0, func(i int, p bfc.Policy, choice *rand.Rand) (bfc.Policy, string, string) {
		kind, memory := "comb", "140GiB"
		if i%4 == 0 {
			p = bfc.Compact.Policy()
		}
		switch i % 4 {
		case 1:
			kind, memory = "random", []string{"140GiB", "40GiB", "24GiB"}[choice.IntN(3)]
		case 2, 3:
			kind, memory = []string{"direct", "mixed"}[i%4-2], []string{"140GiB", "24GiB", "12GiB", "6GiB"}[choice.IntN(4)]
		}
		return varied(p, kind, choice), kind, memory
	})
}

// TestModelAgreesApart records jobs whose tags are paused and resumed, and whose streams are captured, as TestModelAgrees does others.
func TestModelAgreesApart(t *testing.T) {
	randomJobs(t, 6, 1, func(i int, p bfc.Policy, choice *rand.Rand) (bfc.Policy, string, string) {
		if choice.IntN(4) == 0 {
			p = bfc.Compact.Policy()
		}
		kind := []string{"tagged", "captured", "apart"}[i%3]
		memory := []string{"140GiB", "24GiB", "12GiB", "6GiB"}[choice.IntN(4)]
		return varied(p, kind, choice), kind, memory
	})
}

// TestModelAgreesIdle records jobs that rest now and then, under policies that unmap free memory when they do. The hook finds out at
// intervals, and a busy machine may keep a job from running for as long as an idle job: agreement has what is compared then.
func TestModelAgreesIdle(t *testing.T) {
	randomJobs(t, 4, 2, func(i int, p bfc.Policy, choice *rand.Rand) (bfc.Policy, string, string) {
		kind := []string{"tagged", "apart", "mixed", "direct"}[i%4]
		memory := []string{"140GiB", "24GiB", "12GiB"}[choice.IntN(3)]
		p = varied(p, kind, choice)
		p.Trim = bfc.Trim{When: bfc.TrimIdle, Idle: 300 * time.Millisecond}
		return p, kind, memory
	})
}
