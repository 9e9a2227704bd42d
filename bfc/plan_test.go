package bfc

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// planJob is a job whose blocks have names.
type planJob struct {
	*Allocator
	memory *mapLog
	t      *testing.T
	blocks map[string][]Block // those of a name, the oldest first
	base   uint64
}

func newPlanJob(t *testing.T, options Options, device DeviceOptions) *planJob {
	options.Growth, options.Split, options.Placement = Needed, SplitAlways, PlacementPlanned
	if options.Limit == 0 {
		options.Limit = gib
	}
	options.Trim.When = TrimIteration
	a, memory := newMapped(t, options, device)
	return &planJob{Allocator: a, memory: memory, t: t, blocks: map[string][]Block{}}
}

// run does the steps of an iteration: "a=4" asks for 4 MiB, and "-a" frees the oldest a. It
// returns where each block came to be, in MiB, and leaves the end of the iteration to the caller.
func (j *planJob) run(steps string) (places []string) {
	j.t.Helper()
	for _, step := range strings.Fields(steps) {
		if name, ok := strings.CutPrefix(step, "-"); ok {
			mustFree(j.t, j.Allocator, j.blocks[name][0].Addr)
			j.blocks[name] = j.blocks[name][1:]
			continue
		}
		name, text, _ := strings.Cut(step, "=")
		size, err := strconv.ParseFloat(text, 64)
		if err != nil {
			j.t.Fatal(err)
		}
		block := mustAlloc(j.t, j.Allocator, uint64(size*mib))
		if j.base == 0 {
			j.base = block.Addr
		}
		j.blocks[name] = append(j.blocks[name], block)
		places = append(places, fmt.Sprintf("%s@%v", name, float64(block.Addr-j.base)/mib))
	}
	return places
}

// end ends the iteration, and trims.
func (j *planJob) end() {
	j.t.Helper()
	j.EndIteration()
	j.Trim()
	if j.Stats().Reserved != j.memory.used {
		j.t.Errorf("%d reserved, the device says %d", j.Stats().Reserved, j.memory.used)
	}
}

// expect runs an iteration and compares its places, and what is reserved behind it in MiB.
func (j *planJob) expect(steps, places string, reserved uint64) {
	j.t.Helper()
	got := strings.Join(j.run(steps), " ")
	j.end()
	if got != places || j.Stats().Reserved != reserved*mib {
		j.t.Errorf("%s: at %s with %d MiB reserved, want %s with %d", steps, got, j.Stats().Reserved/mib, places, reserved)
	}
}

// Best fit puts c where a was, and d finds no room. With the lifetimes known, what does not live
// together shares its place; once a plan is made, the rest goes back at once.
func TestPlanOverlays(t *testing.T) {
	j := newPlanJob(t, Options{}, DeviceOptions{})
	const steps = "a=6 b=1 -a c=2 d=6 -b -c -d"
	j.expect(steps, "a@0 b@6 c@0 d@7", 10)
	j.expect(steps, "a@0 b@6 c@0 d@7", 10)
	if got := j.Stats().PeakReserved; got != 14*mib {
		t.Errorf("a peak of %d MiB", got/mib)
	}
	for range 4 {
		j.memory.calls = nil
		j.expect(steps, "a@0 b@8 c@6 d@0", 10)
		if len(j.memory.calls) > 0 {
			t.Errorf("a plan that holds has the memory do %v", j.memory.calls)
		}
	}
	if j.planner.made != 1 {
		t.Errorf("%d plans", j.planner.made)
	}
}

// A block that is asked for before its like is freed has two places in turn, and others have
// the one that it is not at.
func TestPlanOfTwoPlaces(t *testing.T) {
	j := newPlanJob(t, Options{}, DeviceOptions{})
	j.run("keep=2 x=4")
	j.run("t=2 -t")
	j.end()
	const steps = "x=4 -x t=3 -t"
	j.run(steps)
	j.end()
	if got, want := j.run(steps), []string{"x@2", "t@6"}; !cmp.Equal(got, want) {
		t.Errorf("at %v, want %v", got, want)
	}
	j.end()
	for range 2 {
		j.expect(steps, "x@6 t@2", 10)
		j.expect(steps, "x@2 t@6", 10)
	}
}

