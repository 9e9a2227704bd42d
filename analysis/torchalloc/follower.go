package torchalloc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/memprof/memprof/trace"
)

// SetInCode is the problem that the hook records when a job changes allocator settings in its code; hooks/python/memprof/_watch.py has the
// same text.
const SetInCode = "torch: the job changes settings of the allocator in its code, which verify does not follow"

// ErrNotModeled is the error of what the model does not have.
var ErrNotModeled = errors.New("not followed by the model of PyTorch's allocator")

// Difference is the first event that is not as the model has it. It is an error.
type Difference struct {
	Seq             int64
	Expected, Found string
}

func (d *Difference) Error() string {
	return fmt.Sprintf("event %d: expected %s, found %s", d.Seq, d.Expected, d.Found)
}

// Followed is what was compared, and what was taken from the trace.
type Followed struct {
	Allocs   int64  `json:"allocs"` // blocks at the same address
	Frees    int64  `json:"-"`
	Segments int64  `json:"segments"` // segments and ranges of pages: the same sizes were mapped, at addresses of the trace
	Releases int64  `json:"releases"` // of the same segments and pages
	Emptied  int64  `json:"emptied"`  // runs of releases without a refused request: the cache was emptied
	Readings int64  `json:"readings"` // of PyTorch's own sum of blocks, which were equal
	Odd      int64  `json:"odd"`      // of it, which were not: a reading may lie between two events
	Settings string `json:"settings"` // text of PYTORCH_CUDA_ALLOC_CONF
}

// Follower drives a model for each device of a process.
type Follower struct {
	Followed
	// Sized follows arenas that say the sizes of their blocks, too: those of imported snapshots. The sizes are compared.
	Sized bool
	// Opening is the first event of a snapshot's history: those before it say which segments and blocks were there.
	Opening int64
	// Conf is the text of PYTORCH_CUDA_ALLOC_CONF for those arenas.
	Conf    string
	version Version
	text    func(context int32) string
	arenas  map[int32]followedArena
	devices map[int32]*followedDevice
	before  map[int64]bool  // addresses of segments that PyTorch had before the first event, and whether they are of the small pool; the events that restate them come next
	sizes   map[int64]int64 // of blocks from before the first event, by address, until the event that restates the block
}

// NewFollower is before the first event. Text gives the text of a context.
func NewFollower(version Version, text func(context int32) string) *Follower {
	return &Follower{version: version, text: text, arenas: map[int32]followedArena{}, devices: map[int32]*followedDevice{}, before: map[int64]bool{}, sizes: map[int64]int64{}}
}

// followedArena is where an arena's blocks are in PyTorch's allocator.
type followedArena struct {
	place
	conf  string // text of PYTORCH_CUDA_ALLOC_CONF
	sized bool   // the trace has the sizes of blocks
}

// followedDevice is the model of one device.
type followedDevice struct {
	script
	opening
	a          *Allocator
	expandable bool
	partial    bool // settings under which a release need not be of everything
	blocks     map[int64]*Block
	before     bool            // the last events restate memory from before the first event
	last       *Block          // handed out by the last event; nil after another one
	rest       *Block          // what a checkpoint hands out next, of the segment of last
	private    map[PoolID]bool // in use
}

// Of says whether an event is of an arena that is followed.
func (f *Follower) Of(e *trace.Event) bool {
	_, known := f.arenas[e.Arena]
	return known
}

