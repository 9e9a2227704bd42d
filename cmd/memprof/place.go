package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/outfile"
)

// place is where a recording lies, both absolute and writable.
type place struct {
	shown   string // dir as the user wrote it
	dir     string // run.json, the parts and, by default, the spool
	spool   string
	created bool // dir was not there before
}

// newPlace creates the directory of a recording. A recording that is there already is an
// error, or with force removed; files that are not of a recording are left alone. Without
// an output the directory gets a name of its own, here or, where that cannot be, among
// temporary files. A directory that the user named and that cannot be had is a usage
// error; a full disk is not, nor is it that there is no place at all.
func newPlace(output, spool, command string, force bool) (*place, error) {
	p, err := choosePlace(output, command, force)
	if err != nil {
		return nil, err
	}
	if err := p.makeSpool(spool); err != nil {
		p.abandon()
		return nil, err
	}
	return p, nil
}

func choosePlace(output, command string, force bool) (*place, error) {
	if output != "" {
		return makePlace(output, force)
	}
	name := fmt.Sprintf("memprof-%s-%s", filepath.Base(command), time.Now().Format("20060102-150405"))
	var failed []string
	for _, base := range []string{"", os.TempDir(), "/var/tmp", "/dev/shm"} {
		dir, err := freshDir(filepath.Join(base, name))
		if err != nil {
			failed = append(failed, err.Error())
			continue
		}
		p, err := makePlace(dir, force)
		if err == nil {
			p.created = true
			return p, nil
		}
		os.Remove(dir)
		failed = append(failed, err.Error())
	}
	return nil, unrecordable{errors.New(strings.Join(failed, "; "))}
}

// freshDir makes a directory of that name, or with a number behind it: a script may well
// start several recordings in one second.
func freshDir(name string) (string, error) {
	dir := name
	for n := 2; ; n++ {
		err := os.Mkdir(dir, 0o755)
		if !errors.Is(err, fs.ErrExist) || n > 1000 {
			return dir, err
		}
		dir = fmt.Sprintf("%s-%d", name, n)
	}
}

// roomToStart is what a recording needs before it has one event: a segment of the spool
// and the collector's ballast.
const roomToStart = 16 << 20

// makePlace creates the directory, and no spool in it yet.
func makePlace(output string, force bool) (*place, error) {
	dir, err := filepath.Abs(output)
	if err != nil {
		return nil, exit.Usagef("-o %s: %w", output, err)
	}
	p := &place{shown: output, dir: dir, spool: filepath.Join(dir, trace.SpoolName)}
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		p.created = true
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, placeError(err, "-o %s cannot be created: %w", output, err)
	}
	if err := p.clear(output, force); err != nil {
		return nil, err
	}
	if err := writableDir(dir); err != nil {
		p.abandon()
		return nil, placeError(err, "-o %s cannot be written: %w", output, err)
	}
	return p, nil
}

// placeError is a usage error unless the cause is a lack of room.
func placeError(cause error, format string, args ...any) error {
	if errors.Is(cause, syscall.ENOSPC) || errors.Is(cause, syscall.EDQUOT) {
		return unrecordable{fmt.Errorf(format, args...)}
	}
	return exit.Usagef(format, args...)
}

// clear makes sure that no other recording is in the directory, and nothing that a reader would take for a part
// of this one. With force it removes a recording, by the names of its files, when all of them say that they are
// memprof's and nobody is at work on it.
func (p *place) clear(output string, force bool) error {
	busy, err := trace.InProgress(p.dir)
	if err != nil {
		return exit.Usagef("-o %s: %w", output, err)
	}
	if busy != "" {
		return exit.Usagef("-o %s is being recorded (%s is still at work): choose another directory, or wait for it to end", output, busy)
	}
	old, err := trace.Occupy(p.dir)
	switch {
	case err != nil:
		return exit.Usagef("-o %s: %w", output, err)
	case len(old.Foreign) > 0:
		return exit.Usagef("-o %s holds files with names of a recording that are none of memprof's (%s): choose another directory",
			output, strings.Join(old.Foreign, ", "))
	case len(old.Ours) == 0:
		return nil
	case !force:
		return exit.Usagef("-o %s holds a recording (%s): choose another directory, or --force to replace it", output, old.Ours[0])
	}
	if err := old.Remove(); err != nil {
		return exit.Usagef("-o %s: removing the old recording: %w", output, err)
	}
	return nil
}

// writableDir says what keeps files from being made in dir.
func writableDir(dir string) error {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err == nil && stat.Blocks > 0 && stat.Bavail*uint64(stat.Bsize) < roomToStart {
		return fmt.Errorf("%s: %w", dir, syscall.ENOSPC)
	}
	return outfile.Possible(dir)
}

// makeSpool creates the spool, with elsewhere as a fresh folder there that DIR/spool
// links to: `memprof recover DIR` finds it in either case.
func (p *place) makeSpool(elsewhere string) error {
	if elsewhere == "" {
		if err := trace.MakeSpool(p.dir, ""); err != nil {
			return placeError(err, "the spool: %w", err)
		}
		return nil
	}
	parent, err := filepath.Abs(elsewhere)
	if err != nil {
		return exit.Usagef("--spool: %w", err)
	}
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return placeError(err, "--spool %s cannot be created: %w", elsewhere, err)
	}
	if err := trace.MakeSpool(p.dir, parent); err != nil {
		return placeError(err, "--spool %s cannot be written: %w", elsewhere, err)
	}
	return nil
}

// abandon removes what was made for a job that was not started.
func (p *place) abandon() {
	trace.RemoveSpool(p.dir)
	os.Remove(filepath.Join(p.dir, trace.InfoName))
	if p.created {
		os.Remove(p.dir)
	}
}

func existingFile(name string) (string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return "", err
	}
	if info.IsDir() {
		return "", fmt.Errorf("%s is a directory", name)
	}
	return filepath.Abs(name)
}
