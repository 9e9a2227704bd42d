package verify

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/memprof/memprof/trace"
)

// LostTail is within how many events of the first lost one a contradiction is still put
// down to the loss. What is lost is at most one event for each thread that was in the hook
// when the process died, and a thread cannot go on past its own; the threads of a job that
// are in its allocator at one moment are fewer than this.
const LostTail = 64

var (
	// ErrNothingToVerify is of a trace without any block of our allocator.
	ErrNothingToVerify = errors.New("nothing to verify: no allocation of memprof's own allocator was recorded")
	// ErrWatched is of a trace of an allocator that is none of ours, and was only watched.
	ErrWatched = errors.New("nothing to verify: another allocator served and was only watched; a replay can judge memprof's own alone")
	// ErrNotFromStart is of parts that do not begin with the process's first event.
	ErrNotFromStart = errors.New("cannot be verified without the parts before it: a replay starts at a process's first event")
)

// Result is what a verified trace proves.
type Result struct {
	Process string // "rank0"
	Events  int64  // of all kinds
	Allocs  int64  // blocks that came out at the same address and size
	Frees   int64  // of blocks; those that became pending count once
	Growths int64  // that the memory granted
	Arenas  int64  // of our allocator

	// Complete says that the process was recorded to its end, and all of that was proved.
	Complete bool
	// EndsAt says where the proof ends, and why there, if it is not Complete.
	EndsAt string
	// EndSeq is the last event proved, -1 for none.
	EndSeq int64
}

// Process verifies all events of a process in one pass. The error is a *[Mismatch] if the
// trace is not what the allocator did, [ErrNothingToVerify], [ErrWatched] or
// [ErrNotFromStart] if that cannot be told, and otherwise of the reading.
func Process(ctx context.Context, p *trace.Process) (*Result, error) {
	if len(p.Parts) == 0 || p.Parts[0].Number != 0 || p.Parts[0].FirstSeq != 0 {
		return nil, fmt.Errorf("%s: %w", p.Name, ErrNotFromStart)
	}
	j := newJudge(p)
	if err := j.all(ctx); err != nil {
		return nil, err
	}
	if j.replay.allocs == 0 && j.replay.watched {
		return nil, fmt.Errorf("%s: %w", p.Name, ErrWatched)
	}
	if j.replay.ours == 0 || j.replay.allocs == 0 {
		return nil, fmt.Errorf("%s: %w", p.Name, ErrNothingToVerify)
	}
	return j.result(), nil
}

// all judges every event of the process. The error is a *Mismatch, or of the reading.
func (j *judge) all(ctx context.Context) error {
	reader, err := j.process.NewReader()
	if err != nil {
		return err
	}
	defer reader.Close()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		batch, err := reader.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if wrong := j.batch(batch); wrong != nil {
			return wrong.of(j.process)
		}
	}
	if wrong := j.end(); wrong != nil {
		return wrong.of(j.process)
	}
	return nil
}

func (m *Mismatch) of(p *trace.Process) *Mismatch {
	m.Process = p.Name
	return m
}

// judge compares checksums and replays side by side. An event that cannot be is reported
// once the checksum of its block is known, because the block may have been changed earlier.
type judge struct {
	process *trace.Process
	sums    *trace.Rolling
	want    []uint64  // the checksums recorded
	agreed  int       // blocks whose checksums are right, from the first
	replay  *replayer // nil for readings, which no allocator has made

	current   trace.Event // here, so that events need no memory of their own
	next      int64       // position of the next event
	wrong     *Mismatch   // the first wrong event
	firstLost int64       // seq, -1 for none
	afterLost int64       // events after it that are not lost
}

func newJudge(p *trace.Process) *judge {
	return &judge{process: p, sums: p.Rolling(), want: p.Checksums(), replay: newReplayer(), firstLost: -1}
}

func (j *judge) batch(b *trace.Batch) *Mismatch {
	strings := j.process.Strings()
	j.sums.AddBatch(b, strings)
	for i := range b.Seq {
		j.current = b.Event(i)
		if e := &j.current; j.wrong == nil {
			j.wrong = j.event(e, strings)
		} else if j.firstLost >= 0 && e.Kind != trace.KindLost {
			j.afterLost++
		}
		j.next++
	}
	if wrong := j.compare(j.sums.Checksums()); wrong != nil {
		return wrong
	}
	if j.wrong == nil || j.wrong.position >= int64(j.agreed)*trace.BlockEvents || j.excused() {
		return nil
	}
	return j.wrong
}

