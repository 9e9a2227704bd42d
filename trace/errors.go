package trace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
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
	ErrScarce       = errors.New("too many open files")
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

// DiskError is an error of writing path: [ErrDiskFull] where no room is left.
func DiskError(path string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return &PathError{Path: path, Err: ErrDiskFull, Detail: err.Error(), Remedy: "make room there"}
	}
	return fmt.Errorf("write %s: %w", path, err)
}

// IsScarce says whether err is about too many open files: what failed may be tried again.
func IsScarce(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// IgnoreMissing turns fs.ErrNotExist into nil: a collector may remove files of a spool or a ring's part at any time.
func IgnoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// OpenRegular opens a regular file for reading. It refuses a pipe, which would block, and a link, which may
// lead out of the directory.
func OpenRegular(dir *os.Root, name string) (*os.File, error) {
	notRegular := func() error {
		return &PathError{Path: filepath.Join(dir.Name(), name), Err: ErrDamaged, Detail: "it is not a regular file"}
	}
	before, err := dir.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, notRegular()
	}
	f, err := dir.OpenFile(name, os.O_RDONLY|NonBlock, 0)
	if err != nil {
		return nil, err
	}
	if stat, err := f.Stat(); err != nil || !stat.Mode().IsRegular() {
		f.Close()
		return nil, notRegular()
	}
	return f, nil
}
