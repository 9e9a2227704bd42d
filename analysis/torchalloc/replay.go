package torchalloc

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/trace"
)

// Options of a replay.
type Options struct {
	Settings []Settings // one replay for each
	Version  Version    // of the torch whose rules count
	// Placements is how many more replays under each settings without expandable segments place segments
	// without any order. If it is not 0, two more free the blocks that wait for other streams at once, and as late as can be.
	// All give [Outcome.Least] and [Outcome.Greatest].
	Placements int
	NoWaits    bool // no block waits for another stream: these two are left out
	Text       func(context int32) string
	// Cards, if set, has the size of each device for each settings, and what others than the allocator use of it. They differ in
	// their sizes alone.
	Cards []*accounting.Card
	// Opening is the first event of a snapshot's history. Recorded, if set, says for each settings whether the job ran under them: then the
	// segments and blocks that the events before it restate stay where they were.
	Recorded []bool
	Opening  int64
	// UntilRefused ends the replay of settings when a request was refused.
	UntilRefused bool
}

// Outcome is what one replay took, by device.
type Outcome struct {
	Reserved map[int32]int64 // the greatest, in bytes
	Refused  int64           // requests
	// Least and Greatest are those of Reserved over all placements of segments, the driver's included, and waits.
	Least, Greatest map[int32]int64
	// Used is the greatest sum of reserved bytes and those of others, by device; Needed the same with requested
	// bytes, and Spared without the requests that the card spares. They need Cards.
	Used, Needed, Spared map[int32]int64
	First                *accounting.Refusal // of Refused; nil if there is none
	// Maps and Unmaps are calls of the driver, for segments or pages, in a steady iteration: the mean of those from
	// number 4 on.
	Maps, Unmaps float64
	Totals       map[int32]uint64 // bytes of the devices
	placed       bool             // other placements can differ
}

// unknownTotal is the memory of a device whose size the recording does not have: an H200's.
const unknownTotal = 150_754_820_096

// Run replays all events of a source. The error says which event contradicts those before.
func Run(source trace.Source, o Options) ([]Outcome, error) {
	r := NewReplay(o)
	if err := r.run(source); err != nil {
		return nil, err
	}
	return r.Outcomes(), nil
}

