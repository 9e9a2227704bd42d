// Package fit finds the least card on which a recorded job completes: under PyTorch's own allocator, with and
// without expandable segments, and under presets of memprof's.
//
// # The least card
//
// A card of N bytes is one of which the driver can allocate N before the job begins. At each event the
// allocator can have what others do not use of it:
//
//	other libraries   as the recording's events say
//	driver overhead   CUDA context, kernels, graphs: likewise
//	unexplained       the rest of what the device accounting read at the peak, a constant
//	headroom          what the caller wants to stay free, a constant
//
// A job completes if no request is refused, after all that its allocator does to serve it, and if each
// allocation of another library or the driver finds its memory. memprof's allocator unmaps free memory for other
// libraries; PyTorch's own keeps its cached segments, as it does in a job.
//
// A job that makes do with less where memory is short completes on less. cuDNN does: where its workspace is refused,
// PyTorch takes an algorithm with a smaller one, which no recording has. A request that is freed before any
// other request or free looks like a workspace. Where such a request fails first, a second search does without those that fail
// ([Need.Without]): the job completes on a card between the two.
//
// # The search
//
// The card is at least the greatest sum of requested bytes and others, and at most that of reserved bytes and
// others of a replay without a limit. Fragmentation need not fall as a card grows: on a smaller card PyTorch releases
// a cached segment that it splits on a larger one, and the job may complete on the smaller one alone. So cards between both are
// tried, 0.5 % apart or up to 64. The least card is above all that fail: bisection finds one on which the replay completes, and a
// smaller one by [Step] at most on which it does not. [Need.Lowest] is found likewise, below all that complete.
//
// A card that fails between two on which the job completes, 0.5 % apart, does not count: PyTorch's cached segments leave just too
// little there for a library's allocation, say. The needs of two recordings of one job differ by that much, so that another
// card fails in the other. [Need.Highest] is above these, too.
//
// # A dry run
//
// A dry run does not know the size of each workspace: it requests the likely bytes, and a label says that there may be from 0 to so many.
// Nor does it know how far the host is ahead of the work of other streams, for which blocks wait. The job is replayed as it is, without these
// workspaces, with the most of each, and with choices between the two ([History.Edges]); and with several paces of the device. All of them
// together are the band of each number ([Bands]); its upper end is what the job is said to need.
// On a card on which all complete the job fits; on one on which only some do, what is not known decides ([Row.Within]).
//
// # Other code
//
// A recording is also replayed as if the job's code were another: with a module checkpointed, its loss computed in chunks, its
// gradients freed before the next forward.
//
// A [History] is a process's events with the life of each allocation. A change edits it: it cuts lives short, makes blocks
// anew before they are needed again, leaves blocks out, or gives them other sizes. The edited history is a source of events like any
// other, so that it is replayed and asked for its least card like any other.
//
// Only blocks with a plain life are edited, from an alloc to a free: none that other streams use, of CUDA graphs, or in paused
// arenas.
//
//	use-cache      no KV cache in a job that trains: keys and values live as long as backward needs what their module made
//	attention      the matrices of attention scores are never there: an attention module makes one of them while another is live, both
//	               at least twice as large as its output
//	chunked-loss   the last layer and the loss in eight chunks, each in a checkpoint: the loss's blocks, and those made of them at their
//	               size or twice, four times, half or a quarter, have an eighth of it until backward has passed the layer. The sum of
//	               its weight's gradients lives beside each chunk's
//	zero-grad      gradients that are alive in the next forward are freed at the end of the optimizer's step. Those that stay for
//	               good are made again in each backward
//	no-grad        in a forward of which a backward frees nothing, of a job that trains, what modules make lives until the next two
//	               of their blocks
//	fused          no temporaries of the step of Adam, AdamW or SGD, where it works on lists of parameters
//	foreach        of another of torch's optimizers' temporaries those of one parameter are live at a time, one or two of its size
//	workspace      cuBLAS's workspaces of 32 MiB, as on Hopper, have the size that they have on cards before it
//	checkpoint     what a module saves for backward is freed in forward: what a part of it saves for itself when the next part begins,
//	               what its parts return at its end, and its own output not at all. Its forward is repeated before the first operator of
//	               backward that frees one of these blocks, or the output of a module that ends with an operator in place
//	batch          activations, loss, inputs and temporaries of forward and backward have seven eighths of their size, where no
//	               module is worth a checkpoint
//	kv-cache       the same, where most of these bytes are a KV cache and no pass is marked, as when an engine starts
//
// A change is proposed if the greatest sum of requested bytes falls by it, and of those that are about the same bytes the one that
// costs no time, then the one that saves most. Checkpoints, smaller workspaces and smaller batches may cost time.
//
// # An engine's start
//
// [PlanEngine] divides a card from a recording of a serving engine's start, and says what settings follow: see [Plan]. What PyTorch's own
// allocator reserves for weights and the profiled batch is replayed without the KV cache, graphs are replayed in their pools, and those that
// were not captured follow from the first three of their list (package graphs).
package fit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/torchalloc"
	"github.com/memprof/memprof/analysis/tune"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
)

// Source gives the events of a process in order; io.EOF ends them.
type Source interface {
	trace.Source
	Close() error
}

