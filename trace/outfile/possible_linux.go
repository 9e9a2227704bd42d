package outfile

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Possible returns the error that creating a file in the directory would give, or nil. It leaves no file, even if it is
// killed, on file systems with O_TMPFILE.
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
