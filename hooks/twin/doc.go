// Package twin holds the allocator in C (hooks/capture/bfc/*.c) against the one in Go
// (package bfc): its test drives both with the same random operations and compares every
// placement. There is nothing in it but that test. It has a folder of its own because Go
// allows no C sources beside a package without cgo, which memprof does not use for the hook.
package twin
