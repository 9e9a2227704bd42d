package kvcache

import (
	"fmt"
	"slices"
)

// Slots are amounts of slots, by what these are used for: see the package comment.
type Slots[N int64 | float64] struct {
	Token      N // hold the keys and values of a token of a running request
	Reserve    N // will be filled by future tokens of running requests
	Internal   N // of a reservation or block, and never filled
	Rounding   N // allocated beyond the reservation; in no whole block
	Fragmented N // free, enough for the first waiting request, in pieces too small for it
	Blocked    N // free, and the first waiting request needs more than all that is free
	Idle       N // free otherwise
	Cached     N // paged: hold content of requests that have ended
	Null       N // paged: the null block
}

// Shares are slots after a step. Their sum is the capacity.
type Shares = Slots[int64]

// Shares64 are mean shares, as fractions of the capacity that sum to 1.
type Shares64 = Slots[float64]

// all are the amounts, each once.
func (s *Slots[N]) all() [9]*N {
	return [...]*N{&s.Token, &s.Reserve, &s.Internal, &s.Rounding, &s.Fragmented, &s.Blocked, &s.Idle, &s.Cached, &s.Null}
}

// External returns the external fragmentation.
func (s Slots[N]) External() N { return s.Rounding + s.Fragmented }

// Sum returns the sum of all: the capacity.
func (s Slots[N]) Sum() N {
	return s.Token + s.Reserve + s.Internal + s.External() + s.Blocked + s.Idle + s.Cached + s.Null
}

// Negative says whether a share is below zero, which a sum that is right can hide.
func (s Slots[N]) Negative() bool {
	all := s.all()
	return slices.ContainsFunc(all[:], func(n *N) bool { return *n < 0 })
}

// Means are sums of Shares over steps, or over ns, to be divided by Steps, which are as many.
type Means struct {
	Sums  Shares64
	Steps int64
}

// Add adds shares, weighted by the number of steps, or the ns, that they hold for.
func (m *Means) Add(s Shares, steps int64) {
	more := s.all()
	for i, sum := range m.Sums.all() {
		*sum += float64(steps) * float64(*more[i])
	}
	m.Steps += steps
}

// Of returns means as shares of a capacity.
func (m *Means) Of(capacity int64) Shares64 {
	if m.Steps == 0 || capacity == 0 {
		return Shares64{}
	}
	of := m.Sums
	for _, n := range of.all() {
		*n /= float64(m.Steps) * float64(capacity)
	}
	return of
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
