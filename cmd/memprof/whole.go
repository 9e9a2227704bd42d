package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// writeWhole has a file written whole or not at all: what is there under that name stays until
// the new one is complete. Devices and pipes are written to as they are.
func writeWhole(path string, write func(io.Writer) error) error {
	if stat, err := os.Stat(path); err == nil && !stat.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return inputError(err)
		}
		return errors.Join(write(f), f.Close())
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return inputError(namedAs(path, err))
	}
	defer os.Remove(f.Name()) // gone by then if all went well
	if err := write(f); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(f.Chmod(0o644), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return inputError(os.Rename(f.Name(), path))
}

// replaceFile writes a file whole or not at all.
func replaceFile(path string, text []byte) error {
	return writeWhole(path, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// canWrite fails where writeWhole could not even begin: better told before a job is run than after it.
func canWrite(path string) error {
	stat, err := os.Stat(path)
	switch {
	case err == nil && stat.IsDir():
		return usagef("%s is a directory", path)
	case err == nil && !stat.Mode().IsRegular():
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return inputError(namedAs(path, err))
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// namedAs is an error about a temporary file as one about the file it was to become.
func namedAs(path string, err error) error {
	var of *fs.PathError
	if errors.As(err, &of) {
		return &fs.PathError{Op: "create", Path: path, Err: of.Err}
	}
	return err
}
