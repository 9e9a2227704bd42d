package fit

import (
	"context"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// guess labels a block: the next workspace has from 0 to most MiB, and likely ones are requested.
func (j *job) guess(number int64, text string) *job {
	return j.add(trace.KindLabel, trace.Event{Addr: 1<<40 + number*2*mib<<10}, text)
}

// guesses is a job of 100 MiB with a workspace of 30 MiB, and of 60 at most; then of 110 with none, and 40 at most; then with one that is
// known, of 10.
func guesses() *job {
	return newJob().alloc(1, 100).guess(1, "workspace=31457280\tworkspace_most=62914560").alloc(9, 30).free(9).
		alloc(2, 10).guess(2, "workspace_most=41943040").
		alloc(9, 10).free(9)
}

func mibs(b plain.Band) plain.Band {
	return plain.Band{Least: b.Least / mib, Greatest: b.Greatest / mib}
}

// TestRequestedBand: requested bytes are least without the workspaces whose sizes are not known, and greatest with the most of them.
func TestRequestedBand(t *testing.T) {
	dry := guesses().process("p")
	h, err := dry.history()
	assert.NoError(t, err)
	assert.Equal(t, mibs(h.Requested()), plain.Band{Least: 120, Greatest: 160}, "with 60 of the first workspace, and with the last alone")
	none, err := newJob().alloc(1, 100).process("p").history()
	assert.NoError(t, err)
	assert.That(t, h.Edges(dry) != nil && none.Edges(dry) == nil && none.Requested() == plain.BandOf(100*mib), "edges where all sizes are known: %v", none.Requested())
	labelled := newJob().alloc(1, 100).guess(1, "category=weights\tname=fc").alloc(9, 30).process("p")
	if h, err = labelled.history(); err != nil || len(h.guesses) > 0 {
		t.Errorf("another label counts as a guess: %v, %v", h.guesses, err)
	}
}

// TestGuessedRequest: the request that a guess is about is the next one of its size and thread.
func TestGuessedRequest(t *testing.T) {
	for name, test := range map[string]struct {
		size   int64
		thread int32
		most   int64 // requested, MiB
	}{"itself": {30, 0, 160}, "another size": {20, 0, 120}, "another thread": {30, 1, 130}} {
		j := newJob().alloc(1, 100).guess(1, "workspace=31457280\tworkspace_most=62914560").alloc(9, test.size).free(9)
		j.events[3].Thread = test.thread
		h, err := j.process("p").history()
		assert.NoError(t, err)
		if test.most < 160 { // the most is requested beside it, before it
			test.most = 160
			assert.Equal(t, h.guesses[0].request, int32(-1), name)
		}
		assert.Equal(t, mibs(h.Requested()).Greatest, test.most, name)
	}
}

// TestAnswers: a card above the band fits, one below does not, and sizes that are not known decide in between.
func TestAnswers(t *testing.T) {
	native := []Allocator{{Allocator: "torch", Setting: "native"}}
	for _, test := range []struct {
		card         int64
		fits, within bool
	}{{118, false, false}, {120, false, true}, {130, false, true}, {158, false, true}, {160, true, false}} {
		dry := guesses().process("p")
		dry.DryRun = true
		answer, err := Find(context.Background(), []*Job{dry}, Options{Allocators: native, Card: test.card * mib})
		assert.NoError(t, err)
		row := &answer.Rows[0]
		assert.That(t, row.Fits == test.fits && row.Within == test.within, "%d MiB: fits %v, within %v, want %v and %v; bands %+v", test.card, row.Fits, row.Within, test.fits, test.within, row.Bands)
		assert.That(t, (row.Why != nil) == (test.card == 118), "%d MiB: %+v", test.card, row.Why)
		assert.Equal(t, mibs(row.Bands.Card), plain.Band{Least: 120, Greatest: 160}, "card")
		assert.Equal(t, mibs(row.Bands.Reserved), plain.Band{Least: 120, Greatest: 160}, "reserved")
		assert.That(t, row.Bytes == 160*mib && row.Lowest == 160*mib && row.Reserved == 160*mib, "what it is said to need: %+v", row.Need)
		assert.Equal(t, mibs(answer.Processes[0].Requested), plain.Band{Least: 120, Greatest: 160}, "requested")
	}
	recorded, err := Find(context.Background(), []*Job{guesses().process("p")}, Options{Allocators: native, Card: 122 * mib})
	assert.NoError(t, err)
	row := &recorded.Rows[0]
	assert.That(t, !row.Bands.Card.Wide() && !row.Within, "a recording of a GPU knows all sizes: %+v", row)
}

// TestDraws: PyTorch reserves most without the first workspace and with the second. A block of 30 MiB then takes the segment of 40, where a
// request of 40 would have found it. Without both, each block has its own; with both, the 30 take the 32 of the first.
func TestDraws(t *testing.T) {
	dry := newJob().alloc(1, 1).guess(1, "workspace_most=33554432").alloc(2, 1).guess(2, "workspace_most=41943040").
		alloc(3, 30).alloc(4, 40).free(4).process("p")
	dry.DryRun = true
	answer, err := Find(context.Background(), []*Job{dry}, Options{Allocators: []Allocator{{Allocator: "torch", Setting: "native"}}})
	assert.NoError(t, err)
	assert.Equal(t, mibs(answer.Rows[0].Bands.Reserved), plain.Band{Least: 72, Greatest: 82}, "reserved: 72 without, 74 with both")
}

// lagging is a job whose blocks of 16 MiB are used by another stream; the host waits for the device at the end of an iteration.
func lagging() *job {
	const stream = 9
	j := newJob().alloc(9, 1).mark()
	for number := range int64(3) {
		addr := 1<<40 + number*2*mib<<10
		j.alloc(number, 16).add(trace.KindStreamUse, trace.Event{Addr: addr, Stream: stream}, "").free(number)
	}
	for number := range int64(3) {
		j.add(trace.KindFreeDone, trace.Event{Addr: 1<<40 + number*2*mib<<10}, "")
	}
	return j.mark()
}

// TestPaces: a block that another stream uses is free again as far behind the last wait of the host as the device is slow.
func TestPaces(t *testing.T) {
	dry := lagging().process("p")
	h, err := dry.history()
	assert.NoError(t, err)
	for eighths, want := range map[int]string{
		0:  "alloc iteration alloc use free done alloc use free done alloc use free done iteration",
		8:  "alloc iteration alloc use free alloc use free done alloc use free done done iteration",
		99: "alloc iteration alloc use free alloc use free alloc use free done done done iteration",
	} {
		var got []string
		for e, err := range trace.Events(&editedSource{edit: h.withPace(eighths)}) {
			assert.NoError(t, err)
			if name := e.Kind.String(); e.Kind != trace.KindArena {
				got = append(got, strings.TrimPrefix(strings.TrimPrefix(name, "stream_"), "free_"))
			}
		}
		assert.Equal(t, strings.Join(got, " "), want, "1 + %d/8", eighths)
	}
	assert.Equal(t, len(h.Edges(dry)), 0, "edges of a recording of a GPU")
	dry.DryRun = true
	answer, err := Find(context.Background(), []*Job{dry}, Options{Allocators: []Allocator{{Allocator: "torch", Setting: "native"}}})
	assert.NoError(t, err)
	assert.Equal(t, mibs(answer.Rows[0].Bands.Reserved), plain.Band{Least: 18, Greatest: 50}, "reserved: a small segment and one or three of 16")
}

// TestHeldBands: the allocators of the report's first screen have the same bands.
func TestHeldBands(t *testing.T) {
	dry := guesses().process("p")
	h, err := dry.history()
	assert.NoError(t, err)
	dry = h.Job(dry)
	rows, err := Hold(context.Background(), dry, h.Edges(dry))
	assert.NoError(t, err)
	assert.That(t, rows[0].Setting == "native" && rows[0].Need.Bytes/mib == 130, "%+v", rows[0])
	assert.Equal(t, mibs(rows[0].Bands.Card), plain.Band{Least: 120, Greatest: 160}, "card")
	assert.Equal(t, mibs(rows[0].Bands.Reserved), plain.Band{Least: 120, Greatest: 160}, "reserved")
}
