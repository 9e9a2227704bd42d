package collect_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/collect"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/spool"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestMain lets a test start this binary again as a recorded process that stays alive.
func TestMain(m *testing.M) {
	if dir := os.Getenv("TRACE_TEST_LIVE_SPOOL"); dir != "" {
		live(dir)
		return
	}
	os.Exit(m.Run())
}

// live writes two events, says so, waits for a line on stdin and ends in disorder.
func live(dir string) {
	s := tracetest.NewSpool(&testing.B{}, dir, os.Getpid(), 5)
	s.Lock()
	s.Append(trace.Event{Kind: trace.KindAlloc, Requested: 1}, "first")
	s.Claim()
	os.Stdout.WriteString("ready\n")
	bufio.NewReader(os.Stdin).ReadString('\n')
}

// startLive starts a process that does what live does; end lets it end, and waits for that.
func startLive(t *testing.T, spool string) (end func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "TRACE_TEST_LIVE_SPOOL="+spool)
	stdin, err := cmd.StdinPipe()
	assert.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	assert.NoError(t, err)
	assert.NoError(t, cmd.Start())
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the process said %q, %v", line, err)
	}
	return func() {
		t.Helper()
		stdin.Write([]byte("\n"))
		assert.NoError(t, cmd.Wait())
	}
}

// newRun makes a run directory with a spool and a run.json.
func newRun(t testing.TB) (dir, spoolDir string) {
	t.Helper()
	dir = t.TempDir()
	spoolDir = filepath.Join(dir, spool.Name)
	assert.NoError(t, os.Mkdir(spoolDir, 0o700))
	assert.NoError(t, dataset.WriteInfo(dir, &dataset.Info{ID: tracetest.RunID, ClockBase: 1000}))
	return dir, spoolDir
}

func newCollector(t testing.TB, dir string, opt dataset.WriterOptions) *collect.Collector {
	t.Helper()
	c, err := collect.New(dir, collect.Options{RunID: tracetest.RunID, ClockBase: 1000, Writer: opt})
	assert.NoError(t, err)
	return c
}

// recovered completes a recording.
func recovered(t testing.TB, dir string) *collect.Summary {
	t.Helper()
	summary, err := collect.Recover(context.Background(), dir, false)
	assert.NoError(t, err)
	return summary
}

// must ends the test if what a collector does fails.
func must[V any](t testing.TB, do func() (V, error)) {
	t.Helper()
	_, err := do()
	assert.NoError(t, err)
}

// fill spools a training-like trace, on a clock that is finer than a trace's.
func fill(s *tracetest.Spool, events []trace.Event, texts []string) {
	for _, e := range events {
		e.Time += 1000 + 37
		s.Append(e, texts[e.Context])
	}
}

func segments(t testing.TB, s *tracetest.Spool) int {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(s.Dir, "*.seg"))
	assert.NoError(t, err)
	return len(found)
}

// A process that could make its directory and nothing in it is reported.
func TestCollectOfProcessThatCouldNotRecord(t *testing.T) {
	dir, spool := newRun(t)
	for name, problems := range map[string]string{"p4711.100": "", "p4712.200": "cannot record: File too large\n\nno shim\n"} {
		assert.NoError(t, os.Mkdir(filepath.Join(spool, name), 0o700))
		if problems == "" {
			continue
		}
		assert.NoError(t, os.WriteFile(filepath.Join(spool, name, "problems"), []byte(problems), 0o600))
	}
	summary, err := newCollector(t, dir, dataset.WriterOptions{}).Finish()
	assert.NoError(t, err)
	want := []string{"pid4711: it could not start to record", "pid4712: cannot record: File too large", "pid4712: no shim"}
	assert.Diff(t, want, summary.Problems, "problems")
}

