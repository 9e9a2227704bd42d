package snapshot

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

var (
	largeBytes  = flag.Int64("large", 0, "import generated snapshots of this many bytes, and measure time and memory")
	largeKept   = flag.String("large-kept", "", "keep the generated snapshot as this file")
	largeFrames = flag.Int("large-frames", 0, "stack depth of the generated requests; 0: no frames")
)

// frame is one that was written before: its number.
type frame int

// writeLarge writes a job of one device: up to 2,000 live blocks of many sizes in segments of 20 MiB, each of a stack of its own
// list of shared frames.
func writeLarge(t *testing.T, path string, bytes int64, depth int) {
	out, err := os.Create(path)
	assert.NoError(t, err)
	p := &pickler{out: []byte{0x80, 2}, texts: map[string]int{}}
	wrote := int64(0)
	write := func(values ...any) {
		for _, v := range values {
			p.value(v)
		}
		if len(p.out) > 1<<20 {
			n, err := out.Write(p.out)
			assert.NoError(t, err)
			wrote, p.out = wrote+int64(n), p.out[:0]
		}
	}
	var shared []any
	for n := range 5000 {
		write(pairs{"name", fmt.Sprint("function", n), "filename", fmt.Sprintf("/opt/job/module%d.py", n%50), "line", n % 2000})
		p.out, shared = append(p.out, '0'), append(shared, frame(p.kept-1))
	}
	p.out = append(p.out, "}("...)
	write("segments", []any{}, "device_traces")
	p.out = append(p.out, "](]("...)
	const slots = 2000
	random := rand.New(rand.NewPCG(1, 2))
	entry := func(action string, slot, size int, frames any) {
		write(act(action, testAddr+slot*20*testMiB, size, "time_us", p.kept, "compile_context", "N/A", "user_metadata", "", "frames", frames))
	}
	for slot := range slots {
		entry("segment_alloc", slot, 20*testMiB, []any{})
	}
	var sizes [slots]int // 0 where nothing is live
	var stacks [slots]frame
	for wrote < bytes {
		slot := random.IntN(slots)
		if size := sizes[slot]; size > 0 {
			entry("free_requested", slot, size, stacks[slot])
			entry("free_completed", slot, size, stacks[slot])
			sizes[slot] = 0
			continue
		}
		stack, base := make([]any, depth), random.IntN(400)
		for at := range stack {
			stack[at] = shared[(base/(1+at)+at*131)%len(shared)]
		}
		sizes[slot] = testMiB + 1000*random.IntN(3000)
		entry("alloc", slot, sizes[slot], stack)
		stacks[slot] = frame(p.kept - 2) // the list comes before its entry
	}
	_, err = out.Write(append(p.out, "eeu."...))
	// Reading it shall not compete with writing it to the disk.
	assert.NoError(t, errors.Join(err, out.Sync(), out.Close()))
}

// A snapshot of 1 GB is imported in 10 s and 1 GiB of memory on two cores. With -large the test
// makes one, imports it and prints what that took; run it alone, with GOMAXPROCS=2.
func TestLarge(t *testing.T) {
	size := *largeBytes
	if size == 0 {
		t.Skip("-large is not given")
	}
	path := cmp.Or(*largeKept, filepath.Join(t.TempDir(), "large.pickle"))
	writeLarge(t, path, size, *largeFrames)
	user, system := processorTime(t)
	begun := time.Now()
	made, err := Import(t.TempDir(), []string{path}, "test")
	assert.NoError(t, err)
	took := time.Since(begun)
	userAfter, systemAfter := processorTime(t)
	status, _ := os.ReadFile("/proc/self/status")
	fmt.Printf("%d entries, odd %d: %.2f s, of processors %.2f s in user mode and %.2f s in the system; %s\n", made[0].Entries, made[0].Odd, took.Seconds(),
		(userAfter - user).Seconds(), (systemAfter - system).Seconds(), regexp.MustCompile(`VmHWM.*`).Find(status))
}

func processorTime(t *testing.T) (user, system time.Duration) {
	var used syscall.Rusage
	assert.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano()), time.Duration(used.Stime.Nano())
}