// In the iteration that a plan begins with, x of the one before is where best fit had it. What
// should be there goes elsewhere, once.
func TestPlanBegins(t *testing.T) {
	j := newPlanJob(t, Options{}, DeviceOptions{})
	j.expect("s=2 x=2 -s", "s@0 x@2", 4)
	const steps = "big=8 -x -big s=2 x=2 -s"
	for range 3 { // the first of all is too short to tell anything, and the next try is behind the fourth
		j.expect(steps, "big@4 s@0 x@2", 12)
	}
	j.expect(steps, "big@4 s@0 x@8", 10) // x of the iteration before is at 2 until it is freed
	for range 3 {
		j.expect(steps, "big@0 s@0 x@8", 10)
	}
}

// While a plan begins, what it will use is free for growth to take: c of the iteration before is
// where b is to be, so b goes behind the last region, with memory of the rest.
func TestPlanBeginsWithinThePeak(t *testing.T) {
	j := newPlanJob(t, Options{}, DeviceOptions{})
	j.expect("a=2 b=4 -b c=2", "a@0 b@2 c@2", 6)
	const steps = "-a a=2 b=4 -b -c c=2"
	j.expect(steps, "a@0 b@4 c@2", 8)
	j.expect(steps, "a@4 b@6 c@6", 8)
	j.expect(steps, "a@4 b@0 c@6", 8)
	if got := j.Stats().PeakReserved; got != 8*mib {
		t.Errorf("a peak of %d MiB", got/mib)
	}
}

// Nothing is mapped ahead of a plan's first iteration, and what was unmapped is of the later ones.
func TestNothingAheadOfAPlan(t *testing.T) {
	j := newPlanJob(t, Options{}, DeviceOptions{})
	const steps = "a=6 b=1 -a c=2 d=6 -b -c -d"
	for i, reserved := range []uint64{10, 0, 10, 10} {
		j.run(steps)
		if i > 0 {
			j.UnmapFree(gib)
		}
		j.end()
		if got := j.Stats().Reserved / mib; got != reserved {
			t.Errorf("behind iteration %d %d MiB are reserved, want %d", i, got, reserved)
		}
	}
}

// What a plan does not know of is placed by best fit, and what is left out is not waited for.
func TestPlanOfOtherRequests(t *testing.T) {
	j := newPlanJob(t, Options{}, DeviceOptions{})
	const steps = "a=6 b=1 -a c=2 d=6 -b -c -d"
	for range 5 {
		j.run(steps)
		j.end()
	}
	j.expect("a=6 log=0.5 b=1 -a c=2 d=6 -b -c -d -log", "a@0 log@6 b@8 c@9 d@0", 12)
	j.expect(steps, "a@0 b@8 c@6 d@0", 12)
	j.expect("a=6 b=1 -a d=6 -b -d", "a@0 b@8 d@0", 10)
	j.expect(steps, "a@0 b@8 c@6 d@0", 10)
}

// A plan may reach beyond what there is; where that is not to be had, best fit does what it can.
func TestPlanGrows(t *testing.T) {
	for _, limit := range []uint64{64, 16} {
		j := newPlanJob(t, Options{Limit: limit * mib}, DeviceOptions{})
		const steps = "a=2 b=6 -a c=4 -b d=8 -c -d"
		for range 6 {
			j.run(steps)
			j.end()
		}
		if got := j.Stats().Reserved / mib; got > min(limit, 14) {
			t.Errorf("limit %d MiB: %d reserved", limit, got)
		}
	}
}

// A job that keeps a block of every iteration: best fit places those, and the plan holds.
func TestPlanOfBlocksThatStay(t *testing.T) {
	j := newPlanJob(t, Options{}, DeviceOptions{})
	const steps = "a=4 kept=2 -a"
	for i, places := range []string{"a@0 kept@4", "a@0 kept@6", "a@0 kept@8", "a@0 kept@10", "a@0 kept@12"} {
		j.expect(steps, places, uint64(6+2*i))
	}
	if j.planner.made != 1 {
		t.Errorf("%d plans", j.planner.made)
	}
}

