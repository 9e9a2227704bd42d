// Package outfile creates the files that memprof writes. A file gets its name when it is complete, only its owner
// can read it unless its mode says more, and a link under its name is replaced, not followed.
package outfile

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Modes of files, before the umask. Output of a recording is private: it contains names of the job's modules and
// its command line. A page is made to be shown: the umask says whether the group may read it.
const (
	Private fs.FileMode = 0o600
	Shown   fs.FileMode = 0o640
	Public  fs.FileMode = 0o644
)

// Create creates the file name in an open directory. It first removes the file or link of that name, without
// following the link; the caller must know that it may be removed. A name with slashes cannot leave
// the directory.
func Create(dir *os.Root, name string) (*os.File, error) {
	if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return dir.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, Private)
}

// Write writes a file atomically: the file or link of that name stays until the new file is complete, which then
// replaces it. A link is not followed.
func Write(path string, mode fs.FileMode, write func(io.Writer) error) error {
	if stat, err := os.Stat(filepath.Dir(path)); err != nil {
		return about(path, "create", err)
	} else if !stat.IsDir() { // opening a pipe would block
		return &fs.PathError{Op: "create", Path: path, Err: syscall.ENOTDIR}
	}
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return about(path, "create", err)
	}
	defer dir.Close()
	return WriteIn(dir, filepath.Base(path), mode, write)
}

// WriteIn is [Write] into an open directory.
func WriteIn(dir *os.Root, name string, mode fs.FileMode, write func(io.Writer) error) error {
	path := filepath.Join(dir.Name(), name)
	temp := fmt.Sprintf(".%s.%s.tmp", name, rand.Text())
	f, err := dir.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return about(path, "create", err)
	}
	if err := write(f); err != nil {
		return errors.Join(err, f.Close(), dir.Remove(temp))
	}
	if err := f.Close(); err != nil {
		return errors.Join(about(path, "write", err), dir.Remove(temp))
	}
	if err := dir.Rename(temp, name); err != nil {
		return errors.Join(about(path, "create", err), dir.Remove(temp))
	}
	return nil
}

// Writable returns the error that [Write] would give for path, or nil.
func Writable(path string) error {
	if err := Possible(filepath.Dir(path)); err != nil {
		return about(path, "create", err)
	}
	return nil
}

// about turns an error into one that names path instead of a temporary file.
func about(path, op string, err error) error {
	var of *fs.PathError
	if errors.As(err, &of) {
		return &fs.PathError{Op: op, Path: path, Err: of.Err}
	}
	var link *os.LinkError
	if errors.As(err, &link) {
		return &fs.PathError{Op: op, Path: path, Err: link.Err}
	}
	return fmt.Errorf("%s %s: %w", op, path, err)
}
