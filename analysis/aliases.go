package analysis

import (
	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/graphs"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/keyframes"
	"github.com/memprof/memprof/analysis/kv"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/pause"
	"github.com/memprof/memprof/analysis/torchalloc"
)

// block is an allocation that breakdowns divide by.
type block = ledger.Block

// The results of the trackers, under one roof: what reads a [Result] needs no other package.
type (
	Attribution      = attribution.Result
	Breakdown        = attribution.Breakdown
	Group            = attribution.Group
	AllocationGroup  = attribution.AllocationGroup
	LiveGroup        = attribution.LiveGroup
	Category         = attribution.Category
	CategoryPoint    = attribution.CategoryPoint
	Keyframes        = keyframes.Result
	Keyframe         = keyframes.Frame
	KeyOrigin        = keyframes.Origin
	Stretch          = keyframes.Stretch
	StackFrame       = keyframes.StackFrame
	Reason           = keyframes.Reason
	EventSpan        = keyframes.Span
	ExactEvents      = keyframes.Exact
	ExactStep        = keyframes.Step
	Stripe           = keyframes.Stripe
	Band             = keyframes.Band
	Graphs           = graphs.Result
	GraphStore       = graphs.Store
	GraphShape       = graphs.Shape
	GraphInputs      = graphs.Inputs
	GraphWhatIf      = graphs.WhatIf
	Native           = torchalloc.Observed
	OtherLibraries   = accounting.OtherLibraries
	LibraryUse       = accounting.LibraryUse
	CommunicatorUse  = accounting.CommunicatorUse
	OtherMemory      = accounting.OtherMemory
	Holding          = accounting.Holding
	Holdings         = accounting.Holdings
	OverheadParts    = accounting.OverheadParts
	CardGrowth       = accounting.CardGrowth
	Course           = accounting.Course
	Readings         = accounting.Readings
	GPUReadings      = accounting.GPUReadings
	Reading          = accounting.Reading
	Account          = accounting.Account
	Balance          = accounting.Balance
	Scope            = accounting.Scope
	Instant          = ledger.Instant
	ArenaInfo        = ledger.Info
	AddressMap       = ledger.AddressMap
	ArenaMap         = ledger.ArenaMap
	SpanKind         = ledger.SpanKind
	Span             = ledger.Span
	EventError       = ledger.EventError
	Iteration        = iterations.Iteration
	Paper            = iterations.Paper
	Leak             = iterations.Leak
	Pauses           = pause.Result
	StageUse         = pause.StageUse
	Transition       = pause.Transition
	Residency        = pause.Residency
	Mapped           = pause.Mapped
	Untagged         = pause.Untagged
	UntaggedGroup    = pause.UntaggedGroup
	UntaggedCategory = pause.UntaggedCategory
	Trend            = iterations.Trend
	KVResult         = kv.Result
	PhaseUse         = attribution.PhaseUse
	PhaseIteration   = attribution.PhaseIteration
)

// Categories of blocks; see [attribution.Tracker.Category].
const (
	Weights     = attribution.Weights
	Gradients   = attribution.Gradients
	Optimizer   = attribution.Optimizer
	Activations = attribution.Activations
	Inputs      = attribution.Inputs
	KVCache     = attribution.KVCache
	CUDAGraphs  = attribution.CUDAGraphs
	Workspace   = attribution.Workspace
	Other       = attribution.Other
)

// ParseOrigin parses the context of an alloc; see [attribution.ParseOrigin].
func ParseOrigin(context string) (name string, stack int64) { return attribution.ParseOrigin(context) }

// KVRequests is the name of requests that are sequences in a KV cache; see [Leak].
const KVRequests = iterations.KVRequests

// Kinds of spans; see [SpanKind].
const (
	SpanLive         = ledger.SpanLive
	SpanSlack        = ledger.SpanSlack
	SpanPending      = ledger.SpanPending
	SpanReserve      = ledger.SpanReserve
	SpanReusable     = ledger.SpanReusable
	SpanExternal     = ledger.SpanExternal
	SpanNotRequested = ledger.SpanNotRequested
	SpanUnmapped     = ledger.SpanUnmapped
)

// Whose use of a GPU was read; see [Scope].
const (
	ScopeProcess = accounting.ScopeProcess
	ScopeDevice  = accounting.ScopeDevice
	ScopeCard    = accounting.ScopeCard
)

// Parts of the driver overhead; see [OverheadParts].
const (
	ContextPart = accounting.ContextPart
	ModulesPart = accounting.ModulesPart
	LoadsPart   = accounting.LoadsPart
	GraphsPart  = accounting.GraphsPart
	PoolsPart   = accounting.PoolsPart
	AllOverhead = accounting.AllOverhead
)
