package requests

import (
	"fmt"
	"slices"

	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/hooks/rerun"
	"github.com/memprof/memprof/trace"
)

// pooled takes events of pools, tags and captures.
func (r *Requests) pooled(event *trace.Event, context string) error {
	switch event.Kind {
	case trace.KindArena:
		r.describe(event, context)
	case trace.KindPoolBegin:
		r.requester.PoolBegin(event.Device, parsePool(trace.ParseContext(event.Kind, context).Get("pool")))
	case trace.KindPoolEnd:
		r.requester.PoolEnd(event.Device, parsePool(trace.ParseContext(event.Kind, context).Get("pool")))
	case trace.KindPoolRelease:
		r.release(event)
	case trace.KindCheckpoint:
		r.checkpoint(event)
	case trace.KindPause, trace.KindResume:
		r.pause(event, context)
	case trace.KindCaptureBegin:
		r.captureBegin(event, context)
	case trace.KindCaptureEnd:
		key := captured{event.Device, event.Stream}
		if capture := r.captures[key]; capture != nil {
			delete(r.captures, key)
			r.failed(event, r.requester.CaptureEnd(capture))
		}
	}
	return nil
}

// pause takes a pause or a resume, which has an event for each arena of its tag: the first does it. One
// by the source of a pool is left out, since a rerun does not have that allocator.
func (r *Requests) pause(event *trace.Event, context string) {
	fields := trace.ParseContext(event.Kind, context)
	tag, pauses := fields.Get("tag"), event.Kind == trace.KindPause
	if tag == "" || fields.Get("by") != "" || fields.Get("failed") != "" || r.paused[tag] == pauses {
		return
	}
	var err error
	if pauses {
		err = r.requester.Pause(tag, event.CopiedBytes() > 0)
	} else {
		err = r.requester.Resume(tag)
	}
	r.failed(event, err)
	if err == nil {
		r.paused[tag] = pauses
	}
}

// captured is a capture by its recorded stream.
type captured struct {
	device int32
	stream int64
}

func (r *Requests) captureBegin(event *trace.Event, context string) {
	fields := trace.ParseContext(event.Kind, context)
	capture, err := r.requester.CaptureBegin(event.Device, event.Stream, fields.Get("name"), parsePool(fields.Get("pool")), fields.Int("inputs", 0))
	r.failed(event, err)
	if err == nil {
		r.captures[captured{event.Device, event.Stream}] = capture
	}
}

// chunk is a block of a pool.
type chunk struct {
	rerun.Restored
	pool devicePool
}

// checkpoint notes the live blocks of a pool by their recorded places.
func (r *Requests) checkpoint(event *trace.Event) {
	p := r.arena(event)
	r.requester.Checkpoint(p.device, p.pool, event.Requested, event.Provided)
	pool := devicePool{p.device, p.pool}
	noted := map[block]rerun.Restored{}
	for key, c := range r.chunks {
		if c.pool == pool {
			noted[key] = c.Restored
		}
	}
	r.checkpoints[pool] = append(r.checkpoints[pool], noted)
}

// restoring is a checkpoint that is being read: its blocks come one by one.
type restoring struct {
	arena     *recordedArena
	seq       int64
	keys      []block
	requested []int64
}

func (r *Requests) restored(event *trace.Event) {
	p := r.arena(event)
	if now := r.restore.arena; now != nil && (now.device != p.device || now.pool != p.pool) {
		r.finishRestore()
	}
	r.restore.arena, r.restore.seq = p, event.Seq
	r.restore.keys = append(r.restore.keys, block{event.Arena, event.Addr})
	r.restore.requested = append(r.restore.requested, event.Requested)
}

// among are the blocks as a checkpoint noted them; false if it is another one.
func (now *restoring) among(noted map[block]rerun.Restored) ([]rerun.Restored, bool) {
	if len(noted) != len(now.keys) {
		return nil, false
	}
	blocks := make([]rerun.Restored, len(now.keys))
	for i, key := range now.keys {
		b, ok := noted[key]
		if !ok || b.Requested != now.requested[i] {
			return nil, false
		}
		blocks[i] = b
	}
	return blocks, true
}

// finishRestore makes the blocks of a checkpoint live: of the last that had them.
func (r *Requests) finishRestore() {
	now := r.restore
	if len(now.keys) == 0 {
		return
	}
	r.restore = restoring{}
	pool := devicePool{now.arena.device, now.arena.pool}
	for _, noted := range slices.Backward(r.checkpoints[pool]) {
		blocks, ok := now.among(noted)
		if !ok {
			continue
		}
		err := r.requester.Restore(pool.device, pool.pool, blocks)
		r.failed(&trace.Event{Seq: now.seq, Kind: trace.KindRestore}, err)
		for i := 0; i < len(blocks) && err == nil; i++ {
			r.live[now.keys[i]] = blocks[i].Address
			r.chunks[now.keys[i]] = chunk{blocks[i], pool}
		}
		return
	}
	r.failed(&trace.Event{Seq: now.seq, Kind: trace.KindRestore}, fmt.Errorf("no checkpoint has these %d blocks", len(now.keys)))
}

// failed notes a call other than a request that the recording made and that failed now.
func (r *Requests) failed(event *trace.Event, err error) {
	if err == nil {
		return
	}
	if r.Failures == 0 {
		screen.Complain(r.stderr, fmt.Sprintf("event %d: %s, which succeeded in the recording, failed: %v", event.Seq, event.Kind, err))
	}
	r.Failures++
}