// Where growth does not lengthen a region, a plan has the room that there is.
func TestPlanWithinRegions(t *testing.T) {
	a := mustNew(t, Options{Limit: 8 * mib, Growth: None, Split: SplitAlways, Placement: PlacementPlanned}, NewDevice(DeviceOptions{VMM: true, Granularity: 2 * mib}))
	mustFree(t, a, mustAlloc(t, a, 1).Addr)
	a.planner.position, a.planner.missed, a.ended = 10, [2]bool{}, 1
	a.makePlan([]lifetime{{size: 6 * mib, from: 0, to: 9, end: endsSame}, {size: 3 * mib, from: 1, to: 8, end: endsSame}})
	base := a.regions[0].addr
	want := []planned{{size: 6 * mib, places: [2]uint64{base, base}, first: base}, {size: 3 * mib, places: [2]uint64{noPlace, noPlace}, first: noPlace}}
	if diff := cmp.Diff(want, a.planner.plan.requests, cmp.AllowUnexported(planned{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	mustAlloc(t, a, 6*mib)
	if _, ok := a.Alloc(3 * mib); ok || a.planner.missed[0] {
		t.Errorf("3 MiB where 2 are left: %v, missed %v", ok, a.planner.missed[0])
	}
	if got := mustAlloc(t, a, mib).Addr - base; got != 6*mib || !a.planner.missed[0] {
		t.Errorf("what no plan has is at %d MiB, missed %v", got/mib, a.planner.missed[0])
	}
}

// A block in the way of a place that goes on behind the last region: that does not grow for it.
func TestPlanInTheWayOfGrowth(t *testing.T) {
	device := NewDevice(DeviceOptions{VMM: true, Granularity: 2 * mib})
	a := mustNew(t, Options{Limit: gib, Growth: Needed, Split: SplitAlways, Placement: PlacementPlanned}, device)
	mustFree(t, a, mustAlloc(t, a, 16*mib).Addr)
	a.planner.position, a.ended = 10, 1
	a.makePlan([]lifetime{{size: 14 * mib, from: 0, to: 9, end: endsSame}, {size: 6 * mib, from: 1, to: 8, end: endsSame}})
	base := a.regions[0].addr
	if got := a.planner.plan.requests[1].first - base; got != 14*mib {
		t.Fatalf("6 MiB are to be at %d MiB", got/mib)
	}
	below := mustAlloc(t, a, 15*mib)
	mustAlloc(t, a, mib)
	mustFree(t, a, below.Addr)
	if got := mustAlloc(t, a, 6*mib).Addr - base; got != 0 || device.grows != 1 || device.unmaps > 0 {
		t.Errorf("at %d MiB, %d growths, %d taken, want at 0 with one and none", got/mib, device.grows, device.unmaps)
	}
}

// A place that cannot be mapped is missed, and the next iteration is as planned.
func TestPlanIsRefused(t *testing.T) {
	refusals := 0
	j := newPlanJob(t, Options{}, DeviceOptions{RefuseMap: func(int, uint64, uint64) bool {
		refusals--
		return refusals >= 0
	}})
	const steps = "a=6 b=1 -a c=2 d=6 -b -c -d"
	for range 5 {
		j.run(steps)
		j.end()
	}
	j.UnmapFree(gib)
	refusals = 1
	j.expect(steps, "a@0 b@8 c@6 d@0", 10) // best fit asks again
	if !j.planner.missed[1] {
		t.Error("a refusal is no miss")
	}
	j.expect(steps, "a@0 b@8 c@6 d@0", 10)
	if j.planner.missed[1] || j.planner.made != 1 {
		t.Errorf("missed %v, %d plans", j.planner.missed, j.planner.made)
	}
}

// Positions of two iterations have to be counted in 32 bits.
func TestNoPlanOfEndlessIterations(t *testing.T) {
	a := mustNew(t, Options{Limit: gib, Growth: Needed, Placement: PlacementPlanned}, NewDevice(DeviceOptions{VMM: true, Granularity: 2 * mib}))
	for range 4 {
		a.planner.position = maxPositions - 1
		mustFree(t, a, mustAlloc(t, a, 256).Addr)
		if a.planner.position != maxPositions {
			t.Errorf("position %d", a.planner.position)
		}
		a.EndIteration()
	}
	if a.planner.made > 0 {
		t.Errorf("%d plans were made", a.planner.made)
	}
}

func TestNoPlanOfWhatDiffers(t *testing.T) {
	j := newPlanJob(t, Options{}, DeviceOptions{})
	random := rand.New(rand.NewPCG(1, 2))
	for range 8 {
		var steps []string
		for i := range 20 {
			steps = append(steps, fmt.Sprintf("b%d=%d", i, 1+random.IntN(6)), fmt.Sprintf("-b%d", i))
		}
		j.run(strings.Join(steps, " "))
		j.end()
	}
	// Behind iterations 2, 4 and 8, since a look takes its time.
	if j.planner.made > 0 || j.planner.tries != 3 {
		t.Errorf("%d plans were made, in %d tries", j.planner.made, j.planner.tries)
	}
}

func TestNoPlanOfTooMany(t *testing.T) {
	for requests, plans := range map[int]uint32{maxRequests: 1, maxRequests + 1: 0} {
		a := mustNew(t, Options{Limit: gib, Growth: Needed, Placement: PlacementPlanned}, NewDevice(DeviceOptions{VMM: true, Granularity: 2 * mib}))
		for range 3 {
			for range requests {
				mustFree(t, a, mustAlloc(t, a, 256).Addr)
			}
			a.EndIteration()
		}
		if got := a.planner.made; got != plans || len(a.planner.previous) != maxRequests {
			t.Errorf("%d plans of %d requests, want %d; %d are noted", got, requests, plans, len(a.planner.previous))
		}
	}
}

// Around very many blocks that stay a plan would take too long.
func TestNoPlanAroundTooMany(t *testing.T) {
	for stay, plans := range map[int]uint32{64: 1, 17_000: 0} { // 17,000 * 65,536 / 16 are more than 2^26
		a := mustNew(t, Options{Limit: gib, Growth: Needed, Placement: PlacementPlanned}, NewDevice(DeviceOptions{VMM: true, Granularity: 2 * mib}))
		var gaps []Block
		for range stay {
			mustAlloc(t, a, 256)
			gaps = append(gaps, mustAlloc(t, a, 256))
		}
		for _, b := range gaps {
			mustFree(t, a, b.Addr)
		}
		for range 3 {
			for range maxRequests {
				mustFree(t, a, mustAlloc(t, a, 256).Addr)
			}
			a.EndIteration()
		}
		if a.planner.tries == 0 || a.planner.made != plans {
			t.Errorf("%d plans around %d blocks in %d tries", a.planner.made, stay, a.planner.tries)
		}
	}
}

// A plan of very many blocks that are live together would take too long.
func TestNoPlanOfTooManyPairs(t *testing.T) {
	for requests, plans := range map[int]bool{64: true, 11_600: false} { // 11,600 * 11,599 / 2 pairs
		a := mustNew(t, Options{Limit: gib, Growth: Needed, Placement: PlacementPlanned}, NewDevice(DeviceOptions{VMM: true, Granularity: 2 * mib}))
		for range 3 {
			var blocks []Block
			for range requests {
				blocks = append(blocks, mustAlloc(t, a, 256))
			}
			for _, b := range blocks {
				mustFree(t, a, b.Addr)
			}
			a.EndIteration()
		}
		if a.planner.tries == 0 || a.planner.made > 0 != plans {
			t.Errorf("%d plans of %d requests in %d tries", a.planner.made, requests, a.planner.tries)
		}
	}
}

// A job that repeats itself has all its blocks at their places from the plan's first iteration
// on, and asks nothing of the memory behind that.
func TestPlansHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		memory := NewDevice(DeviceOptions{VMM: true, Granularity: 64 << 10})
		a, err := New(Options{Limit: gib, Growth: Needed, Split: SplitAlways, Trim: Trim{When: TrimIteration}, Placement: PlacementPlanned}, memory)
		if err != nil {
			t.Fatal(err)
		}
		// In which order blocks are freed, and whether in the next iteration, is drawn once.
		type request struct {
			size   uint64
			same   int // it is freed behind this many requests of its iteration; or
			next   int // of the next
			within bool
		}
		requests := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) request {
			return request{
				size:   1 + rapid.Uint64Range(0, 1<<rapid.IntRange(8, 20).Draw(t, "order")).Draw(t, "size"),
				same:   rapid.IntRange(1, 10).Draw(t, "later"),
				next:   rapid.IntRange(0, 20).Draw(t, "next"),
				within: rapid.IntRange(0, 3).Draw(t, "within") > 0,
			}
		}), 1, 40).Draw(t, "requests")
		type live struct {
			block Block
			due   int
		}
		var blocks, leaving []live
		free := func(of []live, before int) []live {
			kept := of[:0]
			for _, b := range of {
				if b.due >= before {
					kept = append(kept, b)
				} else if _, err := a.Free(b.block.Addr); err != nil {
					t.Fatal(err)
				}
			}
			return kept
		}
		var places [][]uint64
		for iteration := range 8 {
			var at []uint64
			for i, r := range requests {
				leaving, blocks = free(leaving, i), free(blocks, i)
				block, ok := a.Alloc(r.size)
				if !ok {
					t.Fatalf("no %d bytes", r.size)
				}
				at = append(at, block.Addr)
				if due := i + r.same; r.within && due < len(requests) {
					blocks = append(blocks, live{block, due})
				} else {
					leaving = append(leaving, live{block, len(requests) + min(r.next, len(requests)-1)})
				}
			}
			for i := range leaving {
				leaving[i].due -= len(requests)
			}
			leaving, blocks = free(leaving, 0), free(blocks, len(requests))
			if iteration > 1 && a.planner.missed[0] {
				t.Fatalf("iteration %d was not all placed by the plan", iteration)
			}
			places = append(places, at)
			a.EndIteration()
			if given, mapped := a.Trim(); iteration > 4 && given+mapped > 0 {
				t.Fatalf("behind iteration %d %d bytes were unmapped and %d mapped", iteration, given, mapped)
			}
		}
		for i := 5; i < len(places); i++ {
			if diff := cmp.Diff(places[i-2], places[i]); diff != "" {
				t.Fatalf("iteration %d is elsewhere than two before (-before +it):\n%s", i, diff)
			}
		}
		if a.planner.made != 1 {
			t.Fatalf("%d plans", a.planner.made)
		}
	})
}