// RunParts is [Run] in several passes over a source that open opens, side by side, with at most `together` replays at a time: every one
// has a copy of what is live. Other placements than the driver's are left out where its own decided nothing.
func RunParts[S interface {
	trace.Source
	io.Closer
}](open func() (S, error), o Options, together int) ([]Outcome, error) {
	out := make([]Outcome, len(o.Settings))
	workers := min(runtime.GOMAXPROCS(0), together)
	var mu sync.Mutex
	for _, likeliest := range []bool{true, false} {
		var numbers []int // of jobs
		for i, j := range NewReplay(o).jobs {
			if j.likeliest() == likeliest && (j.seed == 0 || out[j.of].placed) {
				numbers = append(numbers, i)
			}
		}
		var parts errgroup.Group
		parts.SetLimit(workers)
		for part := range slices.Chunk(numbers, max(1, min(together, len(numbers)+workers-1)/workers)) {
			parts.Go(func() error {
				r := NewReplay(o)
				jobs := r.jobs
				r.jobs, r.going = nil, len(part)
				for _, i := range part {
					r.jobs = append(r.jobs, jobs[i])
				}
				source, err := open()
				if err != nil {
					return err
				}
				err = errors.Join(r.run(source), source.Close())
				mu.Lock()
				defer mu.Unlock()
				r.addTo(out)
				return err
			})
		}
		if err := parts.Wait(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (r *Replay) run(source trace.Source) error {
	e := new(trace.Event)
	for {
		b, err := source.Next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		for i := range b.Seq {
			b.Read(i, e)
			if err := r.take(b, i, e); err != nil {
				return err
			}
			if r.UntilRefused && r.leaveRefused() {
				return nil
			}
		}
	}
}

// leaveRefused leaves out the jobs that were refused a request, and says whether none is left.
func (r *Replay) leaveRefused() bool {
	for i := 0; i < r.going; i++ {
		if j := r.jobs[i]; j.refused > 0 {
			j.blocks, j.devices = nil, nil
			r.going--
			r.jobs[i], r.jobs[r.going] = r.jobs[r.going], j
			i--
		}
	}
	return r.going == 0
}

// Replay follows a recording, and drives a job for each settings and placement.
type Replay struct {
	Options
	live   *trace.Live
	arenas map[int32]place
	totals map[int32]uint64   // bytes of each device whose size is known
	others *accounting.Others // nil without Cards
	jobs   []*job
	going  int  // how many of the jobs go on, the first ones
	marked bool // the last event was the end of an iteration
}

// NewReplay is a replay before the first event.
func NewReplay(o Options) *Replay {
	r := &Replay{Options: o, live: trace.NewLive(), arenas: map[int32]place{}, totals: map[int32]uint64{}}
	if o.Cards != nil {
		r.others = accounting.NewOthers(o.Cards[0], o.Text)
	}
	for i, s := range o.Settings {
		r.jobs = append(r.jobs, r.newJob(i, s, 0))
		if o.Placements > 0 && !o.NoWaits {
			for _, w := range []waits{notAtAll, long} {
				j := r.newJob(i, s, 0)
				j.waits = w
				r.jobs = append(r.jobs, j)
			}
		}
		for seed := range o.Placements {
			if !s.Expandable { // only the order of its reservations could differ, and it is kept
				r.jobs = append(r.jobs, r.newJob(i, s, uint64(seed)+1))
			}
		}
	}
	r.going = len(r.jobs)
	return r
}

// Stats returns what a device has now under one of the settings, where the driver places segments.
func (r *Replay) Stats(setting int, device int32) Stats {
	for _, j := range r.jobs {
		if j.of == setting && j.likeliest() {
			return j.device(device).Stats()
		}
	}
	return Stats{}
}

// place is where an arena's blocks are in PyTorch's allocator.
type place struct {
	device     int32
	stream     uint64
	pool       PoolID // zero: the default one
	expandable bool   // as recorded
	small      bool   // all its blocks are small ones
}

func newPlace(e *trace.Event, words map[string]string) (p place, err error) {
	p = place{device: e.Device, stream: uint64(e.Stream), expandable: words["coalesces"] == "1", small: words["class"] == "small"}
	p.pool, err = parsePool(words["pool"])
	return p, err
}

func (r *Replay) newJob(of int, s Settings, seed uint64) *job {
	j := &job{
		of: of, settings: s, version: r.Version, totals: r.totals, seed: seed, pools: map[poolOf]bool{},
		others: r.others,
	}
	if r.Cards != nil {
		j.card = r.Cards[of]
	}
	if r.Recorded != nil && r.Recorded[of] {
		j.opening = r.Opening
	}
	return j
}

// Add replays the next event. The error says that it contradicts those before.
func (r *Replay) Add(e *trace.Event) error { return r.take(&trace.Batch{}, 0, e) }

func (r *Replay) take(b *trace.Batch, i int, e *trace.Event) error {
	if r.others != nil {
		if change, ok := r.others.Add(e); ok {
			for _, j := range r.jobs[:r.going] {
				j.outside(e, change)
			}
		}
	}
	outcome, block := r.live.AddFrom(b, i, e)
	quiet := r.marked
	r.marked = e.Kind == trace.KindIteration
	switch e.Kind {
	case trace.KindArena:
		return r.begin(e)
	case trace.KindIteration:
		for _, j := range r.jobs[:r.going] {
			j.mark(quiet)
		}
		return nil
	case trace.KindReclaim:
		if e.Arena == trace.NoArena && trace.ParseContext(e.Kind, r.Text(e.Context)).Name() == "empty_cache" {
			for _, j := range r.jobs[:r.going] {
				_ = j.device(e.Device).EmptyCache() // it refuses in a capture only, as in the job
			}
		}
		return nil
	}
	at, known := r.arenas[e.Arena]
	if !known {
		return nil
	}
	switch {
	case e.Kind == trace.KindMap:
		for _, j := range r.jobs[:r.going] {
			j.mapped(at, e)
		}
	case outcome == trace.Replaced:
		return fmt.Errorf("event %d: a block at %#x, where one is live", e.Seq, e.Addr)
	case e.Kind == trace.KindPoolRelease:
		for _, j := range r.jobs[:r.going] {
			j.release(at)
		}
	case outcome == trace.Allocated && e.Kind == trace.KindAlloc:
		for _, j := range r.jobs[:r.going] {
			j.alloc(at, block.Slot, e)
		}
	case e.Kind == trace.KindOOM && r.Cards != nil && e.Requested <= accounting.LargestCard: // a card has to serve it; the job went on without it
		for _, j := range r.jobs[:r.going] {
			if b := j.request(at, e); b != nil {
				j.device(at.device).Free(b)
			}
		}
	case block == nil:
	case e.Kind == trace.KindStreamUse:
		for _, j := range r.jobs[:r.going] {
			j.use(at, block.Slot, uint64(e.Stream))
		}
	case outcome == trace.Pended, outcome == trace.Freed:
		for _, j := range r.jobs[:r.going] {
			j.free(at, block.Slot, e.Kind == trace.KindFree, outcome == trace.Freed)
		}
	}
	return nil
}

// begin adds an arena. Graph memory of memprof's has no likeness in PyTorch and is left out.
func (r *Replay) begin(e *trace.Event) error {
	words := trace.ParseContext(e.Kind, r.Text(e.Context)).Map()
	if words["graph_memory"] != "" {
		return nil
	}
	if words["main"] == "1" {
		total, err := e.CardMemory(words["total"])
		if err != nil {
			return err
		}
		if total > 0 {
			r.totals[e.Device] = total
		}
	}
	at, err := newPlace(e, words)
	if err != nil {
		return fmt.Errorf("event %d: arena %d: %w", e.Seq, e.Arena, err)
	}
	r.arenas[e.Arena] = at
	return nil
}

// parsePool reads the two numbers of a pool: "7.0", hexadecimal. The text of the default pool may be "".
func parsePool(text string) (id PoolID, err error) {
	first, second, _ := strings.Cut(cmp.Or(text, "0.0"), ".")
	for i, word := range [...]string{first, second} {
		if id[i], err = strconv.ParseUint(word, 16, 64); err != nil {
			return id, fmt.Errorf("pool=%q: want two numbers", text)
		}
	}
	return id, nil
}

// Outcomes returns what each of the settings took so far.
func (r *Replay) Outcomes() []Outcome {
	out := make([]Outcome, len(r.Settings))
	r.addTo(out)
	return out
}

// addTo adds the replays to what each of the settings took. The likeliest of each comes first.
func (r *Replay) addTo(out []Outcome) {
	for _, j := range r.jobs {
		o := &out[j.of]
		if j.likeliest() {
			*o = Outcome{
				Refused: j.refused, Reserved: map[int32]int64{}, Least: map[int32]int64{}, Greatest: map[int32]int64{},
				Used: map[int32]int64{}, Needed: map[int32]int64{}, Spared: map[int32]int64{}, First: j.first, Totals: map[int32]uint64{},
			}
			o.Maps, o.Unmaps = j.calls.means()
		}
		for _, d := range j.devices {
			number, peak := d.number, int64(d.stats.Reserved.Peak)
			if j.likeliest() {
				o.Used[number], o.Needed[number], o.Spared[number] = d.used, d.needed, d.spared
				o.Reserved[number], o.Least[number], o.Greatest[number] = peak, peak, peak
				if o.Totals[number] = j.totals[number]; o.Totals[number] == 0 {
					o.Totals[number] = unknownTotal
				}
				o.placed = o.placed || d.placed
				continue
			}
			o.Least[number], o.Greatest[number] = min(o.Least[number], peak), max(o.Greatest[number], peak)
		}
	}
}

// VersionOf returns the version of torch among the frameworks of a recording, "torch 2.11.0+cu130"; ok is false
// where torch is not among them, or its version is not known.
func VersionOf(frameworks []string) (v Version, ok bool) {
	for _, f := range frameworks {
		if text, found := strings.CutPrefix(f, "torch "); found {
			v, err := ParseVersion(text)
			return v, err == nil
		}
	}
	return 0, false
}