func TestCollect(t *testing.T) {
	dir, spool := newRun(t)
	s := tracetest.NewSpool(t, spool, 4711, 3)
	quiet := tracetest.NewSpool(t, spool, 4712, 3) // a child with its parent's rank, and no events
	s.Text("frameworks", "torch 2.11.0")
	s.Problem("no shim")
	events, texts := tracetest.Training(1000)
	fill(s, events[:600], texts)
	c := newCollector(t, dir, dataset.WriterOptions{PartEvents: 400})
	if progress, err := c.PollLive(); !progress || err != nil {
		t.Fatalf("first poll: %v, %v", progress, err)
	}
	got := c.Totals().Events
	assert.That(t, got == 600, "%d events after the first poll, want 600", got)
	if progress, err := c.PollLive(); progress || err != nil {
		t.Fatalf("second poll: %v, %v", progress, err)
	}
	fill(s, events[600:], texts)
	s.SetState(tracetest.Closed)
	quiet.SetState(tracetest.Closed)
	summary, err := c.Finish()
	assert.NoError(t, err)
	want := &collect.Summary{
		Processes: []collect.ProcessSummary{
			{Name: "rank3", Events: 1000, Parts: 3, Ending: dataset.Ending{State: dataset.StateClosed, Problems: []string{"no shim"}}},
			{Name: "rank3-pid4712", Parts: 1, Ending: dataset.Ending{State: dataset.StateClosed}},
		},
		Events: 1000, Problems: []string{"rank3: no shim"},
	}
	assert.Diff(t, want, summary, "summary")
	run, err := dataset.Open(dir)
	assert.NoError(t, err)
	assert.Must(t, len(run.Processes) == 2, "%d processes, want 2", len(run.Processes))
	p := run.Processes[0]
	if p.Name != "rank3" || p.PID != 4711 || p.Rank != 3 || p.WorldSize != -1 || p.Command != "python3 train.py" || p.Frameworks != "torch 2.11.0" || p.Events != 1000 {
		t.Errorf("process %+v", p.ProcessMeta)
	}
	tracetest.Same(t, p, events, texts)
	left, _ := os.ReadDir(dir)
	// run.json, three parts and one
	assert.That(t, len(left) == 5, "left in the run directory: %v", left)
}

// TestSegmentsGoWithTheirPart: not before it is complete, and not those it needs no more.
func TestSegmentsGoWithTheirPart(t *testing.T) {
	dir, spool := newRun(t)
	s := tracetest.NewSpool(t, spool, 4711, -1)
	c := newCollector(t, dir, dataset.WriterOptions{PartEvents: 100_000})
	grow := func(n, wantSegments int) {
		t.Helper()
		for range n {
			s.Fill(s.Claim(), trace.Event{Kind: trace.KindIteration, Time: 1000})
		}
		must(t, c.Poll)
		got := segments(t, s)
		assert.That(t, got == wantSegments, "%d segments after %d slots, want %d", got, s.Slot(), wantSegments)
	}
	grow(99_999, 2)
	grow(1, 2)      // the part is full, and completed by the next event
	grow(1, 1)      // segment 0 is wholly in it, segment 1 partly
	grow(40_000, 2) // slots 131,072 and up are in segment 2
	must(t, c.Finish)
	p := tracetest.One(t, dir)
	assert.That(t, p.Events == 140_001 && p.Ending.State == dataset.StateKilled, "%d events, %+v", p.Events, p.Ending)
}

// TestRecoverEqualsCollect kills the collector at every stage: the trace becomes the same,
// but for where its parts are cut.
func TestRecoverEqualsCollect(t *testing.T) {
	const n = 150_000
	events, texts := tracetest.Training(n)
	for i := range events { // strings first named late, in every segment
		if i%5000 == 0 {
			events[i].Context = int32(len(texts))
			texts = append(texts, "late "+strings.Repeat("x", 60)+string(rune('a'+i/5000)))
		}
	}
	text := func(id int32) string { return texts[id] }
	want := tracetest.WithTexts(events, text)
	sums := dataset.NewRolling()
	for i := range events {
		sums.Add(&events[i], text(events[i].Context))
	}
	kills := []int{0, 1, 69_999, 70_000, 70_001, 140_500, n}
	if testing.Short() {
		kills = kills[3:5]
	}
	for _, killAt := range kills {
		dir, spool := newRun(t)
		s := tracetest.NewSpool(t, spool, 4711, 0)
		fill(s, events[:killAt], texts)
		c := newCollector(t, dir, dataset.WriterOptions{PartEvents: 70_000, RowGroup: 20_000})
		must(t, c.Poll)
		fill(s, events[killAt:], texts)
		s.Claim() // the process dies inside an arena
		// SIGKILL of the collector: its lock goes, its temporary files stay.
		c.Kill()
		if killAt > 70_000 && segments(t, s) != 3-killAt/70_000 {
			t.Errorf("kill at %d: %d segments, want %d", killAt, segments(t, s), 3-killAt/70_000)
		}
		if _, err := dataset.Open(dir); !errors.Is(err, trace.ErrUnfinished) {
			t.Errorf("kill at %d: error %v before recovery, want unfinished", killAt, err)
		}
		summary := recovered(t, dir)
		assert.That(t, summary.Events == n+1 && len(summary.Processes) == 1 && summary.Processes[0].Ending.Lost == 1,
			"kill at %d: summary %+v", killAt, summary)
		p := tracetest.One(t, dir)
		got := tracetest.WithTexts(tracetest.Events(t, p), p.Strings().Text)
		assert.That(t, len(got) == n+1 && slices.Equal(got[:n], want) && strings.Contains(got[n], "Kind:lost"), "kill at %d: events differ", killAt)
		if blocks := n / dataset.BlockEvents; !slices.Equal(p.Checksums()[:blocks], sums.Checksums()[:blocks]) || !slices.Equal(tracetest.Rolling(t, p), p.Checksums()) {
			t.Errorf("kill at %d: checksums differ", killAt)
		}
		if info, err := dataset.ReadInfo(dir); err != nil || !info.Recovered {
			t.Errorf("kill at %d: run.json %+v, %v", killAt, info, err)
		}
		left, _ := filepath.Glob(filepath.Join(dir, "*.tmp"))
		assert.That(t, len(left) == 0, "kill at %d: left behind: %v", killAt, left)
		if _, err := collect.Recover(context.Background(), dir, false); err != nil {
			t.Errorf("kill at %d: second recovery: %v", killAt, err)
		}
	}
}

