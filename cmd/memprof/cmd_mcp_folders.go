//go:build !js

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
)

// This file finds the recordings that memprof mcp may read. A client's path is resolved by an os.Root, which no ".." and no link
// leaves. Verbs then open the parts of a recording by name, so there must be no link among them; who could put one there in the
// meantime can already write what memprof reads.

// mcpFolder is a folder that was named on the command line.
type mcpFolder struct {
	given string // as it was named
	real  string // absolute, without links
	root  *os.Root
}

type mcpFolders []*mcpFolder

func openFolders(given []string) (mcpFolders, error) {
	var folders mcpFolders
	for _, name := range given {
		real, err := filepath.EvalSymlinks(name)
		if err == nil {
			real, err = filepath.Abs(real)
		}
		if err != nil {
			return nil, exit.Input(err)
		}
		root, err := os.OpenRoot(real)
		if err != nil {
			return nil, exit.Input(err)
		}
		folders = append(folders, &mcpFolder{filepath.Clean(name), real, root})
	}
	return folders, nil
}

// below returns the name that a path has in the folder. A path is absolute, or begins with the folder as it was named, or is of the folder.
func (f *mcpFolder) below(path string) (string, bool) {
	for _, from := range []string{f.real, f.given} {
		if below, err := filepath.Rel(from, path); err == nil && filepath.IsLocal(below) {
			if _, err := f.root.Stat(below); err == nil {
				return below, true
			}
		}
	}
	if !filepath.IsLocal(path) {
		return "", false
	}
	_, err := f.root.Stat(path)
	return filepath.Clean(path), err == nil
}

// at returns the folder that has what a client named, and its name there. Whether there is something outside is not said.
func (f mcpFolders) at(path string) (*mcpFolder, string, error) {
	for _, folder := range f {
		if below, ok := folder.below(path); ok && !strings.ContainsRune(path, 0) {
			return folder, below, nil
		}
	}
	names := f.recordings()
	return nil, "", fmt.Errorf("%.300q is not in the folders of memprof mcp: want %s%s", path, listed(names), plain.DidYouMean(path, names...))
}

// find returns the path of what a client named, after a look at all links.
func (f mcpFolders) find(path string) (string, error) {
	folder, below, err := f.at(path)
	if err != nil {
		return "", err
	}
	entries := 0
	err = fs.WalkDir(folder.root.FS(), filepath.ToSlash(below), func(name string, entry fs.DirEntry, err error) error {
		switch entries++; {
		case err != nil:
			return err
		case entries > mostEntries:
			return fmt.Errorf("%.300q has more than %d files: name one recording", path, mostEntries)
		case entry.Type()&fs.ModeSymlink != 0:
			return fmt.Errorf("%.300q is a link, which memprof mcp does not follow", name)
		}
		return nil
	})
	return filepath.Join(folder.real, below), err
}

const (
	mostEntries = 100_000 // files below a recording, or a folder of recordings
	mostListed  = 200     // recordings whose names a client gets
)

var errListed = errors.New("enough")

// recordings names the recordings and snapshots in the folders, and in two levels of folders below them.
func (f mcpFolders) recordings() []string {
	var names []string
	for _, folder := range f {
		entries := 0
		_ = fs.WalkDir(folder.root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
			if entries++; entries > mostEntries || len(names) >= mostListed {
				return errListed
			}
			switch {
			case err != nil:
				return fs.SkipDir
			case entry.IsDir() && isRecording(filepath.Join(folder.real, name)):
				names = append(names, filepath.Join(folder.given, name))
				return fs.SkipDir
			case entry.IsDir() && strings.Count(name, "/") >= 2:
				return fs.SkipDir
			case strings.HasSuffix(name, ".pickle") || strings.HasSuffix(name, ".pickle.gz"):
				names = append(names, filepath.Join(folder.given, name))
			}
			return nil
		})
	}
	slices.Sort(names)
	for i := range names {
		names[i] = plain.Text(names[i])
	}
	return slices.Compact(names)
}

// instructions say how to use the tools, and name the recordings. A client gives them to its model.
func (f mcpFolders) instructions() string {
	names := f.recordings()
	text := "memprof's recordings of the GPU memory of jobs. Start with findings. Sizes are bytes, times nanoseconds; a field that is unknown is left out. " +
		"left_out counts the items of lists that an answer had no room for. Recordings: "
	shown := 0
	for shown < len(names) && len(text) < 2000 {
		text, shown = text+names[shown]+", ", shown+1
	}
	text = strings.TrimSuffix(text, ", ")
	switch {
	case len(names) == 0:
		text += "none yet; `memprof record -o " + filepath.Join(f[0].given, "run") + " -- COMMAND` makes one"
	case shown < len(names):
		text += fmt.Sprintf(" and %d more", len(names)-shown)
	}
	return text
}
