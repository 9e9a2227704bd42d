package collect

import (
	"testing"

	"github.com/memprof/memprof/trace/spool"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestNameOf: a rank before all, and the class of an actor behind the pid, which the files of a recording begin with.
func TestNameOf(t *testing.T) {
	for _, test := range []struct {
		rank    int32
		command string
		want    string
	}{
		{-1, "python3 train.py", "pid4711"},
		{3, "ray::Trainer.step", "rank3"},
		{-1, "ray::Trainer.step", "pid4711-Trainer"},
		{-1, "ray::Rollout", "pid4711-Rollout"},
		{-1, "ray::evaluate()", "pid4711-evaluate"},
		{-1, "ray::IDLE", "pid4711"},
		{-1, "ray::../x", "pid4711"},
		{-1, "python3 ray::Trainer", "pid4711"},
	} {
		got := nameOf(&spool.Header{PID: 4711, Rank: test.rank, Command: test.command})
		assert.That(t, got == test.want, "%s: %s, want %s", test.command, got, test.want)
	}
}
