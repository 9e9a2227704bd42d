package trace

import (
	"errors"
	"fmt"
)

// Errors of a dataset or a spool. This package returns each wrapped in a *[PathError].
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

// PathError is an error of one file or directory, with what the user can do.
type PathError struct {
	Path   string
	Err    error  // one of the sentinels above, or an error of the operating system
	Detail string // what exactly is wrong; may be empty
	Remedy string // what to do; may be empty
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
