package collect_test

import (
	"errors"
	"testing"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestCampaignFullDisk has the disk fill up at any byte of any part, for one collector after the other, each with a
// little more room: no event is lost, and every error says that the disk is full.
func TestCampaignFullDisk(t *testing.T) {
	const n = 70_000 // more than a segment
	events, texts := tracetest.Training(n)
	long, random := tracetest.Campaign(t)
	tracetest.Rounds(t, long, 3, func(int) {
		dir, spool := newRun(t)
		s := tracetest.NewSpool(t, spool, 4711, 0)
		fill(s, events, texts)
		opt := dataset.WriterOptions{PartEvents: 5_000 + random.IntN(n), RowGroup: 1_000 + random.IntN(20_000)}
		disk, room := &smallDisk{}, random.IntN(40_000)
		opt.Create = disk.create
		finished := false
		for range 200 {
			disk.room = room // what the one before has written and not completed is gone
			c := newCollector(t, dir, opt)
			if random.IntN(2) == 0 {
				if _, err := c.Poll(); err != nil && !errors.Is(err, trace.ErrDiskFull) {
					t.Fatal(err)
				}
			}
			if random.IntN(4) == 0 {
				c.Kill()
				continue
			}
			_, err := c.Finish()
			if finished = err == nil; finished {
				break
			}
			assert.Must(t, errors.Is(err, trace.ErrDiskFull), "%+v, room %d: %v", opt, room, err)
			room += random.IntN(20_000)
		}
		assert.Must(t, finished, "%+v: the disk never had room", opt)
		p := tracetest.One(t, dir)
		tracetest.Same(t, p, events, texts)
		if t.Failed() {
			t.Logf("with %+v", opt)
		}
	})
}
