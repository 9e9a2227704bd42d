// Package outfile makes the files that memprof leaves behind. A file appears under its name when it
// is complete, readable by its owner alone, and no link that somebody planted in the directory leads
// it anywhere else.
package outfile

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Modes of files, before the umask. What is made of a recording has names of the job's modules and
// its command line: it is for its owner alone.
const (
	Private fs.FileMode = 0o600
	Public  fs.FileMode = 0o644
)

// Create makes the file name in an open directory. Whatever has that name is removed first, a link
// itself and not what it leads to; the caller knows that it is the caller's own. Names with a slash may
// not leave the directory.
func Create(dir *os.Root, name string) (*os.File, error) {
	if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return dir.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, Private)
}

// Write has a file written whole or not at all: what has its name stays until the new one is
// complete, and is then replaced, a link itself and not what it leads to.
func Write(path string, mode fs.FileMode, write func(io.Writer) error) error {
	if stat, err := os.Stat(filepath.Dir(path)); err != nil {
		return about(path, "create", err)
	} else if !stat.IsDir() { // a pipe would be waited for
		return &fs.PathError{Op: "create", Path: path, Err: unix.ENOTDIR}
	}
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return about(path, "create", err)
	}
	defer dir.Close()
	name := filepath.Base(path)
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

// Possible says what keeps files from being made in a directory. Nothing is left behind, not even by a kill, where
// the file system knows files without a name.
func Possible(dir string) error {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, uint32(Private))
	if err == nil {
		return unix.Close(fd)
	}
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "create in", Path: dir, Err: err}
	}
	probe, err := os.CreateTemp(dir, ".memprof-probe-")
	if err != nil {
		return err
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// Writable says what keeps [Write] from making a file at path, as Possible does.
func Writable(path string) error {
	if err := Possible(filepath.Dir(path)); err != nil {
		return about(path, "create", err)
	}
	return nil
}

// about is an error on the way to path as one that names path and no temporary file.
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
