//go:build !cgo

package rerun

// Probe opens a driver, which takes a dynamic linker.
func Probe(path string) (version int, devices []Device, err error) { return 0, nil, ErrNoGlibc }