// TestRecoverAfterLastPart: the collector dies between the last part and the removal of
// the spool.
func TestRecoverAfterLastPart(t *testing.T) {
	dir, spool := newRun(t)
	events, texts := tracetest.Training(500)
	s := tracetest.NewSpool(t, spool, 4711, 0)
	fill(s, events, texts)
	saved := filepath.Join(t.TempDir(), "saved")
	assert.NoError(t, os.CopyFS(saved, os.DirFS(s.Dir)))
	must(t, newCollector(t, dir, dataset.WriterOptions{}).Finish)
	assert.NoError(t, os.CopyFS(s.Dir, os.DirFS(saved)))
	recovered(t, dir)
	p := tracetest.One(t, dir)
	assert.That(t, p.Events == 500 && len(p.Parts) == 1, "%d events in %d parts, want 500 in 1", p.Events, len(p.Parts))
}

func TestLiveProcess(t *testing.T) {
	dir, spool := newRun(t)
	end := startLive(t, spool)
	if _, err := collect.Recover(context.Background(), dir, false); !errors.Is(err, trace.ErrAlive) {
		t.Fatalf("error %v, want that a process lives", err)
	}
	c := newCollector(t, dir, dataset.WriterOptions{})
	if _, err := collect.New(dir, collect.Options{RunID: tracetest.RunID}); !errors.Is(err, trace.ErrBusy) {
		t.Errorf("a second collector: error %v, want busy", err)
	}
	for range 5 {
		must(t, c.Poll)
	}
	assert.Equal(t, c.Totals().Events, 1, "events of the live process") // the claimed slot may still be filled
	c.Kill()
	done := make(chan *collect.Summary)
	go func() {
		summary, err := collect.Recover(context.Background(), dir, true)
		if err != nil {
			t.Error(err)
		}
		done <- summary
	}()
	select {
	case <-done:
		t.Error("did not wait for the process")
	case <-time.After(100 * time.Millisecond):
	}
	end()
	summary := <-done
	assert.That(t, summary != nil && summary.Events == 2, "summary %+v, want 2 events", summary)
	p := tracetest.One(t, dir)
	assert.That(t, p.Ending.State == dataset.StateKilled && p.Ending.Lost == 1 && p.Rank == 5, "%+v", p.Ending)
}

func TestStoppedHook(t *testing.T) {
	dir, spool := newRun(t)
	s := tracetest.NewSpool(t, spool, 4711, 0)
	s.Append(trace.Event{Kind: trace.KindAlloc}, "")
	s.Stop(syscall.ENOSPC, "000001.seg: No space left on device")
	s.SetClaimed(77)
	summary, err := newCollector(t, dir, dataset.WriterOptions{}).Finish()
	assert.NoError(t, err)
	want := []string{"rank0: recording ended at seq 0: 000001.seg: No space left on device"}
	assert.Diff(t, want, summary.Problems, "problems")
	p := tracetest.One(t, dir)
	assert.That(t, p.Events == 1 && p.Ending.State == dataset.StateStopped && p.Ending.Lost == 0, "%d events, %+v", p.Events, p.Ending)
}

// TestCollectWhileWritten runs the hook's side and the collector at the same time.
func TestCollectWhileWritten(t *testing.T) {
	const n = 100_000
	dir, spool := newRun(t)
	events, texts := tracetest.Training(n)
	s := tracetest.NewSpool(t, spool, 4711, 0)
	var writer sync.WaitGroup
	writer.Add(1)
	go func() {
		defer writer.Done()
		fill(s, events, texts)
	}()
	stop := make(chan struct{})
	followed := make(chan struct{})
	c := newCollector(t, dir, dataset.WriterOptions{PartEvents: 30_000})
	go func() {
		defer close(followed)
		for {
			select {
			case <-stop:
				return
			default:
				c.Totals()
			}
		}
	}()
	written := make(chan struct{})
	go func() { writer.Wait(); close(written) }()
	for running := true; running; {
		select {
		case <-written:
			running = false
		default:
		}
		must(t, c.PollLive)
	}
	close(stop)
	<-followed
	must(t, c.Finish)
	p := tracetest.One(t, dir)
	tracetest.Same(t, p, events, texts)
}
