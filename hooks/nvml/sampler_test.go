package nvml

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/hooks/nvml/nvmltest"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// script is a sampler with a clock of its own, which steps are taken with.
type script struct {
	*Sampler
	dir   string
	cards *nvmltest.Cards
	clock int64
}

// startSampler starts one whose cards answer in time, however busy the machine is.
func startSampler(t *testing.T, dir string, cards Cards) *Sampler {
	t.Helper()
	s, err := NewSampler(dir, &dataset.Info{ID: tracetest.RunID, ClockBase: monotonic()}, cards, 2*time.Minute)
	assert.NoError(t, err)
	return s
}

func newScript(t *testing.T, cards *nvmltest.Cards) *script {
	t.Helper()
	s := &script{dir: t.TempDir(), cards: cards}
	events, texts := tracetest.Training(10)
	tracetest.WriteRun(t, s.dir, tracetest.Process{Events: events, Texts: texts})
	s.Sampler = startSampler(t, s.dir, cards)
	s.to.Abandon() // what it read by the real clock
	s.to = dataset.NewWriter(s.dir, dataset.ProcessMeta{RunID: tracetest.RunID, Name: dataset.ReadingsName, Rank: -1}, dataset.WriterOptions{})
	s.to.Intern("all=1")
	s.now, s.completed = func() int64 { return s.clock }, 0
	for i := range s.gpus {
		s.gpus[i].whole.read, s.gpus[i].whole.written, s.gpus[i].total = -1, -1, 0
	}
	return s
}

// began makes the job start, as a family in a made-up /proc.
func (s *script) began(t *testing.T, root int) {
	t.Helper()
	s.job = newFamily(root)
	s.job.proc = t.TempDir()
}

// process adds a process to the made-up /proc.
func (s *script) process(t *testing.T, pid, parent int, opens string) {
	t.Helper()
	fds := filepath.Join(s.job.proc, strconv.Itoa(pid), "fd")
	assert.NoError(t, os.MkdirAll(fds, 0o755))
	stat := fmt.Sprintf("%d (a) b) c) S %d 1 1 0", pid, parent)
	assert.NoError(t, os.WriteFile(filepath.Join(s.job.proc, strconv.Itoa(pid), "stat"), []byte(stat), 0o644))
	assert.NoError(t, os.Symlink(opens, filepath.Join(fds, "3")))
}

// at takes a round at a time in milliseconds.
func (s *script) at(ms int64) {
	s.clock = ms * 1_000_000
	s.round()
}

// finish is stop without the goroutine, and gives the lines of the readings.
func (s *script) finish(t *testing.T) []string {
	t.Helper()
	close(s.done)
	troubles := s.Stop()
	assert.Must(t, len(troubles) == 0, "troubles: %q", troubles)
	run, err := dataset.Open(s.dir)
	assert.NoError(t, err)
	assert.Must(t, run.ReadingsErr == nil && run.Readings != nil, "no readings: %v", run.ReadingsErr)
	rows, err := run.Readings.ReadAll()
	assert.NoError(t, err)
	var lines []string
	for _, e := range rows {
		assert.That(t, e.Kind == trace.KindDeviceUsed && e.Requested == 1000 && e.Arena == trace.NoArena, "not a reading: %+v", e)
		lines = append(lines, fmt.Sprintf("%d ms gpu %d %s used %d", (e.Time+500_000)/1_000_000, e.Device, run.Readings.Strings().Text(e.Context), e.Provided))
	}
	return lines
}

func TestSamplerWritesChanges(t *testing.T) {
	s := newScript(t, &nvmltest.Cards{Used: []int64{100, 7}})
	s.at(0)
	s.began(t, 50)
	s.at(100)
	s.at(200)
	s.cards.Used[0] = 300
	s.at(300)
	s.at(400)
	want := []string{
		"0 ms gpu 0 all=1 used 100",
		"0 ms gpu 1 all=1 used 7",
		"200 ms gpu 0 all=1 used 100",
		"300 ms gpu 0 all=1 used 300",
		"400 ms gpu 0 all=1 used 300",
		"400 ms gpu 1 all=1 used 7",
	}
	assert.Diff(t, want, s.finish(t), "readings")
	assert.That(t, s.cards.Closed, "the library was left open")
}

