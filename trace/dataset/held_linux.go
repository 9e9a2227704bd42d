package dataset

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// InMemory makes a file without a name, see [WriterOptions].
func InMemory(_ *os.Root, name string) (PartFile, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, &fs.PathError{Op: "memfd_create", Path: name, Err: err}
	}
	return memoryFile{os.NewFile(uintptr(fd), name)}, nil
}