// Add takes the next event, and returns the bytes of the block that it allocates or frees. The error is a *Difference, or
// ErrNotModeled.
func (f *Follower) Add(e *trace.Event) (size int64, err error) {
	switch e.Kind {
	case trace.KindArena:
		return 0, f.arena(e)
	case trace.KindExternalFree: // a call of CUDA that was recorded is the allocator's own
		if f.text(e.Context) != "native" {
			return 0, nil
		}
		if e.Provided > 0 {
			f.sizes[e.Addr] = e.Provided
		} else {
			f.before[e.Addr] = e.Requested == 1
		}
		return 0, nil
	case trace.KindStatistics:
		f.statistics(e)
		return 0, nil
	}
	at, known := f.arenas[e.Arena]
	if !known {
		return 0, nil
	}
	d := f.devices[at.device]
	if d == nil {
		if d, err = f.begin(at); err != nil {
			return 0, err
		}
	}
	if d.rest != nil && (e.Kind != trace.KindAlloc || uint64(e.Addr) != d.rest.addr) {
		return 0, &Difference{e.Seq, fmt.Sprintf("the rest of a checkpoint's segment at %#x", d.rest.addr), fmt.Sprintf("%v at %#x", e.Kind, uint64(e.Addr))}
	}
	if e.Kind != trace.KindAlloc {
		small, restated := f.before[e.Addr]
		d.last, d.before = nil, e.Kind == trace.KindMap && (restated || e.Seq < f.Opening)
		at.small = at.small || small
		delete(f.before, e.Addr)
	}
	switch e.Kind {
	case trace.KindMap, trace.KindUnmap:
		if at.expandable != d.expandable {
			return 0, fmt.Errorf("event %d: both kinds of segments: %w", e.Seq, ErrNotModeled)
		}
		if d.before {
			defer d.open(at)()
			if at.expandable {
				d.calls = append(d.calls, *e)
			}
			d.adopt(d.a, at.place, e)
		} else {
			d.calls = append(d.calls, *e)
		}
		if e.Kind == trace.KindMap {
			f.Segments++
		} else {
			f.Releases++
		}
		return 0, nil
	case trace.KindAlloc:
		if e.Seq < f.Opening {
			return f.restated(d, e, e.Provided)
		}
		if size, ok := f.sizes[e.Addr]; ok {
			delete(f.sizes, e.Addr)
			return f.restated(d, e, size)
		}
		if size, err = f.alloc(d, at, e); err != nil && d.before {
			err = fmt.Errorf("event %d: blocks from before the first event: %w", e.Seq, ErrNotModeled)
		}
		return size, err
	case trace.KindOOM:
		return 0, f.refused(d, at, e)
	case trace.KindStreamUse:
		if b := d.blocks[e.Addr]; b != nil {
			d.a.RecordStream(b, uint64(e.Stream))
		}
	case trace.KindFree, trace.KindFreeDone:
		return f.free(d, e)
	case trace.KindPoolRelease:
		d.releasePool(at.pool)
	}
	return 0, nil
}

// restated places a block of so many bytes that was there before the first event.
func (f *Follower) restated(d *followedDevice, e *trace.Event, size int64) (int64, error) {
	b := d.place(d.a, e, size)
	if b == nil {
		return 0, fmt.Errorf("event %d: a block of %d bytes at %#x, where no segment is free: %w", e.Seq, size, uint64(e.Addr), ErrNotModeled)
	}
	d.blocks[e.Addr] = b
	f.Allocs++
	return size, nil
}

// arena notes an arena of PyTorch's own allocator.
func (f *Follower) arena(e *trace.Event) error {
	words := trace.ParseContext(e.Kind, f.text(e.Context)).Map()
	if words["allocator"] != "native" || words["provided"] == "" && !f.Sized {
		return nil
	}
	at, err := newPlace(e, words)
	if err != nil {
		return fmt.Errorf("event %d: %w: %w", e.Seq, err, ErrNotModeled)
	}
	f.arenas[e.Arena] = followedArena{place: at, conf: cmp.Or(words["conf"], f.Conf), sized: words["provided"] == ""}
	return nil
}

