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

	"github.com/memprof/memprof/trace"
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
		return nil, usagef("-o %s: %w", output, err)
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
	return usagef(format, args...)
}

// clear makes sure that no other recording is in the directory.
func (p *place) clear(output string, force bool) error {
	old, err := recordingFiles(p.dir)
	if err != nil {
		return usagef("-o %s: %w", output, err)
	}
	if len(old) == 0 {
		return nil
	}
	if !force {
		return usagef("-o %s holds a recording (%s): choose another directory, or --force to replace it", output, filepath.Base(old[0]))
	}
	for _, path := range old {
		if err := removeSpool(path); err != nil { // removes any other file as well
			return usagef("-o %s: removing the old recording: %w", output, err)
		}
	}
	return nil
}

// recordingFiles are those of a recording in dir.
func recordingFiles(dir string) ([]string, error) {
	var files []string
	for _, pattern := range []string{trace.InfoName, "*.parquet", trace.SpoolName} {
		matches, err := filepath.Glob(filepath.Join(globQuote(dir), pattern))
		if err != nil {
			return nil, err
		}
		files = append(files, matches...)
	}
	return files, nil
}

// globQuote makes a directory's name stand for itself in a pattern.
func globQuote(dir string) string {
	var quoted []rune
	for _, r := range dir {
		if r == '*' || r == '?' || r == '[' || r == '\\' {
			quoted = append(quoted, '\\')
		}
		quoted = append(quoted, r)
	}
	return string(quoted)
}

// spoolPrefix starts the name of every spool made by --spool.
const spoolPrefix = "memprof-spool-"

// spoolTarget is the folder that a spool made by --spool is a link to; empty for any
// other file. The name is checked because the folder will be removed, and a recording may
// come from somebody else.
func spoolTarget(link string) string {
	target, err := os.Readlink(link)
	if err != nil || !filepath.IsAbs(target) || !strings.HasPrefix(filepath.Base(target), spoolPrefix) {
		return ""
	}
	return target
}

// removeSpool removes a spool, with the folder that --spool put elsewhere.
func removeSpool(spool string) error {
	if target := spoolTarget(spool); target != "" {
		if err := os.RemoveAll(target); err != nil {
			return err
		}
	}
	return os.RemoveAll(spool)
}

// writableDir says what keeps files from being made in dir.
func writableDir(dir string) error {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err == nil && stat.Blocks > 0 && stat.Bavail*uint64(stat.Bsize) < roomToStart {
		return fmt.Errorf("%s: %w", dir, syscall.ENOSPC)
	}
	probe, err := os.CreateTemp(dir, ".memprof-probe-")
	if err != nil {
		return err
	}
	probe.Close()
	return os.Remove(probe.Name())
}

// makeSpool creates the spool, with elsewhere as a fresh folder there that DIR/spool
// links to: `memprof recover DIR` finds it in either case.
func (p *place) makeSpool(elsewhere string) error {
	if elsewhere == "" {
		if err := os.Mkdir(p.spool, 0o700); err != nil {
			return placeError(err, "the spool: %w", err)
		}
		return nil
	}
	parent, err := filepath.Abs(elsewhere)
	if err != nil {
		return usagef("--spool: %w", err)
	}
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return placeError(err, "--spool %s cannot be created: %w", elsewhere, err)
	}
	target, err := os.MkdirTemp(parent, spoolPrefix)
	if err != nil {
		return placeError(err, "--spool %s cannot be written: %w", elsewhere, err)
	}
	if err := os.Symlink(target, p.spool); err != nil {
		os.Remove(target)
		return usagef("--spool: %w", err)
	}
	return nil
}

// abandon removes what was made for a job that was not started.
func (p *place) abandon() {
	removeSpool(p.spool)
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
