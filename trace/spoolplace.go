package trace

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// SpoolName is the directory inside a run's directory that holds the spool while the run
// is recorded.
const SpoolName = "spool"

// finishedName is what the spool is renamed to when the job has ended, so that no process finds it any
// more. Processes that came before that are still converted; then run.json gets Info.Processes, and
// from there on the spool only remains to be removed.
const finishedName = "spool-finished"

const (
	spoolPrefix = "memprof-spool-" // starts the name of every folder that MakeSpool makes elsewhere
	ownerName   = "owner"          // in such a folder a link whose text says whose it is
)

// MakeSpool makes the spool of the run in dir, which has none: the directory dir/spool, or, with a
// parent, an absolute path, a new folder in it that the link dir/spool leads to. The folder says which run it
// belongs to: a run's directory may come from somebody else, with a link to what is not its own.
func MakeSpool(dir, parent string) error {
	if parent == "" {
		return os.Mkdir(filepath.Join(dir, SpoolName), 0o700)
	}
	// The link first: a folder is never without one.
	target := filepath.Join(parent, spoolPrefix+rand.Text())
	link := filepath.Join(dir, SpoolName)
	if err := os.Symlink(target, link); err != nil {
		return err
	}
	err := os.Mkdir(target, 0o700)
	if err == nil {
		err = writeOwner(target, dir)
	}
	if err != nil {
		os.Remove(filepath.Join(target, ownerName))
		syscall.Rmdir(target)
		os.Remove(link)
	}
	return err
}

// writeOwner has the folder target say that it belongs to the run in dir. A link is there with all its text or not at
// all; nobody follows it.
func writeOwner(target, dir string) error {
	stat, err := os.Stat(dir)
	if err != nil {
		return err
	}
	return os.Symlink(fileID(stat)+" "+dir, filepath.Join(target, ownerName))
}

// fileID is the same for two names of one file.
func fileID(stat fs.FileInfo) string {
	if sys, ok := stat.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf("%d:%d", sys.Dev, sys.Ino)
	}
	return "-"
}

// spoolPlace is where the spool of a run lies.
type spoolPlace struct {
	run    *os.Root // the run's directory
	name   string   // in it: SpoolName or finishedName
	target string   // the folder elsewhere that it is a link to, "" for none
	root   *os.Root // the spool, nil if the link leads nowhere
}

// openPlace finds the spool of a run, finished or not; an [fs.ErrNotExist] without one. A link that
// leads to anything but a folder of this run's is an [ErrDamaged].
func openPlace(run *os.Root) (*spoolPlace, error) {
	for _, name := range []string{SpoolName, finishedName} {
		stat, err := run.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		place := &spoolPlace{run: run, name: name}
		switch {
		case stat.IsDir():
			place.root, err = run.OpenRoot(name)
		case stat.Mode()&fs.ModeSymlink != 0:
			err = place.followLink()
		default:
			err = &PathError{Path: place.path(), Err: ErrDamaged, Detail: "the spool is not a directory"}
		}
		if err != nil {
			return nil, err
		}
		return place, nil
	}
	return nil, &fs.PathError{Op: "open", Path: filepath.Join(run.Name(), SpoolName), Err: fs.ErrNotExist}
}

// openPlaceOf is openPlace of the run in dir.
func openPlaceOf(dir string) (*spoolPlace, error) {
	run, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	place, err := openPlace(run)
	if err != nil {
		run.Close()
	}
	return place, err
}

// path is the spool's path for people.
func (p *spoolPlace) path() string { return filepath.Join(p.run.Name(), p.name) }

func (p *spoolPlace) close() {
	if p.root != nil {
		p.root.Close()
	}
	p.run.Close()
}

// followLink opens the folder that the spool is a link to, if it is this run's.
func (p *spoolPlace) followLink() error {
	target, err := p.run.Readlink(p.name)
	if err != nil {
		return err
	}
	if !filepath.IsAbs(target) || !strings.HasPrefix(filepath.Base(target), spoolPrefix) {
		return p.notOurs(target, "which is no folder that memprof makes for a spool")
	}
	stat, err := os.Lstat(target)
	if errors.Is(err, fs.ErrNotExist) {
		p.target = target
		return nil
	}
	if err != nil {
		return err
	}
	if !stat.IsDir() {
		return p.notOurs(target, "which is no directory")
	}
	root, err := os.OpenRoot(target)
	if err != nil {
		return err
	}
	if err := p.checkOwner(root, target); err != nil {
		root.Close()
		return err
	}
	p.target, p.root = target, root
	return nil
}

