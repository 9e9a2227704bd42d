package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/memprof/memprof/analysis/torchalloc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
)

// LostTail is how many events behind the first lost one a contradiction may be and still count as an effect
// of the loss. At most one event is lost for each thread that was in the hook when the process died,
// and a thread writes nothing behind its own lost event. Fewer threads than this are in an allocator at a time.
const LostTail = 64

var (
	// ErrNothingToVerify says that a trace has no block of our allocator.
	ErrNothingToVerify = errors.New("nothing to verify: no allocation of memprof's own allocator was recorded")
	// ErrObserved says that a trace is of an allocator that memprof only observed.
	ErrObserved = errors.New("nothing to verify: memprof only observed the job's own allocator, and cannot replay it")
	// ErrNotFromStart says that parts do not begin with the process's first event.
	ErrNotFromStart = errors.New("cannot be verified without the parts before it: a replay starts at a process's first event")
)

// Result is what was verified of a trace.
type Result struct {
	Process string `json:"-"`       // "rank0"
	Events  int64  `json:"events"`  // of all kinds
	Allocs  int64  `json:"allocs"`  // blocks that the replay placed at the same address with the same size
	Frees   int64  `json:"frees"`   // a pending free counts once
	Growths int64  `json:"growths"` // that the memory granted
	Arenas  int64  `json:"arenas"`  // of our allocator, and of PyTorch's own
	// Observed is what was compared of PyTorch's own allocator, and is in the counts above; nil if it was not observed.
	Observed *torchalloc.Followed `json:"observed,omitempty"`

	// Import says how far an imported process was compared; nil if it was recorded.
	Import *Import `json:"import,omitempty"`

	// Dropped is how many events a ring dropped before the first that was verified. Then no placement was replayed: what was
	// verified is that the events are whole and unchanged, and that blocks, frees and mapped memory match each other
	// and what the ring restated.
	Dropped int64 `json:"dropped,omitempty"`
	// Counted is how many events, from the first, are as many as the hook itself counted, with their requests and frees; 0 where the
	// recording has no totals.
	Counted int64 `json:"counted"`
	// Complete says that the process was recorded to its end, and all of that was verified.
	Complete bool `json:"complete"`
	// EndSeq is the last event that was verified, -1 for none.
	EndSeq int64 `json:"end_seq"`
	// EndsAt says up to which event the trace was verified, and why, if it is not Complete.
	EndsAt string `json:"ends_at,omitempty"`
}

// Process verifies all events of a process in one pass. The error is a *[Mismatch] if the
// trace is not what the allocator did; [ErrNothingToVerify], [ErrObserved] or [ErrNotFromStart] if it
// cannot be verified; else of reading the trace.
func Process(ctx context.Context, p *dataset.Process) (*Result, error) {
	if p.Dropped() > 0 {
		return fromRing(ctx, p)
	}
	if len(p.Parts) == 0 || p.Parts[0].Number != 0 || p.Parts[0].FirstSeq != 0 {
		return nil, fmt.Errorf("%s: %w", p.Name, ErrNotFromStart)
	}
	j := newJudge(p)
	j.replay.follower, j.replay.setInCode = follower(p), slices.Contains(p.Ending.Problems, torchalloc.SetInCode)
	if err := j.all(ctx); err != nil {
		return nil, err
	}
	result := j.result()
	if err := j.replay.followed(p, result); err != nil {
		return nil, err
	}
	if result.Arenas == 0 || result.Allocs == 0 {
		return nil, fmt.Errorf("%s: %w", p.Name, ErrNothingToVerify)
	}
	return result, nil
}

// all checks each event of the process. The error is a *Mismatch, or of reading the trace.
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

// of is the error of a process: a policy that memprof no longer has is no mismatch, if the event is as it was recorded.
func (m *Mismatch) of(p *dataset.Process) error {
	if m.Process = p.Name; m.gone != nil && m.FirstSeq < 0 {
		return fmt.Errorf("%s: %w", p.Name, m.gone)
	}
	return m
}

// judge compares checksums and replays in one pass. A wrong event is reported when the checksum of its
// block is known, since the block may have been changed at an event before it.
type judge struct {
	process *dataset.Process
	sums    *dataset.Rolling
	want    []uint64  // the recorded checksums
	agreed  int       // how many blocks, from the first, have the recorded checksum
	replay  *replayer // nil for readings of devices, and of a ring
	matched *matched  // of a ring: in place of the replay
	totals  *totals

	current   trace.Event // here, so that no event is allocated
	next      int64       // position of the next event
	wrong     *Mismatch   // the first wrong event
	firstLost int64       // seq of the first lost event, -1 for none
	afterLost int64       // events behind it that are not lost
}

