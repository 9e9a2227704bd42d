//go:build !cgo

package nvml

import "errors"

var errStatic = errors.New("this is the static memprof, which loads no library")

// Open opens the library, which takes a dynamic linker.
func Open() (Cards, error) { return nil, errStatic }

// Read is [Open], to ask once.
func Read() (*State, error) { return nil, errStatic }
