package snapshot

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/memprof/memprof/analysis/torchalloc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// torchJob is a job on one device as torch's model has it, with the trace that torch would record.
type torchJob struct {
	torchalloc.Device
	a       *torchalloc.Allocator
	entries []any
	calls   []any // of the operation at hand
	live    []*torchalloc.Block
	freed   []int64 // sizes of blocks, in the order of their frees
}

// upwards is a driver that places each segment behind the last one, as the model of the driver does not.
type upwards struct {
	*torchalloc.Driver
	next, room uint64
}

func (u *upwards) Alloc(bytes uint64) (addr uint64, ok bool) {
	if bytes > u.room {
		return 0, false
	}
	addr = u.next
	u.next, u.room = u.next+bytes, u.room-bytes
	return addr, true
}

func (u *upwards) Free(_, bytes uint64) { u.room += bytes }

func (j *torchJob) Alloc(bytes uint64) (uint64, bool) {
	addr, ok := j.Device.Alloc(bytes)
	return addr, j.called(ok, "segment_alloc", addr, bytes)
}

func (j *torchJob) Free(addr, bytes uint64) {
	j.Device.Free(addr, bytes)
	j.called(true, "segment_free", addr, bytes)
}

func (j *torchJob) Map(addr, bytes uint64) bool {
	return j.called(j.Device.Map(addr, bytes), "segment_map", addr, bytes)
}

func (j *torchJob) Unmap(addr, bytes uint64) {
	j.Device.Unmap(addr, bytes)
	j.called(true, "segment_unmap", addr, bytes)
}

func (j *torchJob) called(ok bool, action string, addr, bytes uint64) bool {
	if ok {
		j.calls = append(j.calls, act(action, int(addr), int(bytes)))
	}
	return ok
}

// do runs an operation and notes what became of pending blocks and of segments in it.
func (j *torchJob) do(operation func()) {
	before := j.a.Pending()
	var completed []pairs // should they be: then they merge with others
	for _, b := range before {
		completed = append(completed, act("free_completed", int(b.Addr()), int(b.Requested())))
	}
	operation()
	after := j.a.Pending()
	for at, b := range before {
		if !slices.Contains(after, b) {
			j.entries = append(j.entries, completed[at])
		}
	}
	j.entries, j.calls = append(j.entries, j.calls...), nil
}

func (j *torchJob) malloc(n uint64) {
	var b *torchalloc.Block
	var err error
	j.do(func() { b, err = j.a.Malloc(n, 0) })
	if err != nil {
		return
	}
	j.live = append(j.live, b)
	j.entries = append(j.entries, act("alloc", int(b.Addr()), int(n)))
}

func (j *torchJob) free(at int, shared bool) {
	b := j.live[at]
	j.live = slices.Delete(j.live, at, at+1)
	addr, n := int(b.Addr()), int(b.Requested())
	j.entries = append(j.entries, act("free_requested", addr, n))
	j.freed = append(j.freed, int64(b.Size()))
	if shared {
		j.a.RecordStream(b, 1)
	}
	if !j.a.Free(b) {
		j.entries = append(j.entries, act("free_completed", addr, n))
	}
}

// segments are those of a snapshot: of expandable ones each mapped run is one.
func (j *torchJob) segments(device int) []any {
	var all []any
	for _, s := range j.a.Segments() {
		var run []any
		from, size := 0, 0
		end := func() {
			if size > 0 {
				made := testSegment(device, from, size, run, "is_expandable", s.Expandable)
				if s.Small {
					made[9] = "small"
				}
				all = append(all, made)
			}
			run, size = nil, 0
		}
		for _, b := range s.Blocks {
			if b.State() == torchalloc.Unmapped {
				end()
				continue
			}
			if size == 0 {
				from = int(b.Addr())
			}
			size += int(b.Size())
			state := map[torchalloc.BlockState]string{torchalloc.Free: "inactive", torchalloc.Allocated: "active_allocated", torchalloc.Waiting: "active_pending_free"}[b.State()]
			run = append(run, pairs{"address", int(b.Addr()), "size", int(b.Size()), "requested_size", int(b.Requested()), "state", state})
		}
		end()
	}
	return all
}