func newJudge(p *dataset.Process) *judge {
	replay := newReplayer()
	return &judge{process: p, sums: p.Rolling(), want: p.Checksums(), replay: replay, totals: replay.totals, next: p.Dropped(), firstLost: -1}
}

func (j *judge) batch(b *trace.Batch) *Mismatch {
	strings := j.process.Strings()
	if j.matched != nil {
		b = j.matched.opening(b)
	}
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
	if j.wrong == nil || j.wrong.position >= j.block(j.agreed) || j.excused() {
		return nil
	}
	return j.wrong
}

// event checks one event. A wrong seq is never excused by lost events.
func (j *judge) event(e *trace.Event, strings *dataset.Strings) *Mismatch {
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
		switch {
		case j.replay == nil && j.matched == nil:
			if e.Kind != trace.KindDeviceUsed {
				wrong = atEvent(e, "a reading of a device", e.Kind.String())
			}
		case e.Kind == trace.KindTotals:
			wrong = j.totals.step(e, strings.Text(e.Context), j.matched == nil)
		case j.matched != nil:
			wrong = j.matched.step(e)
		default:
			wrong = j.replay.step(e, strings)
		}
	}
	if wrong != nil {
		wrong.position = wrong.Seq
	}
	return wrong
}

// cut says that a process which exited in order lacks its last totals.
func (j *judge) cut() *Mismatch {
	t := j.totals
	if t.seq < 0 || t.ended || !j.process.Whole || j.process.Ending.State != dataset.StateClosed {
		return nil
	}
	return atEvent(&j.current, "the totals with which a process ends behind it", fmt.Sprintf("nothing behind it, and the last totals at event %d", t.seq))
}

// excused says whether a contradiction may be an effect of lost events.
func (j *judge) excused() bool {
	return j.firstLost >= 0 && j.afterLost <= LostTail
}

// compare checks the checksums that are known on both sides.
func (j *judge) compare(sums []uint64) *Mismatch {
	for ; j.agreed < min(len(sums), len(j.want)); j.agreed++ {
		if sums[j.agreed] != j.want[j.agreed] {
			return j.changed()
		}
	}
	return nil
}

// block is the seq of the first event of a checksum's block, by its index. Blocks are counted from the start of the process.
func (j *judge) block(index int) int64 {
	return (j.process.Dropped()/dataset.BlockEvents + int64(index)) * dataset.BlockEvents
}

// changed returns the mismatch of the first block whose checksum is wrong, unless an event before it is
// wrong.
func (j *judge) changed() *Mismatch {
	first := max(j.block(j.agreed), j.process.Dropped())
	if j.wrong != nil && j.wrong.position < first && !j.excused() {
		return j.wrong
	}
	recorded := j.process.Dropped() + j.process.Recorded()
	m := &Mismatch{Seq: -1, Recorded: recorded, Present: recorded}
	behind := j.block(j.agreed + 1)
	if j.wrong != nil && j.wrong.position < behind {
		*m = *j.wrong
	}
	m.FirstSeq, m.LastSeq = first, max(first, min(behind, recorded)-1)
	return m
}

// end checks what is known only behind the last event.
func (j *judge) end() *Mismatch {
	sums := j.sums.Checksums()
	if j.process.Whole {
		sums = j.sums.Finish()
	}
	wrong := j.compare(sums)
	short := j.process.Whole && len(sums) != len(j.want)
	if wrong == nil && (short || j.next != j.process.Dropped()+j.process.Recorded()) {
		wrong = j.changed()
	}
	if wrong != nil {
		if wrong.FirstSeq >= 0 {
			wrong.Recorded, wrong.Present = j.process.Dropped()+j.process.Recorded(), j.next
		}
		return wrong
	}
	if j.wrong != nil && !j.excused() {
		return j.wrong
	}
	return j.cut()
}

func (j *judge) result() *Result {
	r := &Result{Process: j.process.Name, Events: j.next - j.process.Dropped(), Dropped: j.process.Dropped(), EndSeq: j.next - 1}
	var open *trace.Event
	if m := j.matched; m != nil {
		r.Allocs, r.Frees, r.Growths, r.Arenas = m.allocs, m.frees, m.growths, int64(len(m.arenas))
	} else {
		r.Allocs, r.Frees, r.Growths, r.Arenas = j.replay.allocs, j.replay.frees, j.replay.growths(), j.replay.ours
		open = j.replay.unfinished()
	}
	r.Counted = j.totals.seq + 1
	ending := &j.process.Ending
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
	case ending.State == dataset.StateKilled:
		r.EndsAt = fmt.Sprintf("event %d, the last before the process was killed", r.EndSeq)
	case ending.State == dataset.StateStopped:
		r.EndsAt = fmt.Sprintf("event %d, where the recording stopped: %s", r.EndSeq, ending.Reason)
	default:
		r.Complete = true
	}
	return r
}
