package torchalloc

import (
	"slices"
	"strings"

	"github.com/memprof/memprof/trace"
)

// Sized gives the events of a process that a Follower has followed to its end, with the sizes of blocks: then the
// recording is as one of an allocator that was not only observed.
type Sized struct {
	events   trace.Source
	follower *Follower
	replaced map[int32]string // contexts of arenas
}

// NewSized needs a Follower before the first event, and the events from the first on.
func NewSized(events trace.Source, f *Follower) *Sized {
	return &Sized{events: events, follower: f, replaced: map[int32]string{}}
}

// Text returns the text of a context.
func (s *Sized) Text(context int32) string {
	if text, ok := s.replaced[context]; ok {
		return text
	}
	return s.follower.text(context)
}

// Next returns the next events. The error is the source's, or the follower's.
func (s *Sized) Next() (*trace.Batch, error) {
	batch, err := s.events.Next()
	if err != nil {
		return nil, err
	}
	sized := *batch
	sized.Provided = slices.Clone(batch.Provided)
	for i := range batch.Len() {
		e := batch.Event(i)
		size, err := s.follower.Add(&e)
		if err != nil {
			return nil, err
		}
		if size > 0 {
			sized.Provided[i] = size
		}
		if e.Kind == trace.KindArena && s.follower.Of(&e) {
			s.replaced[e.Context] = strings.Replace(s.follower.text(e.Context), "\tprovided=unknown", "", 1)
		}
	}
	return &sized, nil
}