// Whatever a job does, under any settings, on two devices, and wherever a ring was cut off: nothing
// contradicts, and at the end every block and all memory are torch's.
func TestRandomJobs(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		settings := torchalloc.DefaultSettings()
		settings.Expandable = rapid.Bool().Draw(r, "expandable")
		maxSplit := -1
		if rapid.Bool().Draw(r, "split") && !settings.Expandable {
			settings.MaxSplit, maxSplit = 24<<20, 24<<20
		}
		var traces, segments []any
		jobs := make([]*torchJob, 2)
		longest := 0
		for device := range jobs {
			j := &torchJob{Device: torchalloc.NewDriver(200 << 20)}
			if rapid.Bool().Draw(r, "upwards") {
				j.Device = &upwards{Driver: torchalloc.NewDriver(200 << 20), next: 0x7f8000000000, room: 200 << 20}
			}
			j.a = torchalloc.NewAllocator(torchalloc.AllocatorOptions{Settings: settings, Version: torchalloc.Torch211, Total: 200 << 20}, j)
			for range rapid.IntRange(1, 60).Draw(r, "operations") {
				switch kind := rapid.IntRange(0, 9).Draw(r, "kind"); {
				case kind == 0:
					begin := len(j.entries)
					j.do(func() { j.a.EmptyCache() })
					for at := begin; at < len(j.entries); at++ {
						j.entries[at] = append(j.entries[at].(pairs), "frames", []any{pairs{"name", "empty_cache", "filename", "a.py", "line", 3}})
					}
				case kind == 1:
					j.do(func() {
						for _, b := range j.a.Pending() {
							j.a.Complete(b)
						}
					})
				case kind < 5 && len(j.live) > 0:
					j.free(rapid.IntRange(0, len(j.live)-1).Draw(r, "block"), rapid.IntRange(0, 3).Draw(r, "shared") == 0)
				default:
					j.malloc(rapid.Uint64Range(1, 1<<rapid.IntRange(8, 26).Draw(r, "log")).Draw(r, "bytes"))
				}
			}
			jobs[device], longest = j, max(longest, len(j.entries))
			traces = append(traces, j.entries)
			segments = append(segments, j.segments(device)...)
		}
		path := written(t, pairs{
			"segments", segments, "device_traces", traces,
			"allocator_settings", pairs{"expandable_segments", settings.Expandable, "max_split_size", maxSplit},
		})
		i := newTestImporter(t.TempDir(), path, int64(rapid.IntRange(0, longest).Draw(r, "cut")))
		if err := i.survey(); err != nil {
			if len(segments) > 0 {
				r.Fatal(err)
			}
			return
		}
		made, err := i.write()
		assert.NoError(r, err)
		assert.NoError(r, dataset.WriteInfo(i.dir, i.info))
		run, err := dataset.Open(i.dir)
		assert.NoError(r, err)
		for at, p := range made {
			events := eventsOf(t, run, at)
			jobs[p.Device].checkSizes(r, events, int(i.file.skip))
			recorded, replayed := ownPeaks(r, run, at, settings)
			assert.Equal(r, replayed, recorded)
			followed(r, run, at, maxSplit)
			memory, blocks := heldAtEnd(t, events)
			wantMemory, wantBlocks := jobs[p.Device].held()
			if diff := cmp.Diff(wantMemory, memory, cmp.AllowUnexported(span{})); diff != "" || p.Odd != 0 {
				r.Fatalf("%+v: memory:\n%s", p, diff)
			}
			if diff := cmp.Diff(wantBlocks, blocks, cmp.AllowUnexported(span{})); diff != "" {
				r.Fatalf("%+v: blocks:\n%s", p, diff)
			}
		}
	})
}

// followed has a process followed by the model, from the blocks on that were there before its history.
func followed(t rapid.TB, run *dataset.Run, process int, maxSplit int) {
	p := run.Processes[process]
	f := torchalloc.NewFollower(torchalloc.Torch211, p.Strings().Text)
	f.Sized, f.Opening = true, run.Info.ImportOf(p.Name).Opening
	if maxSplit > 0 {
		f.Conf = "max_split_size_mb:24"
	}
	last := int64(0)
	err := p.Each(func(e *trace.Event) error {
		last = e.Seq
		_, err := f.Add(e)
		return err
	})
	if maxSplit > 0 && last == f.Opening && errors.Is(err, torchalloc.ErrNotModeled) {
		return // the cut is between an oversize segment and its request, which takes no such block that is free
	}
	assert.NoError(t, err)
	assert.NoError(t, f.End(last))
}

