// Package requests reads and makes the requests that a simulated KV cache serves.
//
// # Files
//
// CSV has a line of column names, in any order and letters of any case; columns of other names
// are passed over.
//
//	prompt   ContextTokens, num_prefill_tokens, prompt, prompt_tokens, input_length, input_tokens
//	output   GeneratedTokens, num_decode_tokens, output, output_tokens, output_length
//	time     TIMESTAMP, arrived_at, arrival, time: seconds, or a date as 2023-11-16 18:15:46.68
//	prompts  prompts, batch: prompts of that length in one request
//
// JSONL has an object a line: prompt or input_length, output or output_length, timestamp in
// milliseconds, hash_ids that name the content of the prompt by pieces of 512 tokens (or of
// hash_tokens). Those are Mooncake's names.
//
// Prompt and output are at least 1 token. Times are all there or none, and never go back; the
// first is 0. Errors name file and line.
package requests

import (
	"fmt"
	"io"
	"math"

	"github.com/memprof/memprof/analysis/kvcache"
)

// Error is what is wrong with a line of a file.
type Error struct {
	File string
	Line int // from 1
	Err  error
}

func (e *Error) Error() string { return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err) }

func (e *Error) Unwrap() error { return e.Err }

// Reader is a kvcache.Source that reads a file as it is asked, and knows whether it has times.
type Reader interface {
	kvcache.Source
	// Timed says whether requests have arrivals; known once one was read.
	Timed() bool
}

// maxTokens is beyond every length that a model has, and keeps sums from overflowing.
const maxTokens = 1 << 30

// arrivals turns times of a file into arrivals since the first.
type arrivals struct {
	started bool
	first   int64
	last    int64
}

// since is the arrival of a request at a time, in ns of whatever clock.
func (a *arrivals) since(time int64) (int64, error) {
	if !a.started {
		a.started, a.first, a.last = true, time, time
	}
	if time < a.last {
		return 0, fmt.Errorf("arrives %.6f s before the line above; requests must be in order of time", float64(a.last-time)/1e9)
	}
	a.last = time
	return time - a.first, nil
}

func checkTokens(what string, n int64) (int, error) {
	switch {
	case n < 1:
		return 0, fmt.Errorf("%s of %d tokens: want at least 1", what, n)
	case n > maxTokens:
		return 0, fmt.Errorf("%s of %d tokens: want at most %d", what, n, maxTokens)
	}
	return int(n), nil
}

// nanoseconds of a number in a unit of so many ns.
func nanoseconds(n, unit float64) (int64, error) {
	ns := math.Round(n * unit)
	if math.IsNaN(ns) || ns < 0 || ns >= math.MaxInt64 {
		return 0, fmt.Errorf("time %v: want a number from 0", n)
	}
	return int64(ns), nil
}

// ReadAll are all requests of a source. It is for those that are drawn from; a simulation reads
// as it goes.
func ReadAll(src kvcache.Source) ([]kvcache.Request, error) {
	var all []kvcache.Request
	for {
		r, err := src.Next()
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
}
