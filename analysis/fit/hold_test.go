package fit

import (
	"context"
	"slices"
	"testing"

	"github.com/memprof/memprof/analysis/torchalloc"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestHold: a job that asks for 30 MiB and then 11 at once needs 42 MiB under PyTorch's own allocator, whose segments are of whole
// 2 MiB, 60 with expandable segments, whose pages are of 20 MiB, and 64 under preset classic, which doubles where it has room.
func TestHold(t *testing.T) {
	j := newJob().alloc(1, 30).alloc(2, 11).free(1).free(2).mark()
	of := j.process("p")
	of.Recorded = Allocator{Allocator: "memprof", Policy: bfc.Classic.Policy()}
	rows, err := Hold(context.Background(), of, nil)
	assert.NoError(t, err)
	type row struct {
		allocator, setting string
		reserved, least    int64
		recorded           bool
	}
	var got []row
	for _, r := range rows {
		name := r.Setting
		if r.Allocator.Allocator == "memprof" {
			name = r.Policy.Preset.String()
		}
		got = append(got, row{r.Allocator.Allocator, name, r.Reserved / mib, r.Need.Bytes / mib, r.Recorded})
	}
	want := []row{
		{"torch", "native", 42, 42, false}, {"torch", "expandable_segments:True", 60, 60, false},
		{"memprof", "classic", 64, 42, true}, {"memprof", "compact", 44, 44, false},
	}
	assert.That(t, slices.Equal(got, want), "%v, want %v", got, want)
}

// TestStepsOfASimulatedDevice: the work of a job on the simulated device takes no time, so that no allocator makes its steps longer.
func TestStepsOfASimulatedDevice(t *testing.T) {
	for _, simulated := range []bool{false, true} {
		j := newJob()
		for range 6 {
			j.alloc(1, 30).free(1).mark()
		}
		of := j.process("p")
		of.Simulated = simulated
		rows, err := Hold(context.Background(), of, nil)
		assert.NoError(t, err)
		for _, r := range rows {
			assert.That(t, (r.Step == 0) == simulated, "%v: a step of %v, simulated %v", r.Allocator, r.Step, simulated)
		}
	}
}

// TestChoices: the recorded allocator takes the place of its like.
func TestChoices(t *testing.T) {
	version := torchalloc.Torch211
	trimmed := bfc.Compact.Policy()
	trimmed.Trim.When = bfc.TrimIteration
	for _, test := range []struct {
		name     string
		recorded Allocator
		torch    bool
		want     int // the row that is recorded
		rows     int
	}{
		{"preset compact with a trim", Allocator{Allocator: "memprof", Policy: trimmed}, true, 3, 4},
		{"a setting of PyTorch's", Allocator{Allocator: "torch", Setting: "max_split_size_mb:64"}, true, 0, 4},
		{"expandable segments", Allocator{Allocator: "torch", Setting: expandable}, true, 1, 4},
		{"no PyTorch", Allocator{Allocator: "memprof", Policy: bfc.Classic.Policy()}, false, 0, 2},
	} {
		j := &Job{Recorded: test.recorded}
		if test.torch {
			j.Torch = &version
		}
		rows := Choices(j)
		if len(rows) != test.rows {
			t.Errorf("%s: %d rows, want %d", test.name, len(rows), test.rows)
			continue
		}
		for i, r := range rows {
			if r.Recorded != (i == test.want) || r.Recorded && r.Allocator != test.recorded {
				t.Errorf("%s: row %d is %+v, recorded %t", test.name, i, r.Allocator, r.Recorded)
			}
		}
	}
}
