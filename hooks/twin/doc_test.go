// Package twin tests that the allocator in C (hooks/capture/bfc/*.c) and the one in Go (package bfc) are
// equal: it runs both with the same random operations and compares each placement, each call of the
// memory and all statistics; and it compares their policy tables. It has no code but tests. It is a
// package of its own because Go allows no C sources in a package without cgo.
//
// There are two allocators on purpose. The one in C runs in the user's training process, where a Go runtime would bring threads,
// signal handlers and a garbage collector, and calling it would take longer than an allocation. The one in Go is the
// specification, the model behind replays, and what verify holds recordings against.
package twin