func TestSamplerHeartbeat(t *testing.T) {
	s := newScript(t, &nvmltest.Cards{Used: []int64{100}})
	for ms := int64(0); ms <= 25_000; ms += 100 {
		s.at(ms)
	}
	want := []string{
		"0 ms gpu 0 all=1 used 100", "10000 ms gpu 0 all=1 used 100",
		"20000 ms gpu 0 all=1 used 100", "25000 ms gpu 0 all=1 used 100",
	}
	assert.Diff(t, want, s.finish(t), "readings")
}

// A busy driver lists no processes for half a minute: what was last read of one is written before times that a reader would take for
// those of a clock that falls.
func TestSamplerWritesWhatIsNotReadForLong(t *testing.T) {
	cards := &nvmltest.Cards{Used: []int64{100}, Shown: []map[int]int64{{60: 10}}}
	s := newScript(t, cards)
	s.began(t, 60)
	s.process(t, 60, 40, "/dev/nvidiactl")
	s.at(0)
	s.at(100)
	cards.Shown[0] = nil
	for ms := int64(200); ms <= 30_000; ms += 100 {
		s.at(ms)
	}
	cards.Shown[0] = map[int]int64{60: 20}
	s.at(30_100)
	want := []string{
		"0 ms gpu 0 all=1 used 100", "0 ms gpu 0 pid=60 used 10", "100 ms gpu 0 pid=60 used 10",
		"10000 ms gpu 0 all=1 used 100", "20000 ms gpu 0 all=1 used 100", "30000 ms gpu 0 all=1 used 100",
		"30100 ms gpu 0 pid=60 used 20", "30100 ms gpu 0 all=1 used 100",
	}
	assert.Diff(t, want, s.finish(t), "readings")
}

// Of the processes that the driver shows, those of the job count: the command itself, what
// it started, also when their parent has died since, and nobody who only has such an id.
func TestSamplerTellsProcessesOfTheJob(t *testing.T) {
	cards := &nvmltest.Cards{Used: []int64{100}, Shown: []map[int]int64{{60: 10, 61: 20, 70: 30, 62: 40}}}
	s := newScript(t, cards)
	s.at(0)
	s.began(t, 50)
	s.process(t, 50, 40, "/dev/null")
	s.process(t, 60, 50, "/dev/nvidiactl")
	s.process(t, 61, 60, "/dev/nvidia0")
	s.process(t, 62, 60, "/dev/null")     // the job's, but without the driver
	s.process(t, 70, 1, "/dev/nvidiactl") // somebody else's
	cards.Used[0] = 160
	s.at(100)
	assert.NoError(t, os.RemoveAll(filepath.Join(s.job.proc, "60")))
	cards.Used[0], cards.Shown[0] = 140, map[int]int64{61: 25, 70: 30}
	s.at(200)
	want := []string{
		"0 ms gpu 0 all=1 used 100",
		"100 ms gpu 0 all=1 used 160",
		"100 ms gpu 0 pid=60 used 10",
		"100 ms gpu 0 pid=61 used 20",
		"200 ms gpu 0 all=1 used 140",
		"200 ms gpu 0 pid=60 used 0",
		"200 ms gpu 0 pid=61 used 25",
	}
	assert.Diff(t, want, s.finish(t), "readings")
}

// A process may take what another one returns, so that the sum stays as it is; a list that
// failed, or came too late to be of a known time, says nothing.
func TestSamplerListsProcessesEveryTime(t *testing.T) {
	cards := &nvmltest.Cards{Used: []int64{100}, Shown: []map[int]int64{{60: 10, 61: 20}}}
	s := newScript(t, cards)
	s.began(t, 50)
	s.process(t, 60, 50, "/dev/nvidiactl")
	s.process(t, 61, 50, "/dev/nvidiactl")
	s.at(0)
	cards.Shown[0] = map[int]int64{60: 15, 61: 15}
	s.at(100)
	cards.Shown[0] = nil
	s.at(200)
	cards.Shown[0] = map[int]int64{60: 70, 61: 71}
	cards.Slow = func() { s.clock += 20 * 1_000_000 }
	s.at(300)
	want := []string{
		"0 ms gpu 0 all=1 used 100", "0 ms gpu 0 pid=60 used 10", "0 ms gpu 0 pid=61 used 20",
		"100 ms gpu 0 pid=60 used 15", "100 ms gpu 0 pid=61 used 15", "300 ms gpu 0 all=1 used 100",
	}
	assert.Diff(t, want, s.finish(t), "readings")
}

