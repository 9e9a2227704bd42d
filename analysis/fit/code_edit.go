package fit

import (
	"cmp"
	"io"
	"slices"

	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/trace"
)

// edit is a history with changes.
type edit struct {
	*History
	left   []bool          // events that are left out
	sizes  map[int32]int64 // other requested bytes, by the event of an alloc
	copies map[int32]int64 // by the event of a free: the address of the copy that it frees instead
	ops    []op            // what comes in, in the order of events after sorted
	claims map[int32]bool  // the blocks that the change is about
	hint   string          // ends the change's text: what else the job has to do
}

// op is an alloc or a free that comes in before an event.
type op struct {
	before int32
	frees  bool
	block  int32
	addr   int64 // of a copy; 0: of the block itself
	bytes  int64 // 0: as many as the block
	done   int32 // not 0: it is neither, but this end of a block's wait for other streams
}

func (h *History) edit() *edit {
	return &edit{History: h, left: make([]bool, len(h.events)), sizes: map[int32]int64{}, copies: map[int32]int64{}, claims: map[int32]bool{}}
}

// cut ends the life of a block before an event.
func (e *edit) cut(i int32, before int32) {
	b := &e.blocks[i]
	if b.free < int32(len(e.events)) {
		e.left[b.free] = true
	}
	e.ops = append(e.ops, op{before: before, frees: true, block: i})
	e.claims[i] = true
}

// drop leaves a block out.
func (e *edit) drop(i int32) {
	e.replace(i)
	e.claims[i] = true
}

// replace leaves a block out and makes no claim on it, since the change puts another one in its place.
func (e *edit) replace(i int32) {
	b := &e.blocks[i]
	e.left[b.alloc] = true
	if b.free < int32(len(e.events)) {
		e.left[b.free] = true
	}
}

// resize gives a block another size.
func (e *edit) resize(i int32, bytes int64) {
	e.sizes[e.blocks[i].alloc] = max(bytes, 1)
	e.claims[i] = true
}

// copyAddress is where copies are: far above all addresses of a device.
const copyAddress = int64(1) << 61

// newCopy makes a copy of a block before an event, and returns its address.
func (e *edit) newCopy(i int32, before int32) int64 {
	addr := copyAddress + int64(len(e.ops))<<12
	e.ops = append(e.ops, op{before: before, block: i, addr: addr})
	return addr
}

// revive makes a block that was cut anew before an event; its recorded free frees the copy.
func (e *edit) revive(i int32, before int32) {
	addr := e.newCopy(i, before)
	if free := e.blocks[i].free; free < int32(len(e.events)) {
		e.left[free] = false
		e.copies[free] = addr
	}
}

// keepUntil lets a block live until before an event.
func (e *edit) keepUntil(i, before int32) { e.live(i, e.blocks[i].alloc, before) }

// live lets a block live from before an event until before another one. It is at an address of its own, as its recorded one may be another block's
// then.
func (e *edit) live(i, from, until int32) {
	e.replace(i)
	addr := e.newCopy(i, from)
	if until < int32(len(e.events)) {
		e.ops = append(e.ops, op{before: until, frees: true, block: i, addr: addr})
	}
}

// empty says whether nothing was changed.
func (e *edit) empty() bool { return len(e.claims) == 0 }

// sorted brings the ops into the order of events; of those before one event the order in which they were made stays.
func (e *edit) sorted() {
	slices.SortStableFunc(e.ops, func(x, y op) int { return cmp.Compare(x.before, y.before) })
}

// size is what a block requests.
func (e *edit) size(b *block) int64 {
	if bytes, ok := e.sizes[b.alloc]; ok {
		return bytes
	}
	return b.bytes
}

// sizeOf is what an op requests or frees.
func (e *edit) sizeOf(o *op) int64 { return cmp.Or(o.bytes, e.size(&e.blocks[o.block])) }

// requested is the greatest sum of requested bytes.
func (e *edit) requested() (most int64) {
	e.sorted()
	changes := make([]int64, len(e.events)+1)
	for i := range e.blocks {
		b := &e.blocks[i]
		if !e.left[b.alloc] {
			changes[b.alloc] += e.size(b)
		}
		if int(b.free) < len(e.events) && !e.left[b.free] && !e.left[b.alloc] {
			changes[b.free] -= e.size(b)
		}
	}
	now, next := int64(0), 0
	for at := range changes {
		for ; next < len(e.ops) && int(e.ops[next].before) == at; next++ {
			if bytes := e.sizeOf(&e.ops[next]); e.ops[next].frees {
				now -= bytes
			} else if e.ops[next].done == 0 {
				now += bytes
			}
			most = max(most, now)
		}
		now += changes[at]
		most = max(most, now)
	}
	return most
}

// bytesAtPeak is what the blocks that the change is about requested at the recorded peak.
func (e *edit) bytesAtPeak() int64 { return e.bytesAtPeakOf(attribution.NoCategory) }

// bytesAtPeakOf are those of one category, of all for NoCategory.
func (e *edit) bytesAtPeakOf(category attribution.Category) (bytes int64) {
	for i := range e.claims {
		if b := &e.blocks[i]; e.atPeak(b) && (category == attribution.NoCategory || b.category == category) {
			bytes += b.bytes
		}
	}
	return bytes
}

// job is a job whose events are the edited ones.
func (e *edit) job(of *Job) *Job {
	e.sorted()
	edited := *of
	edited.survey = nil
	edited.Open = func() (Source, error) { return &editedSource{edit: e}, nil }
	return &edited
}

// editedSource gives the edited events in order.
type editedSource struct {
	*edit
	at, next int // of events, and of ops
	batch    trace.Batch
}

// batchEvents is how many recorded events a batch has.
const batchEvents = 4096

func (s *editedSource) Next() (*trace.Batch, error) {
	if s.at > len(s.events) {
		return nil, io.EOF
	}
	s.batch.Head(0)
	for range batchEvents {
		for ; s.next < len(s.ops) && int(s.ops[s.next].before) == s.at; s.next++ {
			event := s.event(&s.ops[s.next])
			s.batch.Append(&event)
		}
		if s.at == len(s.events) {
			s.at++
			break
		}
		if !s.left[s.at] {
			event := s.events[s.at]
			if bytes, ok := s.sizes[int32(s.at)]; ok {
				event.Requested, event.Provided = bytes, bytes
			}
			if addr, ok := s.copies[int32(s.at)]; ok {
				event.Addr = addr
			}
			s.batch.Append(&event)
		}
		s.at++
	}
	return &s.batch, nil
}

// event is an op as an event, of the same time as the recorded one that it comes before.
func (s *editedSource) event(o *op) trace.Event {
	event := s.events[s.blocks[o.block].alloc]
	event.Requested = s.sizeOf(o)
	if o.frees {
		event.Kind = trace.KindFree
	}
	if o.addr != 0 {
		event.Addr = o.addr
	}
	if o.done != 0 {
		event = s.events[o.done]
	}
	near := &s.events[min(int(o.before), len(s.events)-1)]
	event.Seq, event.Time = near.Seq, near.Time
	return event
}

func (s *editedSource) Close() error { return nil }
