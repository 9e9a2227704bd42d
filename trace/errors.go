package trace

import (
	"errors"
	"fmt"
)

// What can be wrong with a dataset or a spool. Every error of this package that says so
// is a *[PathError] around one of these.
var (
	ErrNotParquet   = errors.New("not a Parquet file")
	ErrNotTrace     = errors.New("a Parquet file, but not a part of a memprof trace")
	ErrTruncated    = errors.New("truncated: the Parquet footer is missing or cut")
	ErrDamaged      = errors.New("damaged")
	ErrNewerSchema  = errors.New("written by a newer memprof")
	ErrMissingPart  = errors.New("a part of the trace is missing")
	ErrMixedRuns    = errors.New("parts of different runs in one directory")
	ErrEmpty        = errors.New("no trace here")
	ErrUnfinished   = errors.New("the recording was not finished")
	ErrAlive        = errors.New("a recorded process is still running")
	ErrBusy         = errors.New("another memprof is converting this spool")
	ErrDiskFull     = errors.New("the disk is full")
	ErrUnknownEvent = errors.New("unknown kind of event")
)

// PathError is an error about one file or directory: which, what is wrong with it, and
// what to do.
type PathError struct {
	Path   string
	Err    error  // one of the sentinels above, or an error of the operating system
	Detail string // more about what is wrong, may be empty
	Remedy string // what to do, may be empty
}

func (e *PathError) Error() string {
	s := fmt.Sprintf("%s: %v", e.Path, e.Err)
	if e.Detail != "" {
		s += " (" + e.Detail + ")"
	}
	if e.Remedy != "" {
		s += "; " + e.Remedy
	}
	return s
}

func (e *PathError) Unwrap() error { return e.Err }
