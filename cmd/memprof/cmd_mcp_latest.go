//go:build !js

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
)

// mcpLatest keeps the document of the recording that was asked about last. Findings, peak, leaks and lines are parts of the same one, and
// a client asks for several of them: the recording is analyzed once, until one of its files changes. Tools run one at a time.
type mcpLatest struct {
	make func(ctx context.Context, stdout, stderr io.Writer, path string, args mcpArguments) error
	find func(mcpArguments) (string, error) // the path of a call's recording

	of             string // what the document is of: the arguments and the state of the files; "" if there is none
	document, said []byte
}

// mostKept is how many bytes a document has that is kept.
const mostKept = 64 << 20

func (l *mcpLatest) print(ctx context.Context, stdout, stderr io.Writer, args mcpArguments) error {
	path, err := l.find(args)
	if err != nil {
		return err
	}
	of, err := stateOf(path)
	if err != nil {
		return err
	}
	of = fmt.Sprintf("%q %q %q\n", path, args["process"], args["event"]) + of
	if of != l.of {
		l.of = ""
		var document, said bytes.Buffer
		if err := l.make(ctx, &document, &said, path, args); err != nil {
			return err
		}
		l.document, l.said = document.Bytes(), said.Bytes()
		if len(l.document) <= mostKept {
			l.of = of
		}
	}
	_, err = stdout.Write(l.document)
	_, failed := stderr.Write(l.said)
	return errors.Join(err, failed)
}

// stateOf is the name, size and time of a file, or of each one below a folder.
func stateOf(path string) (string, error) {
	var state strings.Builder
	err := filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			fmt.Fprintf(&state, "%q %d %d\n", name, info.Size(), info.ModTime().UnixNano())
		}
		return err
	})
	return state.String(), err
}
