package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestFullDisk records to a disk too small for the trace: the job ends as it would have,
// its first events are there, and what cannot be converted waits for room.
func TestFullDisk(t *testing.T) {
	b := newBench(t)
	got, want := b.recordOnDisk("disk", 20<<20)
	assert.Must(t, got != 0 && got < want, "%d allocations recorded of %d: the disk was not full", got, want)
}

// TestCampaignFullDisk is TestFullDisk with disks of many sizes.
func TestCampaignFullDisk(t *testing.T) {
	if os.Getenv("MEMPROF_CAMPAIGN") == "" {
		t.Skip("TestFullDisk is the short form")
	}
	b := newBench(t)
	long, random := tracetest.Campaign(t)
	tracetest.Rounds(t, long, 1, func(round int) {
		b.recordOnDisk(fmt.Sprintf("disk%d", round), 16<<20+4096*random.Int64N(10_000))
	})
}

// recordOnDisk records a job on a disk with so many bytes, recovers the recording with more if that is needed, and says how many
// allocations there are in it, all the same as the job's first, and in the job.
func (b *bench) recordOnDisk(name string, bytes int64) (got, want int) {
	b.Helper()
	disk := b.path(name)
	assert.NoError(b, os.Mkdir(disk, 0o700))
	if err := syscall.Mount("none", disk, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
		b.Skipf("no tmpfs may be mounted here (%v): the spool's limit has to do", err)
	}
	defer func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			b.Error(err)
		}
	}()
	run, log := filepath.Join(disk, "run"), name+".log"
	cmd, stderr := b.memprof("record", "--device", "sim", "-o", run, "--", b.job, "log", b.path(log), "churn", "5", "600000", "exit", "5")
	if code := exitOf(cmd.Run()); code != 5 {
		b.Fatalf("%d bytes of disk: exit code %d, want the job's 5\n%s", bytes, code, stderr)
	}
	if strings.Contains(stderr.String(), "the job runs unrecorded") {
		return 0, 0 // not even enough to start
	}
	said := regexp.MustCompile(`recording ended at seq \d+|the disk is full|nothing was recorded`).MatchString(stderr.String())
	if strings.Contains(stderr.String(), "memprof record --finish") {
		// The spool could not be converted where it lies; with room it can.
		assert.NoError(b, syscall.Mount("none", disk, "tmpfs", syscall.MS_REMOUNT, "size=200m"))
		b.mustExit(0, "record", "--finish", run)
	}
	got, want = b.firstOf(name+"/run", log)
	// the disk may have sufficed
	assert.That(b, got >= want || said, "%d bytes of disk: stderr names no point up to which the trace holds:\n%s", bytes, stderr)
	return got, want
}

// firstOf demands that the allocations recorded are the first of those logged, in order, and that the recording verifies. It says how
// many there are of each.
func (b *bench) firstOf(run, log string) (got, want int) {
	b.Helper()
	recorded, logged := b.recorded(run), b.logged(log)
	assert.Must(b, len(recorded) <= len(logged), "%s: %d allocations recorded, %d made", run, len(recorded), len(logged))
	for i := range recorded {
		if recorded[i] != logged[i] {
			b.Fatalf("%s: allocation %d is %+v in the trace, %+v in the job", run, i, recorded[i], logged[i])
		}
	}
	if len(recorded) > 0 {
		b.mustExit(0, "verify", b.path(run))
	}
	return len(recorded), len(logged)
}

// TestCampaignSpoolLimit ends the recording at some segment of the spool, where no disk can be mounted to fill up: the job goes
// on, and what was recorded verifies.
func TestCampaignSpoolLimit(t *testing.T) {
	b := newBench(t)
	long, random := tracetest.Campaign(t)
	tracetest.Rounds(t, long, 2, func(round int) {
		run, log := fmt.Sprintf("run%d", round), fmt.Sprintf("log%d", round)
		segments := 1 + random.IntN(8)
		cmd, stderr := b.memprof("record", "--device", "sim", "-o", b.path(run), "--",
			b.job, "log", b.path(log), "churn", fmt.Sprint(random.Uint32()), "600000", "exit", "5")
		cmd.Env = append(cmd.Env, fmt.Sprintf("MEMPROF_SPOOL_LIMIT=%d", segments*65536*64+random.IntN(65536*64)))
		code := exitOf(cmd.Run())
		assert.Must(t, code == 5, "%d segments: exit code %d, want the job's 5\n%s", segments, code, stderr)
		got, want := b.firstOf(run, log)
		opened, err := dataset.Open(b.path(run))
		assert.NoError(t, err)
		if p := opened.Processes[0]; got == 0 || got >= want || p.Ending.State != dataset.StateStopped || p.Events > int64(segments)*65536 {
			t.Errorf("%d segments: %d of %d allocations in %d events, %+v", segments, got, want, p.Events, p.Ending)
		}
		for _, name := range []string{run, log} {
			assert.NoError(t, os.RemoveAll(b.path(name)))
		}
	})
}
