package recorder

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
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/outfile"
	"github.com/memprof/memprof/trace/spool"
)

// Place is the directory of a recording. Its paths are absolute, and memprof can write there.
type Place struct {
	Shown   string // Dir as the user wrote it
	Dir     string // of run.json, the parts and, by default, the spool
	Spool   string
	created bool // Dir was not there before
}

// NewPlace creates the directory of a recording and its spool. A recording that is already there is an error,
// or is removed with force; other files are left alone. Without an output the directory gets a new name in the
// working directory or, if that cannot be written, in a directory for temporary files. If the directory that
// the user named cannot be used, the error is one of usage. A full disk, or no place at all, is Unrecordable.
func NewPlace(output, spool, command string, force bool) (*Place, error) {
	p, err := choosePlace(output, command, force)
	if err != nil {
		return nil, err
	}
	if err := p.makeSpool(spool); err != nil {
		p.Abandon()
		return nil, err
	}
	return p, nil
}

func choosePlace(output, command string, force bool) (*Place, error) {
	if output != "" {
		return MakePlace(output, force)
	}
	name := fmt.Sprintf("memprof-%s-%s", filepath.Base(command), time.Now().Format("20060102-150405"))
	var failed []string
	for _, base := range []string{"", os.TempDir(), "/var/tmp", "/dev/shm"} {
		dir, err := freshDir(filepath.Join(base, name))
		if err != nil {
			failed = append(failed, err.Error())
			continue
		}
		p, err := MakePlace(dir, force)
		if err == nil {
			p.created = true
			return p, nil
		}
		os.Remove(dir)
		failed = append(failed, err.Error())
	}
	return nil, Unrecordable{errors.New(strings.Join(failed, "; "))}
}

// freshDir creates a directory of that name, or with a number after it: a script may start several recordings
// in one second.
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

// roomToStart is how many bytes a recording needs before its first event: a segment of the spool and the
// collector's ballast.
const roomToStart = 16 << 20

// MakePlace creates the directory of a recording, without a spool.
func MakePlace(output string, force bool) (*Place, error) {
	dir, err := filepath.Abs(output)
	if err != nil {
		return nil, exit.Usagef("-o %s: %w", output, err)
	}
	p := &Place{Shown: output, Dir: dir, Spool: filepath.Join(dir, spool.Name)}
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
		p.Abandon()
		return nil, placeError(err, "-o %s cannot be written: %w", output, err)
	}
	return p, nil
}

// placeError is an error of usage, or Unrecordable if the disk is full.
func placeError(cause error, format string, args ...any) error {
	if errors.Is(cause, syscall.ENOSPC) || errors.Is(cause, syscall.EDQUOT) {
		return Unrecordable{fmt.Errorf(format, args...)}
	}
	return exit.Usagef(format, args...)
}

// clear makes sure that the directory has no other recording, and no file that a reader would take for a part
// of this one. With force it removes an old recording by the names of its files, if each of them says that it
// is memprof's and nobody is recording there.
func (p *Place) clear(output string, force bool) error {
	busy, err := spool.InProgress(p.Dir)
	if err != nil {
		return exit.Usagef("-o %s: %w", output, err)
	}
	if busy != "" {
		return exit.Usagef("-o %s is being recorded (%s is still at work): choose another directory, or wait until it ends", output, busy)
	}
	old, err := dataset.Occupy(p.Dir)
	switch {
	case err != nil:
		return exit.Usagef("-o %s: %w", output, err)
	case len(old.Foreign) > 0:
		return exit.Usagef("-o %s holds files that are not memprof's but have the names of a recording (%s): choose another directory",
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

// writableDir returns why no file can be created in dir, or nil.
func writableDir(dir string) error {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err == nil && stat.Blocks > 0 && stat.Bavail*uint64(stat.Bsize) < roomToStart {
		return fmt.Errorf("%s: %w", dir, syscall.ENOSPC)
	}
	return outfile.Possible(dir)
}

// makeSpool creates the spool in the recording. With elsewhere it is a new folder there that the recording
// links to, so that `memprof record --finish` finds it in both cases.
func (p *Place) makeSpool(elsewhere string) error {
	if elsewhere == "" {
		if err := spool.Make(p.Dir, ""); err != nil {
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
	if err := spool.Make(p.Dir, parent); err != nil {
		return placeError(err, "--spool %s cannot be written: %w", elsewhere, err)
	}
	return nil
}

// Abandon removes what was created for a job that was not started.
func (p *Place) Abandon() {
	spool.Remove(p.Dir)
	os.Remove(filepath.Join(p.Dir, dataset.InfoName))
	if p.created {
		os.Remove(p.Dir)
	}
}
