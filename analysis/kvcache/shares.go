package kvcache

import "fmt"

// Negative says whether a share is below zero, which a sum that is right can hide.
func (s Shares) Negative() bool {
	return min(s.Token, s.Reserve, s.Internal, s.Rounding, s.Fragmented, s.Idle, s.Cached, s.Null) < 0
}

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

// StepError says that shares do not sum to the capacity: an error of the simulation, never of its input.
type StepError struct {
	Step     int64
	Shares   Shares
	Capacity int64
}

func (e *StepError) Error() string {
	return fmt.Sprintf("after step %d the shares are %+v, in all %d of %d slots", e.Step, e.Shares, e.Shares.Sum(), e.Capacity)
}
