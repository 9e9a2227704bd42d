package kvcache

import (
	"fmt"
	"math"

	"github.com/memprof/memprof/analysis/kvcache/models"
)

// Request is one arrival: prompts, and what is generated for each.
type Request struct {
	Arrival int64 // ns since the first
	Prompt  int   // tokens, at least 1
	Output  int   // tokens that will be generated, at least 1; no policy but oracle uses it
	// Prompts is how many prompts of equal length the request brings; under the contiguous
	// policies it reserves (prompts, length) rectangles. 0 is 1.
	Prompts int
	// Hashes are one for each HashTokens tokens of the prompt, the last of them perhaps fewer;
	// equal hashes are equal content. Tokens behind the last hash are equal to no others. Empty: nothing is shared.
	Hashes     []uint64
	HashTokens int
	Line       int // of the input, for errors; 0: none
}

// Length returns the final length of each sequence in tokens.
func (r *Request) Length() int { return r.Prompt + r.Output }

// Source returns requests in the order of arrival, and io.EOF behind the last.
type Source interface {
	Next() (Request, error)
}

// Sampling is how many sequences a prompt has, and how they are generated.
type Sampling struct {
	Kind  SamplingKind
	Width int // sequences of a prompt, at least 1; 1 for Greedy
	// Keep is the chance, from 0 to 1, that a Beam candidate goes on from the sequence in its own place; else
	// it goes on from any, drawn uniformly. See paged_sharing.go and [BeamKeep].
	Keep float64
}

// BeamKeep is the Keep that comes nearest to what two and six beams save of ShareGPT in the vLLM paper; 0.945 is Alpaca's.
const BeamKeep = 0.98

// SamplingKind says how the sequences of a prompt are related.
type SamplingKind uint8

const (
	// Greedy generates one sequence.
	Greedy SamplingKind = iota
	// Parallel generates Width sequences of one prompt, each on its own.
	Parallel
	// Beam keeps the best Width candidates of all continuations at each step.
	Beam
)

// Preemption is what happens to the content of a request that is preempted.
type Preemption uint8

const (
	// Recompute drops it: prompt and generated tokens are computed again.
	Recompute Preemption = iota
	// Swap copies it to the host and back. Contiguous policies always recompute; under them only a
	// sequence that outgrows its reservation is preempted.
	Swap
)

// Shares are slots, by what they are used for after a step: see the package comment. Their sum is the
// capacity.
type Shares struct {
	Token      int64 // hold the keys and values of a token of a running request
	Reserve    int64 // will be filled by future tokens of running requests
	Internal   int64 // of a reservation or block, and never filled
	Rounding   int64 // allocated beyond the reservation; in no whole block
	Fragmented int64 // free, in pieces too small for the first waiting request
	Idle       int64 // free otherwise
	Cached     int64 // paged: hold content of requests that have ended
	Null       int64 // paged: the null block
}

// External returns the external fragmentation.
func (s Shares) External() int64 { return s.Rounding + s.Fragmented }

// Sum returns the sum of all: the capacity.
func (s Shares) Sum() int64 {
	return s.Token + s.Reserve + s.Internal + s.External() + s.Idle + s.Cached + s.Null
}

// Add adds shares, weighted by the number of steps, or the ns, that they hold for.
func (m *Means) Add(s Shares, steps int64) {
	n := float64(steps)
	m.Token += n * float64(s.Token)
	m.Reserve += n * float64(s.Reserve)
	m.Internal += n * float64(s.Internal)
	m.Rounding += n * float64(s.Rounding)
	m.Fragmented += n * float64(s.Fragmented)
	m.Idle += n * float64(s.Idle)
	m.Cached += n * float64(s.Cached)
	m.Null += n * float64(s.Null)
	m.Steps += steps
}

// Means are sums of Shares over steps, or over ns, to be divided by Steps, which are as many.
type Means struct {
	Token, Reserve, Internal, Rounding, Fragmented, Idle, Cached, Null float64
	Steps                                                              int64
}

