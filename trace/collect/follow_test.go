package collect_test

import (
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/collect"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/spool"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// alive keeps the live blocks of what it is shown.
type alive struct {
	blocks map[int64]int64
	texts  map[int64]string
	next   int64 // seq wanted; -1 for any, while what is in force is restated
	first  int64
	begins int
	t      *testing.T
}

func (a *alive) begin(firstSeq int64) {
	a.blocks, a.texts, a.first, a.next = map[int64]int64{}, map[int64]string{}, firstSeq, firstSeq
	a.begins++
}

func (a *alive) apply(e *trace.Event, text string) {
	switch e.Kind {
	case trace.KindAlloc:
		a.blocks[e.Addr], a.texts[e.Addr] = e.Requested, text
	case trace.KindFree:
		delete(a.blocks, e.Addr)
		delete(a.texts, e.Addr)
	}
}

func (a *alive) visit(text func(int32) string) func(*trace.Event) error {
	return func(e *trace.Event) error {
		if e.Seq >= a.first {
			if e.Seq != a.next {
				a.t.Errorf("seq %d, want %d", e.Seq, a.next)
			}
			a.next = e.Seq + 1
		}
		a.apply(e, text(e.Context))
		return nil
	}
}

// listing is every file below dir with its size and time.
func listing(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil {
			files[path] = info.Mode().String() + info.ModTime().String()
		}
		return err
	})
	assert.NoError(t, err)
	return files
}

// A recording is followed while it goes on, with polls of the collector between, which completes
// parts and takes segments away under the follower: after every poll it knows what is live, and what
// it looked at is as it was.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	spoolDir := filepath.Join(dir, spool.Name)
	hook := tracetest.NewSpool(t, spoolDir, 4711, 0)
	info := &dataset.Info{ID: tracetest.RunID, ClockBase: 1_000_000}
	assert.NoError(t, dataset.WriteInfo(dir, info))
	collector, err := collect.New(dir, collect.Options{RunID: info.ID, ClockBase: info.ClockBase, Writer: dataset.WriterOptions{PartEvents: 30_000}})
	assert.NoError(t, err)
	follower, err := collect.Follow(dir)
	assert.NoError(t, err)
	defer follower.Close()
	events, texts := tracetest.Training(400_000)
	truth := &alive{t: t}
	truth.begin(0)
	seen := &alive{t: t}
	look := func(at int) {
		before := listing(t, dir)
		processes, err := follower.Processes()
		assert.NoError(t, err)
		for _, p := range processes {
			assert.NoError(t, p.Poll(seen.begin, func(e *trace.Event) error { return seen.visit(p.Strings().Text)(e) }))
			assert.That(t, p.Name == "rank0" && p.PID == 4711, "process %s, pid %d", p.Name, p.PID)
		}
		assert.That(t, maps.Equal(before, listing(t, dir)), "following changed files")
		if seen.next != int64(at) || !maps.Equal(seen.blocks, truth.blocks) || !maps.Equal(seen.texts, truth.texts) {
			t.Fatalf("at %d: seen up to %d, %d blocks live, want %d", at, seen.next, len(seen.blocks), len(truth.blocks))
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	look(0)
	for at := 0; at < len(events); {
		for n := random.IntN(30_000); n > 0 && at < len(events); n-- {
			e := events[at]
			e.Time += info.ClockBase
			hook.Append(e, texts[e.Context])
			truth.apply(&e, texts[e.Context])
			at++
		}
		if random.IntN(3) > 0 {
			must(t, collector.Poll)
		}
		if random.IntN(5) == 0 { // now and then it falls behind
			look(at)
		}
	}
	hook.SetState(tracetest.Closed)
	hook.Close()
	look(len(events))
	if over, err := follower.Ended(); over || err != nil {
		t.Errorf("ended %v, %v while the spool is there", over, err)
	}
	if left, err := follower.Abandoned(); left || err != nil {
		t.Errorf("abandoned %v, %v while it is collected", left, err)
	}
	must(t, collector.Finish)
	look(len(events))
	if over, err := follower.Ended(); !over || err != nil {
		t.Errorf("ended %v, %v without a spool", over, err)
	}
	if left, err := follower.Abandoned(); left || err != nil {
		t.Errorf("abandoned %v, %v when it is over", left, err)
	}
	processes, _ := follower.Processes()
	assert.That(t, len(processes) == 1 && processes[0].Ended(), "%d processes, the first ended: %v", len(processes), processes[0].Ended())
	assert.That(t, seen.begins >= 3, "began %d times: the collector never took away what was read next", seen.begins)

	late, err := collect.Follow(dir) // joined when all is over
	assert.NoError(t, err)
	follower, seen = late, &alive{t: t}
	look(len(events))
}

func TestFollowNothing(t *testing.T) {
	_, err := collect.Follow(t.TempDir())
	assert.That(t, errors.Is(err, trace.ErrEmpty), "a directory without a run: %v", err)
}

// A run may be taken away after its parts were listed: the process then has no events, and is over.
func TestFollowTakenAway(t *testing.T) {
	dir := t.TempDir()
	assert.NoError(t, os.CopyFS(dir, os.DirFS("../../samples/resnet50")))
	follower, err := collect.Follow(dir)
	assert.NoError(t, err)
	defer follower.Close()
	processes, err := follower.Processes()
	assert.Must(t, err == nil && len(processes) == 1, "%d processes, %v", len(processes), err)
	begins, events := 0, 0
	err = processes[0].Poll(func(int64) { // it is called before the part is opened
		if begins++; begins == 1 {
			if err := os.Remove(filepath.Join(dir, "pid9762-0000.parquet")); err != nil {
				t.Error(err)
			}
		}
	}, func(*trace.Event) error { events++; return nil })
	assert.That(t, err == nil && begins == 2 && events == 0 && processes[0].Ended(),
		"%v after %d begins and %d events, ended %v", err, begins, events, processes[0].Ended())
}
