package kvcache

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
	// it goes on from any, drawn uniformly. See paged_sharing.go of package stores, and [BeamKeep].
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

// PromptCount is how many prompts a request brings.
func (r *Request) PromptCount() int { return max(1, r.Prompts) }