// event is the replay of one event. A seq out of order is never excused by a loss.
func (j *judge) event(e *trace.Event, strings *trace.Strings) *Mismatch {
	var wrong *Mismatch
	switch {
	case e.Seq != j.next:
		wrong = atEvent(e, "it to follow event "+fmt.Sprint(j.next-1), fmt.Sprintf("seq %d in place of %d", e.Seq, j.next))
		wrong.Seq = j.next
		j.firstLost = -1
	case e.Kind == trace.KindLost:
		if j.firstLost < 0 {
			j.firstLost = e.Seq
		}
	default:
		if j.firstLost >= 0 {
			j.afterLost++
		}
		if j.replay == nil {
			wrong = notReading(e)
		} else {
			wrong = j.replay.step(e, strings)
		}
	}
	if wrong != nil {
		wrong.position = wrong.Seq
	}
	return wrong
}

// excused says whether a contradiction may be due to what was lost.
func (j *judge) excused() bool {
	return j.firstLost >= 0 && j.afterLost <= LostTail
}

// compare demands that checksums are those recorded, as far as both go.
func (j *judge) compare(sums []uint64) *Mismatch {
	for ; j.agreed < min(len(sums), len(j.want)); j.agreed++ {
		if sums[j.agreed] != j.want[j.agreed] {
			return j.changed()
		}
	}
	return nil
}

// changed is the mismatch of the first block that does not agree, unless an event before
// it is wrong already.
func (j *judge) changed() *Mismatch {
	first := int64(j.agreed) * trace.BlockEvents
	if j.wrong != nil && j.wrong.position < first && !j.excused() {
		return j.wrong
	}
	recorded := j.process.Recorded()
	m := &Mismatch{Seq: -1, Recorded: recorded, Present: recorded}
	if j.wrong != nil && j.wrong.position < first+trace.BlockEvents {
		*m = *j.wrong
	}
	m.FirstSeq, m.LastSeq = first, max(first, min(first+trace.BlockEvents, recorded)-1)
	return m
}

// end judges what only the last event settles.
func (j *judge) end() *Mismatch {
	sums := j.sums.Checksums()
	if j.process.Whole {
		sums = j.sums.Finish()
	}
	wrong := j.compare(sums)
	short := j.process.Whole && len(sums) != len(j.want)
	if wrong == nil && (short || j.next != j.process.Recorded()) {
		wrong = j.changed()
	}
	if wrong != nil {
		if wrong.FirstSeq >= 0 {
			wrong.Recorded, wrong.Present = j.process.Recorded(), j.next
		}
		return wrong
	}
	if j.wrong != nil && !j.excused() {
		return j.wrong
	}
	return nil
}

func (j *judge) result() *Result {
	r := &Result{
		Process: j.process.Name, Events: j.next, Allocs: j.replay.allocs, Frees: j.replay.frees,
		Growths: j.replay.growths(), Arenas: j.replay.ours, EndSeq: j.next - 1,
	}
	ending := &j.process.Ending
	open := j.replay.unfinished()
	switch {
	case j.firstLost >= 0:
		r.EndSeq = j.firstLost - 1
		r.EndsAt = fmt.Sprintf("event %d, which was lost when the process died", j.firstLost)
		if j.wrong != nil {
			r.EndsAt += fmt.Sprintf("; event %d (%v) depends on it", j.wrong.Seq, j.wrong.Kind)
		}
	case open != nil:
		r.EndSeq = open.Seq - 1
		r.EndsAt = fmt.Sprintf("event %d (%v), with which a request begins that has no end", open.Seq, open.Kind)
	case !j.process.Whole:
		r.EndsAt = fmt.Sprintf("event %d, the last of the parts given", r.EndSeq)
	case ending.State == trace.StateKilled:
		r.EndsAt = fmt.Sprintf("event %d, the last before the process was killed", r.EndSeq)
	case ending.State == trace.StateStopped:
		r.EndsAt = fmt.Sprintf("event %d, where the recording stopped: %s", r.EndSeq, ending.Reason)
	default:
		r.Complete = true
	}
	return r
}
