package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

var soakEvents = flag.Int64("soak-events", 4_000_000, "allocations and frees of the soak test; make soak makes 200 million")

// mappedSegments of 4 MiB are mapped by the job at most, in fast times and slow ones.
const mappedSegments = 8

// TestSoak records hours' worth of allocations and looks for what grows: the resident
// memory of the job, whose blocks are never touched, and that of the recorder. The trace
// has to verify.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("makes millions of events")
	}
	b := newBench(t)
	soak := compile(t, "soak", "-O2", "testdata/soak.c")
	cmd, stderr := b.memprof("record", "--device", "sim", "--sim-memory", "80GiB", "-o", b.path("run"), "--", soak, fmt.Sprint(*soakEvents), b.path("log"))
	start := time.Now()
	assert.NoError(t, cmd.Start())
	recorder := watchMemory(cmd.Process.Pid)
	if code := exitOf(cmd.Wait()); code != 0 {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	took := time.Since(start)
	assert.That(t, !strings.Contains(stderr.String(), "problem"), "record reports problems:\n%s", stderr)
	resident, anonymous := b.soakLog("log")
	checkFlat(t, "the job, without segments", anonymous, 512, 0.02)
	checkFlat(t, "the job", resident, mappedSegments*4<<10, 0)
	checkFlat(t, "the recorder", <-recorder, 128<<10, 0.25) // its heap may double between two collections

	run, err := dataset.Open(b.path("run"))
	assert.NoError(t, err)
	process := run.Processes[0]
	assert.That(t, process.Events >= *soakEvents, "%d events recorded, want at least %d", process.Events, *soakEvents)
	start = time.Now()
	b.mustExit(0, "verify", b.path("run"))
	t.Logf("%d events in %v (%.1f M/s), %.2f bytes each, verified in %v", process.Events, took.Round(time.Second),
		float64(process.Events)/took.Seconds()/1e6, float64(process.Bytes())/float64(process.Events), time.Since(start).Round(time.Second))
	for _, verb := range []string{"verify", "report"} {
		if *soakEvents < 100_000_000 {
			break // what they need of memory is worth a line on long traces only
		}
		cmd, stderr := b.memprof(verb, b.path("run"))
		code := exitOf(cmd.Run())
		assert.That(t, code == 0, "%s: exit code %d\n%s", verb, code, stderr)
		usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
		t.Logf("%s: %d MiB at most, %v of processor time", verb, usage.Maxrss>>10, cmd.ProcessState.UserTime().Round(time.Second))
	}
}

// checkFlat compares resident memory, in KiB, once the first quarter is over: of what
// follows, the greatest of the last half may be above the greatest before by a slack and a
// share, whichever is more.
func checkFlat(t *testing.T, who string, resident []int64, slack int64, share float64) {
	t.Helper()
	assert.Must(t, len(resident) >= 20, "%s: %d readings of its memory are too few", who, len(resident))
	n := len(resident)
	before, after := greatest(resident[n/4:n/2]), greatest(resident[n/2:])
	t.Logf("%s: %.1f MiB resident after a twentieth, at most %.1f MiB in the second quarter, %.1f MiB in the last half, %.1f MiB at the end", who,
		float64(resident[n/20])/1024, float64(before)/1024, float64(after)/1024, float64(resident[n-1])/1024)
	assert.That(t, after <= before+max(slack, int64(share*float64(before))),
		"%s grows: %d KiB resident at most in the second quarter, %d in the last half", who, before, after)
}

func greatest(values []int64) int64 {
	most := int64(0)
	for _, v := range values {
		most = max(most, v)
	}
	return most
}

// soakLog is what the job wrote of its own memory.
func (b *bench) soakLog(name string) (resident, anonymous []int64) {
	b.Helper()
	file, err := os.Open(b.path(name))
	assert.NoError(b, err)
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var events, all, own int64
		if _, err := fmt.Sscan(lines.Text(), &events, &all, &own); err != nil {
			b.Fatalf("line %q of the job's log: %v", lines.Text(), err)
		}
		resident, anonymous = append(resident, all), append(anonymous, own)
	}
	return resident, anonymous
}

// watchMemory reads a process's resident memory until it is gone.
func watchMemory(pid int) <-chan []int64 {
	done := make(chan []int64, 1)
	go func() {
		var resident []int64
		for {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			_, rest, found := strings.Cut(string(text), "VmRSS:")
			if err != nil || !found { // a zombie has none
				done <- resident
				return
			}
			var kib int64
			if _, err := fmt.Sscan(rest, &kib); err == nil {
				resident = append(resident, kib)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	return done
}