// Options of a simulation.
type Options struct {
	Policy   Policy
	Capacity int64 // slots
	// MaxLength is the model's limit of tokens a sequence; requests beyond it are rejected.
	MaxLength int
	Sampling  Sampling
	Preempt   Preemption
	// Watermark is the share of blocks, or of rows of pages, that admission leaves free while
	// something runs (paged, vmm); rounded up to whole ones.
	Watermark float64
	// NullBlock sets one block aside that is never handed out, as vLLM does (paged).
	NullBlock bool
	// SwapBlocks bounds the host's blocks, or rows of pages; 0 is as many as the device has.
	SwapBlocks int64
	// StepTime is how long one step of all running requests takes, ns, whatever it computes; it paces
	// arrivals. 0 without a Timing: the queue is always full, whatever the arrivals say.
	StepTime int64
	// Timing says how long a step takes by what it computes; it goes before StepTime. Means are then over
	// time, and not over steps.
	Timing Timing
	// Chunk bounds the tokens that a step computes, under a Timing: those of prompts are what it leaves
	// beside one for each sequence that generates. 0: a prompt is computed whole.
	Chunk int64
	// Saturated keeps the queue full, whatever the arrivals say.
	Saturated bool
	// Steps ends the simulation; 0: when all requests have ended. Warmup steps are not in means.
	Steps, Warmup int64
	Seed          uint64 // for beam's candidates only
	// MaxPoints bounds the series; default 2,048.
	MaxPoints int
	// At is the step after which the block map is kept (paged); negative: none.
	At int64
}

// Policy is how memory for a sequence is reserved.
type Policy struct {
	Kind      PolicyKind
	Length    int                // Max: tokens reserved for each sequence
	Block     int                // Paged, Elastic, Hybrid and Uniform: tokens of a block
	Page      int64              // VMM, VAttention and Elastic: bytes of a page
	TokenSize int64              // of these: bytes of a token in one tensor
	Tensors   int                // of these: tensors, two a layer
	Allocator Allocator          // of the contiguous ones
	Layers    []models.LayerKind // Hybrid and Uniform
	Slot      int64              // of these: bytes of a token in all layers that keep any
}

// PolicyKind is the kind of a policy.
type PolicyKind uint8

const (
	// Max reserves the same greatest length for every sequence.
	Max PolicyKind = iota
	// Pow2 reserves the prompt and the output rounded up to a power of two.
	Pow2
	// Oracle reserves what will be needed.
	Oracle
	// Paged takes blocks of fixed size as they are needed.
	Paged
	// VMM reserves addresses and maps pages as they are needed.
	VMM
	// VAttention is VMM whose pages stay mapped for the next sequence.
	VAttention
	// Hybrid has a block table for each group of layers that keep the same, in pages of one size.
	Hybrid
	// Uniform has one block table, and all layers keep all tokens.
	Uniform
	// Elastic takes blocks from pages that are mapped and given back as they are needed.
	Elastic
)

// Allocator places the reservations of a contiguous policy.
type Allocator uint8

const (
	// Buddy rounds up to powers of two and splits in halves.
	Buddy Allocator = iota
	// FirstFit takes the first free piece that is large enough.
	FirstFit
	// BestFit is package bfc with a granule of one slot.
	BestFit
)

// Result is the result of a simulation.
type Result struct {
	Policy string
	// Rate is the load's requests a second, for whoever simulates several; 0 where it is not known.
	Rate     float64
	Capacity int64
	Steps    int64   // after the warm-up
	Time     int64   // of these steps, and of waiting for arrivals between them, ns; 0 where steps have no time
	Served   *Served // nil where steps have no time
	Mean     Shares64
	Kinds    []KindUse // under Hybrid and Uniform
	Held     *Held     // nil where the memory is held as a whole
	Engine   string    // of several on one card; see Together
	Batch    float64   // mean running requests
	Peak     int64     // maximum of running requests

	// Requests are those that came to the head of the queue: more may wait where the steps end.
	Requests, Finished, Rejected int64
	Preemptions                  int64
	SwappedOut, SwappedIn        int64 // blocks, or rows of pages
	Recomputed                   int64 // tokens computed again
	Copies                       int64 // copies on write, blocks
	// LogicalBlocks are the entries of all block tables, summed over steps. Of them sharing saves
	// those of one request's sequences, and those of prefixes found in use; equal blocks at equal
	// positions of requests that begin differently it could save, and does not.
	LogicalBlocks, SavedBySequences, SavedByPrefix, SavedByEqual float64
	// PrefixHits are admissions that found a part of their prompt, in use or cached, and
	// PrefixTokens what they found.
	PrefixHits, PrefixTokens int64

	Series []Point
	Map    *BlockMap // after the step Options.At; nil where there is none
}