// BenchmarkPlan is of the passes of a network over several batches: of 8 requests 1 is kept from
// forward to backward, the others are freed soon.
func BenchmarkPlan(b *testing.B) {
	for _, batches := range []int{1, 8} {
		for requests := 1 << 10; requests <= maxRequests; requests *= 4 {
			b.Run(fmt.Sprintf("batches=%d/requests=%d", batches, requests), func(b *testing.B) {
				a, err := New(Options{Limit: NoLimit, Growth: Needed, Placement: PlacementPlanned}, NewDevice(DeviceOptions{VMM: true, Granularity: 2 << 20}))
				if err != nil {
					b.Fatal(err)
				}
				a.Alloc(1)
				lifetimes := passes(batches, requests/batches/8)
				for range b.N {
					a.planner.position = 2 * uint32(len(lifetimes))
					a.makePlan(lifetimes)
				}

			})
		}
	}
}

// passes are the lifetimes of passes through layers.
func passes(batches, layers int) []lifetime {
	random := rand.New(rand.NewPCG(1, 2))
	var lifetimes []lifetime
	var kept []int
	position := uint32(0)
	request := func() int {
		lifetimes = append(lifetimes, lifetime{size: 256 << random.IntN(16) * uint64(1+random.IntN(4)), from: position, end: endsSame})
		position++
		return len(lifetimes) - 1
	}
	free := func(i int) {
		lifetimes[i].to = position
		position++
	}
	soon := func() {
		first, second := request(), request()
		free(first)
		free(second)
	}
	for range batches {
		for range layers {
			kept = append(kept, request())
			soon()
		}
		for range layers {
			soon()
			grown := request()
			soon()
			free(grown)
			free(kept[len(kept)-1])
			kept = kept[:len(kept)-1]
		}
	}
	return lifetimes
}
