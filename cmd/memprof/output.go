package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/trace/outfile"
)

// This file writes the files that verbs make: whole or not at all, and a file whose name memprof made
// up never through a link.

// Modes of what memprof writes, less the umask. What is made of a recording has names of the job's
// modules and its command line: it is the user's alone, but for pages, which the user's group may read. The files of check
// are for a CI server.
const (
	privateMode = outfile.Private
	publicMode  = outfile.Public
)

// writePage writes a page, which the user's group may read, and says where: to output if it ends in .html, or is a device or a pipe, else
// to the file of this name in the directory output, which it makes; without output to the file alone.
func writePage(stderr io.Writer, output, name, alone string, write func(io.Writer) error) error {
	path, to := alone, writeNoFollow
	stat, err := os.Stat(output)
	switch {
	case strings.HasSuffix(output, ".html") || strings.HasSuffix(output, ".htm") || err == nil && !stat.IsDir() && !stat.Mode().IsRegular():
		path, to = output, writeWhole
	case output != "":
		if err := os.MkdirAll(output, 0o755); err != nil {
			return exit.Usagef("-o %s cannot be created: %w", output, err)
		}
		path = filepath.Join(output, name)
	}
	if err := to(path, outfile.Shown, write); err != nil {
		return fmt.Errorf("%w (-o DIR writes it elsewhere)", err)
	}
	screen.Complain(stderr, "wrote "+path)
	return nil
}

// writeWhole writes a file that the user named, whole or not at all: an old file of that name stays until the new
// one is complete. Devices and pipes are written to directly.
func writeWhole(path string, mode fs.FileMode, write func(io.Writer) error) error {
	if stat, err := os.Stat(path); err == nil && !stat.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return exit.Input(err)
		}
		return errors.Join(write(f), f.Close())
	}
	return writeNoFollow(path, mode, write)
}

// writeNoFollow is writeWhole for a file whose name memprof chose: a link of that name is replaced, not followed. An error
// is one of the input unless it is write's own.
func writeNoFollow(path string, mode fs.FileMode, write func(io.Writer) error) error {
	var own error
	err := outfile.Write(path, mode, func(w io.Writer) error {
		own = write(w)
		return own
	})
	if own != nil {
		return err
	}
	return exit.Input(err)
}

// replaceFile writes a file with this text, whole or not at all, readable by others.
func replaceFile(path string, text []byte) error {
	return writeWhole(path, publicMode, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// replaceWithJSON is replaceFile with a value as JSON.
func replaceWithJSON(path string, value any) error {
	var text bytes.Buffer
	if err := screen.JSON(&text, value); err != nil {
		return err
	}
	return replaceFile(path, text.Bytes())
}

func appendFile(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, publicMode)
	if err != nil {
		return exit.Input(err)
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// writable fails if writeWhole could not even begin, so that a job is not run for a result that cannot be written.
func writable(path string) error {
	stat, err := os.Stat(path)
	switch {
	case err == nil && stat.IsDir():
		return exit.Usagef("%s is a directory", path)
	case err == nil && !stat.Mode().IsRegular():
		return nil
	}
	return exit.Input(outfile.Writable(path))
}