func (f *Follower) begin(at followedArena) (*followedDevice, error) {
	settings, err := ParseSettings(at.conf, f.version)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, ErrNotModeled)
	}
	f.Settings = at.conf
	settings.Expandable = at.expandable // the job may have set it itself
	d := &followedDevice{
		expandable: at.expandable, blocks: map[int64]*Block{}, private: map[PoolID]bool{},
		partial: !at.expandable && (settings.MaxSplit != DefaultSettings().MaxSplit || settings.GarbageCollection > 0),
	}
	d.a = NewAllocator(AllocatorOptions{Settings: settings, Version: f.version, Total: endless}, &d.script)
	f.devices[at.device] = d
	return d, nil
}

// emptyCache empties the cache where the recording has releases that no request made.
func (f *Follower) emptyCache(d *followedDevice, seq int64) error {
	if len(d.calls) == 0 || d.calls[0].Kind != trace.KindUnmap {
		return nil
	}
	f.Emptied++
	var pools []PoolID
	for i := range d.calls { // memory of a private pool is released when nobody uses the pool any more
		if d.calls[i].Kind == trace.KindMap {
			break
		}
		pools = append(pools, f.arenas[d.calls[i].Arena].pool)
		d.releasePool(pools[i])
	}
	if slices.Contains(pools, PoolID{}) {
		_ = d.a.EmptyCache() // no scope is open
	} else { // a MemPool ended, or the cache was emptied in a scope
		for _, id := range pools {
			d.a.EmptyPool(id)
		}
	}
	if d.wrong == "" && len(d.calls) > 0 && d.calls[0].Kind == trace.KindUnmap {
		return &Difference{seq, "no release", describe(&d.calls[0])}
	}
	return d.judge(seq)
}

// emptied says whether the releases at hand are of all that an emptying of the cache would release. Under some settings
// a request releases less.
func (d *followedDevice) emptied() bool {
	released, whole := 0, 0
	for released < len(d.calls) && d.calls[released].Kind == trace.KindUnmap {
		released++
	}
	for _, s := range d.a.Segments() {
		if len(s.Blocks) == 1 && s.Blocks[0].State() == Free {
			whole++
		}
	}
	return released >= whole
}

func (d *followedDevice) releasePool(id PoolID) {
	if d.private[id] {
		delete(d.private, id)
		_ = d.a.ReleasePool(id) // it is in use
	}
}

// judge returns what the model did that the recording has not.
func (d *followedDevice) judge(seq int64) error {
	switch {
	case d.lost:
		return fmt.Errorf("event %d: an expandable segment without pages: %w", seq, ErrNotModeled)
	case d.wrong == "":
		return nil
	case len(d.calls) > 0:
		return &Difference{seq, d.wrong, describe(&d.calls[0])}
	}
	return &Difference{seq, d.wrong, "none"}
}

// describe says what an event of the memory is.
func describe(e *trace.Event) string {
	what := "a map"
	if e.Kind == trace.KindUnmap {
		what = "a release"
	}
	return fmt.Sprintf("%s of %d bytes at %#x (event %d)", what, e.Provided, uint64(e.Addr), e.Seq)
}

// open sends requests to an arena's private pool, if it is of one, until the returned function is called.
func (d *followedDevice) open(at followedArena) (end func()) {
	if at.pool == (PoolID{}) {
		return func() {}
	}
	first := !d.private[at.pool]
	d.private[at.pool] = true
	return d.a.enter(at.pool, first)
}

// request makes a request of the model. block is nil if it is refused.
func (f *Follower) request(d *followedDevice, at followedArena, e *trace.Event) (block *Block, err error) {
	if !d.partial || d.emptied() {
		if err := f.emptyCache(d, e.Seq); err != nil {
			return nil, err
		}
	}
	if at.pool != (PoolID{}) {
		defer d.open(at)()
		if b := d.restored(at, e); b != nil {
			return b, nil
		}
	}
	block, refused := d.a.Malloc(uint64(e.Requested), at.stream)
	if refused != nil {
		return nil, nil
	}
	return block, d.judge(e.Seq)
}

// restored makes a request of the model that a checkpoint made, or returns nil.
func (d *followedDevice) restored(at followedArena, e *trace.Event) *Block {
	if len(d.calls) > 0 {
		return nil
	}
	b := d.a.restored(uint64(e.Requested), uint64(e.Addr), at.stream, d.last)
	if b != nil {
		d.rest = b.next
	}
	return b
}

