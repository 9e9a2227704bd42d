package kvcache

// Preemption is what happens to the content of a request that is preempted.
type Preemption uint8

const (
	// Recompute drops it: prompt and generated tokens are computed again.
	Recompute Preemption = iota
	// Swap copies it to the host and back. Contiguous policies always recompute; under them only a
	// sequence that outgrows its reservation is preempted.
	Swap
)

// Options of a simulation.
type Options struct {
	Policy   Policy
	Capacity int64 // slots
	// MaxLength is the model's limit of tokens a sequence; requests beyond it are rejected.
	MaxLength int
	Sampling  Sampling
	Preempt   Preemption
	// Watermark is the share of blocks that admission leaves free while something runs (paged); rounded up to whole ones.
	Watermark float64
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
}