// Held is the memory that an engine holds, in slots, over time or steps as Mean is. Floor is what its tokens need.
type Held struct {
	Mean, Peak           float64
	FloorMean, FloorPeak float64
	Mapped, Unmapped     int64 // pages, in all tensors
}

// Shares64 are mean shares, as fractions of the capacity that sum to 1.
type Shares64 struct{ Token, Reserve, Internal, Rounding, Fragmented, Idle, Cached, Null float64 }

// Of returns means as shares of a capacity.
func (m *Means) Of(capacity int64) Shares64 {
	if m.Steps == 0 || capacity == 0 {
		return Shares64{}
	}
	d := float64(m.Steps) * float64(capacity)
	return Shares64{m.Token / d, m.Reserve / d, m.Internal / d, m.Rounding / d, m.Fragmented / d, m.Idle / d, m.Cached / d, m.Null / d}
}

// Point is the state after a step, one of those kept.
type Point struct {
	Step, Time int64
	Running    int64
	Waiting    int64 // preempted, and the head of the queue if it waits
	Held       int64 // slots, where the memory is not held as a whole
	Shares     Shares
}

// BlockMap is a paged memory after a step.
type BlockMap struct {
	Step      int64
	BlockSize int
	Sequences []SequenceMap
	Blocks    []BlockState // by physical number, at least up to the last that is not free
	Count     int64        // of all blocks; those behind Blocks are free
}

// SequenceMap is one sequence: its tokens and its block table.
type SequenceMap struct {
	Request, Sequence int64
	Tokens            int
	Table             []int32 // logical block -> physical block
}

// BlockState is one physical block.
type BlockState struct {
	References int32 // entries of block tables that name it
	Filled     int32 // slots that hold a token
	Cached     bool  // no sequence uses it, and its content can still be found
	Null       bool  // set aside, never handed out
}

// StepError says that shares do not sum to the capacity: an error of the simulation, never of its input.
type StepError struct {
	Step     int64
	Shares   Shares
	Capacity int64
}

func (e *StepError) Error() string {
	return fmt.Sprintf("after step %d the shares are %+v, in all %d of %d slots", e.Step, e.Shares, e.Shares.Sum(), e.Capacity)
}

// store is the memory under one policy, as the scheduler drives it. A group is a running
// request with all its sequences.
type store interface {
	// possible says whether the request fits into an empty memory.
	possible(r *Request) bool
	// admit places a request that waits, or was preempted; false: there is no room.
	admit(g *group) bool
	// grow makes room for one more token of each sequence of the group, and fills it; false: no
	// room, and nothing has changed.
	grow(g *group) bool
	// release frees the memory of a group that has ended, or is dropped to be computed again.
	release(g *group)
	// swapOut moves the group to the host; false: the host is full. Only Paged and VMM have it.
	swapOut(g *group) bool
	// shares returns the current shares; head is the first waiting request, or nil.
	shares(head *Request) Shares
}

// mapper is a store that maps physical memory as the sequences grow, and unmaps it again.
type mapper interface {
	// mappings returns the slots that have memory now, and how many rows of pages were mapped and unmapped so far.
	mappings() (slots, maps, unmaps int64)
}

// kindStore is a store of layers of several kinds.
type kindStore interface {
	weigh(weight int64)
	kinds() []KindUse
}

// group is a request that runs, or is preempted.
type group struct {
	id        int64
	request   Request
	sequences int // at present
	generated int // tokens of each sequence so far
	swapped   bool
	admitted  int64 // step in which it was admitted last
	// found is how many tokens of its prompt the store found when it was admitted last, at most Prompt.
	found int
	// uncomputed is how many tokens of its prompts are still to be computed, and of what its sequences had
	// generated when it was preempted; 0 without a Timing. While it is above 0 nothing is generated.
	uncomputed int64
	private    any // of the store
}

// length returns the current tokens of each sequence of the group.
func (g *group) length() int { return g.request.Prompt + g.generated }

// roundUp returns x rounded up to a multiple of unit.
func roundUp(x, unit int64) int64 { return (x + unit - 1) / unit * unit }

// powerOfTwo returns the smallest power of two that is at least x; x is at least 1.
func powerOfTwo(x int64) int64 {
	p := int64(1)
	for p < x && p <= math.MaxInt64/2 {
		p <<= 1
	}
	return p
}