func (f *Follower) alloc(d *followedDevice, at followedArena, e *trace.Event) (size int64, err error) {
	if e.Requested <= 0 {
		return 0, fmt.Errorf("event %d: a request of %d bytes: %w", e.Seq, e.Requested, ErrNotModeled)
	}
	b, err := f.request(d, at, e)
	if err != nil {
		return 0, err
	}
	found := fmt.Sprintf("%d bytes at %#x", e.Requested, uint64(e.Addr))
	switch {
	case b == nil:
		if d.wrong == "" {
			d.blame("more memory for %d bytes", e.Requested)
		}
		return 0, &Difference{e.Seq, d.wrong, found + " without it"}
	case len(d.calls) > 0:
		return 0, &Difference{e.Seq, fmt.Sprintf("%d bytes at %#x without more memory", e.Requested, b.Addr()), describe(&d.calls[0])}
	case b.Addr() != uint64(e.Addr):
		return 0, &Difference{e.Seq, fmt.Sprintf("%d bytes at %#x", e.Requested, b.Addr()), found}
	case at.sized && uint64(e.Provided) != b.Size():
		return 0, &Difference{e.Seq, fmt.Sprintf("a block of %d bytes", b.Size()), fmt.Sprintf("one of %d", e.Provided)}
	}
	d.blocks[e.Addr], d.last = b, b
	if d.rest != nil {
		d.rest = b.next
	}
	if d.rest != nil && !d.rest.mapped {
		d.rest = nil
	}
	f.Allocs++
	return int64(b.Size()), nil
}

// refused makes a request of the model that was refused in the recording: then all that is free was released.
func (f *Follower) refused(d *followedDevice, at followedArena, e *trace.Event) error {
	if e.Requested <= 0 {
		return nil
	}
	b, err := f.request(d, at, e)
	if err != nil {
		return err
	}
	d.wrong = "" // a segment was asked for, as it should be
	if b != nil {
		return &Difference{e.Seq, fmt.Sprintf("%d bytes at %#x", e.Requested, b.Addr()), "out of memory"}
	}
	if d.lost {
		return d.judge(e.Seq)
	}
	return nil
}

func (f *Follower) free(d *followedDevice, e *trace.Event) (size int64, err error) {
	b := d.blocks[e.Addr]
	if b == nil {
		return 0, &Difference{e.Seq, "a block that is live", fmt.Sprintf("a free at %#x", uint64(e.Addr))}
	}
	if err := f.emptyCache(d, e.Seq); err != nil {
		return 0, err
	}
	size = int64(b.Size())
	if e.Kind == trace.KindFreeDone {
		d.a.Complete(b)
		delete(d.blocks, e.Addr)
		return size, nil
	}
	f.Frees++
	if !d.a.Free(b) {
		delete(d.blocks, e.Addr)
	}
	return size, nil
}

// statistics compares PyTorch's own sum of blocks with the model's.
func (f *Follower) statistics(e *trace.Event) {
	d := f.devices[e.Device]
	if d == nil {
		return
	}
	if _, provided, _ := e.Statistics(); uint64(provided) == d.a.Stats().Allocated.Now {
		f.Readings++
	} else {
		f.Odd++
	}
}

// End judges what is left after the last event.
func (f *Follower) End(seq int64) error {
	for _, d := range f.devices {
		if err := f.emptyCache(d, seq); err != nil {
			return err
		}
	}
	return nil
}

// All follows all events that each gives, and judges what is left after the last.
func (f *Follower) All(ctx context.Context, each func(visit func(*trace.Event) error) error) error {
	last := int64(0)
	err := each(func(e *trace.Event) error {
		last = e.Seq
		if _, err := f.Add(e); err != nil {
			return err
		}
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	return f.End(last)
}