func TestSamplerOutlivesAFailingCard(t *testing.T) {
	cards := &nvmltest.Cards{Used: []int64{100}}
	s := newScript(t, cards)
	s.at(0)
	cards.Fail = true
	for i := range int64(20) {
		s.at(100 + 100*i)
	}
	// the first by the real clock
	assert.That(t, cards.Asked == 2+failuresInRow, "asked %d times, want %d", cards.Asked, 2+failuresInRow)
	close(s.done)
	got, want := s.Stop(), []string{"the GPU fell off the bus"}
	assert.That(t, cmp.Equal(got, want), "troubles %q, want %q", got, want)
	run, err := dataset.Open(s.dir)
	assert.That(t, err == nil && run.Readings != nil && run.Readings.Events == 1, "the readings before are lost: %v, %+v", err, run)
}

// What a recorder that is killed has read so far is in parts that are complete.
func TestSamplerCompletesParts(t *testing.T) {
	s := newScript(t, &nvmltest.Cards{Used: []int64{100}})
	s.at(0)
	s.at(599_900)
	n := len(s.to.Parts())
	assert.Must(t, n == 0, "%d parts after ten minutes less a reading, want none", n)
	s.at(600_000)
	if n := len(s.to.Parts()); n != 1 {
		t.Fatalf("%d parts after ten minutes, want 1", n)
	}
	want := []string{
		"0 ms gpu 0 all=1 used 100", "599900 ms gpu 0 all=1 used 100", "600000 ms gpu 0 all=1 used 100",
	}
	assert.Diff(t, want, s.finish(t), "readings")
}

// A directory that cannot be written ends the readings, and is reported once.
func TestSamplerWithoutADisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	cards := &nvmltest.Cards{Used: []int64{100, 100}}
	s := startSampler(t, dir, cards)
	s.Follow(os.Getpid())
	troubles := s.Stop()
	assert.That(t, len(troubles) == 1, "troubles %q, want one", troubles)
	assert.That(t, cards.Closed, "the library was left open")
}

// The goroutine reads while the job runs, without being asked.
func TestSamplerFollows(t *testing.T) {
	dir := t.TempDir()
	events, texts := tracetest.Training(10)
	tracetest.WriteRun(t, dir, tracetest.Process{Events: events, Texts: texts})
	s := startSampler(t, dir, &nvmltest.Cards{Used: []int64{5}})
	s.Follow(os.Getpid())
	time.Sleep(350 * time.Millisecond)
	troubles := s.Stop()
	assert.Must(t, len(troubles) == 0, "troubles: %q", troubles)
	run, err := dataset.Open(dir)
	assert.NoError(t, err)
	rows, err := run.Readings.ReadAll()
	assert.NoError(t, err)
	last := rows[len(rows)-1]
	assert.That(t, len(rows) == 2 && time.Duration(last.Time) >= 300*time.Millisecond, "readings %+v, want one before the job and one after 300 ms", rows)
}

// A driver that does not answer keeps neither the job from starting nor memprof from ending.
func TestSamplerOutlivesASilentDriver(t *testing.T) {
	stuck := make(chan struct{})
	t.Cleanup(func() { close(stuck) })
	dir := t.TempDir()
	silent := &nvmltest.Cards{Used: []int64{5}}
	silent.Stuck.Store(&stuck)
	_, err := NewSampler(dir, &dataset.Info{ID: tracetest.RunID}, silent, 10*time.Millisecond)
	assert.That(t, err == ErrNoAnswer, "before the job: error %v", err)
	cards := &nvmltest.Cards{Used: []int64{5}}
	s := startSampler(t, dir, cards)
	s.longest = 10 * time.Millisecond
	cards.Stuck.Store(&stuck)
	s.Follow(os.Getpid())
	troubles := s.Stop()
	assert.That(t, len(troubles) == 1 && !cards.Closed, "troubles %q, closed %v", troubles, cards.Closed)
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

func TestSamplerAbandons(t *testing.T) {
	dir := t.TempDir()
	cards := &nvmltest.Cards{Used: []int64{100}}
	startSampler(t, dir, cards).Abandon()
	left, err := os.ReadDir(dir)
	assert.That(t, err == nil && len(left) == 0 && cards.Closed, "left behind: %v (%v), closed %v", left, err, cards.Closed)
}