// ownPeaks is the greatest reserved memory of a process, as recorded and by a replay under the settings that it had.
func ownPeaks(t rapid.TB, run *dataset.Run, process int, settings torchalloc.Settings) (recorded, replayed int64) {
	p := run.Processes[process]
	reader, err := p.NewReader()
	assert.NoError(t, err)
	defer reader.Close()
	opening, now := run.Info.ImportOf(p.Name).Opening, int64(0)
	events, err := trace.Follow(reader, opening, func(e *trace.Event) {
		switch e.Kind {
		case trace.KindMap:
			now += e.Provided
		case trace.KindUnmap:
			now -= e.Provided
		}
		recorded = max(recorded, now)
	})
	assert.NoError(t, err)
	outcomes, err := torchalloc.Run(events.Source(), torchalloc.Options{
		Settings: []torchalloc.Settings{settings}, Version: torchalloc.Torch211, Text: p.Strings().Text, Recorded: []bool{true}, Opening: opening,
	})
	assert.NoError(t, err)
	for _, reserved := range outcomes[0].Reserved {
		replayed = max(replayed, reserved)
	}
	return recorded, replayed
}

// A replay under a snapshot's own settings takes what was recorded, also where the snapshot has emptied caches, released
// pools, or lacks its beginning.
func TestOwnSettings(t *testing.T) {
	for name, want := range map[string]int64{
		"native": 140 << 20, "expandable": 146 << 20, "pools-native": 118 << 20, "pools-expandable": 108 << 20,
		"pools-native-cut": 120 << 20, "pools-expandable-cut": 130 << 20,
	} {
		run, _ := imported(t, pathOf(name))
		settings := torchalloc.DefaultSettings()
		settings.Expandable = strings.Contains(name, "expandable")
		recorded, replayed := ownPeaks(t, run, 0, settings)
		assert.That(t, recorded == want && replayed == want, "%s: %d recorded, %d replayed, want %d", name, recorded, replayed, want)
	}
}

// checkSizes compares the sizes of blocks that were freed. Of those that were there before a cut
// ring, up to 1 MiB may be missing where nothing shows their end.
func (j *torchJob) checkSizes(t *rapid.T, events []trace.Event, cut int) {
	frees := 0
	for _, e := range j.entries[min(cut, len(j.entries)):] {
		if e.(pairs)[1] == "free_requested" {
			frees++
		}
	}
	for _, e := range slices.Backward(events) {
		if e.Kind != trace.KindFree || frees == 0 {
			continue
		}
		frees--
		want := j.freed[len(j.freed)-1]
		j.freed = j.freed[:len(j.freed)-1]
		lacks := want - e.Provided
		assert.Must(t, lacks == 0 || cut != 0 && lacks >= 0 && lacks <= smallRequest, "event %d: a free of %d bytes, want %d", e.Seq, e.Provided, want)
	}
	assert.Must(t, frees <= 0, "%d frees are missing", frees)
}

// held is what the job holds at its end, as heldAtEnd says it.
func (j *torchJob) held() (memory, blocks []span) {
	for _, s := range j.a.Segments() {
		for _, b := range s.Blocks {
			if b.State() != torchalloc.Unmapped {
				memory = append(memory, span{addr: int64(b.Addr()), size: int64(b.Size())})
			}
			if state := b.State(); state == torchalloc.Allocated || state == torchalloc.Waiting {
				blocks = append(blocks, span{int64(b.Addr()), int64(b.Size()), int64(b.Requested()), map[bool]int64{true: 1, false: 2}[state == torchalloc.Allocated]})
			}
		}
	}
	return joined(memory), sorted(blocks)
}

func newTestImporter(dir, path string, skip int64) *importer {
	return &importer{dir: dir, info: &dataset.Info{ID: dataset.NewRunID()}, file: &file{path, skip}, rank: -1, world: -1, first: 1 << 62, stacks: newStacks(), contexts: mostContexts}
}