// checkOwner demands that a folder says that it belongs to this run, or is empty.
func (p *spoolPlace) checkOwner(folder *os.Root, target string) error {
	text, err := folder.Readlink(ownerName)
	if errors.Is(err, fs.ErrNotExist) {
		entries, err := entriesOf(folder)
		if err != nil || len(entries) == 0 {
			return err
		}
		return p.notOurs(target, "which does not say whose spool it is")
	}
	if err != nil {
		return err
	}
	id, dir, _ := strings.Cut(text, " ")
	mine, err := p.run.Stat(".")
	if err != nil {
		return err
	}
	if id == fileID(mine) {
		return nil
	}
	// A recording that was copied and put back lies where it did and is another file.
	if stat, err := os.Stat(dir); err == nil && os.SameFile(stat, mine) {
		return nil
	}
	return p.notOurs(target, "which belongs to the recording in "+dir)
}

// lost is an [ErrUnfinished] if the spool is a link whose folder is not there and has not been removed by
// memprof, which renames the link first: it may be on a disk that is not mounted.
func (p *spoolPlace) lost() error {
	if p.root != nil || p.name == finishedName {
		return nil
	}
	return &PathError{Path: p.run.Name(), Err: ErrUnfinished, Detail: "its spool is in " + p.target + ", which is not there",
		Remedy: "mount it and run `memprof recover`; if it is lost, delete the link " + p.path()}
}

func (p *spoolPlace) notOurs(target, why string) error {
	return &PathError{Path: p.path(), Err: ErrDamaged, Detail: "it is a link to " + target + ", " + why,
		Remedy: "if that is the recording's spool, put the folder itself in the place of the link"}
}

// finish says that the spool only remains to be removed.
func (p *spoolPlace) finish() error {
	if p.name == finishedName {
		return nil
	}
	if err := p.run.Rename(p.name, finishedName); err != nil {
		return err
	}
	p.name = finishedName
	return nil
}

// remove removes a finished spool. Whenever it is killed, the next one ends what it began. No link in the spool is
// followed, and elsewhere only the content of a folder is removed that is the run's own.
func (p *spoolPlace) remove() error {
	if p.target == "" {
		return p.run.RemoveAll(p.name)
	}
	if p.root != nil {
		entries, err := entriesOf(p.root)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.Name() == ownerName {
				continue // last: without it the folder would be nobody's
			}
			if err := p.root.RemoveAll(e.Name()); err != nil {
				return err
			}
		}
		if err := p.root.Remove(ownerName); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		// Not os.Remove, which would remove a file that has taken the folder's name.
		if err := syscall.Rmdir(p.target); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return &fs.PathError{Op: "rmdir", Path: p.target, Err: err}
		}
	}
	return p.run.Remove(p.name)
}

// entriesOf lists an open directory, sorted by name.
func entriesOf(dir *os.Root) ([]fs.DirEntry, error) { return fs.ReadDir(dir.FS(), ".") }

// openRegular opens a file for reading that is one: a pipe in its place would be waited for, and a link leads to
// what is not the directory's.
func openRegular(dir *os.Root, name string) (*os.File, error) {
	notRegular := func() error {
		return &PathError{Path: filepath.Join(dir.Name(), name), Err: ErrDamaged, Detail: "it is not a regular file"}
	}
	before, err := dir.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, notRegular()
	}
	f, err := dir.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if stat, err := f.Stat(); err != nil || !stat.Mode().IsRegular() {
		f.Close()
		return nil, notRegular()
	}
	return f, nil
}

// readRegular reads a file that has at most so many bytes.
func readRegular(dir *os.Root, name string, most int64) ([]byte, error) {
	f, err := openRegular(dir, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = &PathError{Path: filepath.Join(dir.Name(), name), Err: ErrDamaged, Detail: fmt.Sprintf("more than %d bytes", most)}
	}
	return text, err
}