// Job is a process of a recorded job.
type Job struct {
	Name     string
	Open     func() (Source, error) // from the first event; called by several goroutines
	Text     func(context int32) string
	Reserved int64     // as recorded, the greatest on a device
	Recorded Allocator // that it ran under; of memprof's, what Compare tries of its policy
	// Torch are the rules of the PyTorch that the job ran with; nil without PyTorch.
	Torch *torchalloc.Version
	// Opening is the first event of a snapshot's history. Those before it say which segments and blocks were there under the recorded
	// allocator; 0 where the recording has the whole job.
	Opening int64
	Card    string // that the process ran on; "" if not known
	// WholeCard counts driver overhead that was measured as growth of the whole card: no other process was there.
	WholeCard bool
	Simulated bool // the device is: events say all that is in use
	DryRun    bool // it may have workspaces of unknown sizes
	// Read is what others than the arenas and other libraries use, by device, as the device accounting has it.
	Read map[int32]Reading
	// Used are the readings of what the process uses, by device: of the whole card, where they are, without what was in use before the job.
	Used map[int32][]accounting.Used
	// Assumed is what the driver and other libraries are taken to use of each device, in bytes, if the recording says nothing of it.
	Assumed int64
	survey  *Survey
}

// Reading is the driver's memory after an event, in bytes.
type Reading struct {
	Seq   int64
	Bytes int64
}

// Allocator is what a job is put under.
type Allocator struct {
	Allocator string     // "torch" or "memprof"
	Setting   string     // of torch: "native", or the text of PYTORCH_CUDA_ALLOC_CONF
	Policy    bfc.Policy // of memprof
}

const native, expandable = "native", "expandable_segments:True"

// Need is the least card of a job under an allocator. Bytes of parts are those when the replay on this card used
// most of the card.
type Need struct {
	Allocator
	Process string
	Bytes   int64
	// Lowest is the least card on which the job was found to complete: below Bytes where a card between them is too small.
	Lowest int64
	// Highest is the least card above all on which the job was found to fail, single ones as well.
	Highest int64
	// Requested is the greatest sum of requested bytes and others: no allocator needs less.
	Requested int64
	// Reserved is the greatest that the allocator reserves without a limit.
	Reserved int64
	// Below is the refusal on a card smaller by a page.
	Below *accounting.Refusal
	// Without is the least card if the job does without workspaces that fail; 0 where other requests fail first.
	Without int64
}

const page = 2 << 20 // by so much a card that was found may be too large, in bytes

// ErrNoTorch is the error of a job without PyTorch under one of its settings.
var ErrNoTorch = errors.New("the job has no PyTorch")

// Least finds the least card for each allocator, in their order. Those of PyTorch are left out where the job has none.
func Least(ctx context.Context, j *Job, s *Survey, o Options) ([]Need, error) {
	found, failed := make([]*Need, len(o.Allocators)), make([]error, len(o.Allocators))
	var wait sync.WaitGroup
	for i, a := range o.Allocators {
		wait.Go(func() { found[i], failed[i] = least(ctx, j, s, a, &o) })
	}
	wait.Wait()
	var needs []Need
	for i, err := range failed {
		switch {
		case errors.Is(err, ErrNoTorch):
		case err != nil:
			return nil, fmt.Errorf("%s: %w", j.Name, err)
		default:
			needs = append(needs, *found[i])
		}
	}
	return needs, nil
}

// unlimited is a card that no job fills, in bytes.
const unlimited = 1 << 50

// On replays a job on a card of so many bytes. refused is nil where it completes.
func On(ctx context.Context, j *Job, s *Survey, a Allocator, bytes, headroom int64) (refused *accounting.Refusal, err error) {
	out, err := replay(ctx, j, s, a, []*accounting.Card{s.card(j, bytes, headroom)}, true)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", j.Name, err)
	}
	return out[0].first, nil
}

// outcome is a replay on a card.
type outcome struct {
	used, needed, spared map[int32]int64
	reserved             int64
	first                *accounting.Refusal
}

func greatest(byDevice map[int32]int64) (bytes int64) {
	for _, n := range byDevice {
		bytes = max(bytes, n)
	}
	return bytes
}

func (a *Allocator) name() string {
	if a.Allocator == "torch" {
		return "torch " + a.Setting
	}
	return a.Allocator + " " + a.Policy.Preset.String()
}

// replay replays a job on several cards in one pass, which differ in their sizes alone.
func replay(ctx context.Context, j *Job, s *Survey, a Allocator, on []*accounting.Card, untilRefused bool) ([]outcome, error) {
	s.room <- struct{}{}
	defer func() { <-s.room }()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	source, err := s.open(j)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	if a.Allocator == "torch" {
		return replayTorch(j, s, a, on, source, untilRefused)
	}
	tuned, err := tune.Run(ctx, source, tune.Options{
		Policies: slices.Repeat([]bfc.Policy{a.Policy}, len(on)), Text: j.Text, Blocks: s.Blocks, Cards: on, UntilRefused: untilRefused,
	})
	if err != nil {
		return nil, err
	}
	var out []outcome
	for i := range tuned.Outcomes {
		o := &tuned.Outcomes[i]
		out = append(out, outcome{o.Used, o.Needed, o.Spared, o.PeakR, o.First})
	}
	return out, nil
}

func replayTorch(j *Job, s *Survey, a Allocator, on []*accounting.Card, source Source, untilRefused bool) (out []outcome, err error) {
	if j.Torch == nil {
		return nil, ErrNoTorch
	}
	settings, err := parseSetting(a.Setting, *j.Torch)
	if err != nil {
		return nil, err
	}
	all, err := torchalloc.Run(source, torchalloc.Options{
		Settings: slices.Repeat([]torchalloc.Settings{settings}, len(on)), Version: *j.Torch, Text: j.Text, Cards: on, UntilRefused: untilRefused,
		Recorded: slices.Repeat([]bool{a == j.Recorded}, len(on)), Opening: j.Opening,
	})
	if err != nil {
		return nil, err
	}
	for i := range all {
		o := &all[i]
		out = append(out, outcome{o.Used, o.Needed, o.Spared, greatest(o.Reserved), o.First})
	}
	return out, nil
}
