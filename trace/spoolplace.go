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

// SpoolName is the name of the spool in a run's directory while the run is recorded: a directory, or a link to
// one elsewhere.
const SpoolName = "spool"

// finishedName is the name of the spool after the job has ended: renamed, so that no further process finds it.
// The collector then converts the remaining processes, writes Info.Processes to run.json, and
// removes the spool.
const finishedName = "spool-finished"

const (
	spoolPrefix = "memprof-spool-" // of the name of each directory that MakeSpool makes outside the run's
	ownerName   = "owner"          // in such a directory: a link whose text names the run's directory
)

// MakeSpool makes the spool of the run in dir, which has none. With parent "" it makes the directory dir/spool.
// Otherwise parent is an absolute path: MakeSpool makes a directory in it, and a link dir/spool to that. The
// new directory names its run, because a run's directory may come from somebody else and contain a link to
// a directory that is not the run's.
func MakeSpool(dir, parent string) error {
	if parent == "" {
		return os.Mkdir(filepath.Join(dir, SpoolName), 0o700)
	}
	// The link first, so that no directory is left without one.
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

// writeOwner notes in the directory target that it belongs to the run in dir. It uses the text of a link, which
// is written atomically; the link is never followed.
func writeOwner(target, dir string) error {
	stat, err := os.Stat(dir)
	if err != nil {
		return err
	}
	return os.Symlink(fileID(stat)+" "+dir, filepath.Join(target, ownerName))
}

// fileID identifies a file by device and inode, so that it is equal for all its names.
func fileID(stat fs.FileInfo) string {
	if sys, ok := stat.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf("%d:%d", sys.Dev, sys.Ino)
	}
	return "-"
}

// spoolPlace is the spool of a run: its name in the run's directory, and the directory itself.
type spoolPlace struct {
	run    *os.Root // the run's directory
	name   string   // in it: SpoolName or finishedName
	target string   // the directory elsewhere, if the spool is a link; else ""
	root   *os.Root // the spool; nil if the directory elsewhere does not exist
}

// openPlace opens the spool of a run, under either name. Errors: [fs.ErrNotExist] if the run has no spool,
// [ErrDamaged] if the spool is a link to anything but a directory of this run.
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

// path is the path of the spool, for messages.
func (p *spoolPlace) path() string { return filepath.Join(p.run.Name(), p.name) }

func (p *spoolPlace) close() {
	if p.root != nil {
		p.root.Close()
	}
	p.run.Close()
}

// followLink opens the directory that the spool is a link to, if it belongs to this run.
func (p *spoolPlace) followLink() error {
	target, err := p.run.Readlink(p.name)
	if err != nil {
		return err
	}
	if !filepath.IsAbs(target) || !strings.HasPrefix(filepath.Base(target), spoolPrefix) {
		return p.notOurs(target, "which is not a directory that memprof made for a spool")
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
		return p.notOurs(target, "which is not a directory")
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

// checkOwner fails unless the directory names this run as its owner or is empty.
func (p *spoolPlace) checkOwner(folder *os.Root, target string) error {
	text, err := folder.Readlink(ownerName)
	if errors.Is(err, fs.ErrNotExist) {
		entries, err := entriesOf(folder)
		if err != nil || len(entries) == 0 {
			return err
		}
		return p.notOurs(target, "which does not name the run that it belongs to")
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
	// A recording that was copied and put back has another inode and the same path.
	if stat, err := os.Stat(dir); err == nil && os.SameFile(stat, mine) {
		return nil
	}
	return p.notOurs(target, "which belongs to the recording in "+dir)
}

// checkPresent is an [ErrUnfinished] if the spool is a link to a directory that does not exist and that memprof did
// not remove (it renames the link first). The directory may be on a disk that is not mounted.
func (p *spoolPlace) checkPresent() error {
	if p.root != nil || p.name == finishedName {
		return nil
	}
	return &PathError{Path: p.run.Name(), Err: ErrUnfinished, Detail: "its spool is in " + p.target + ", which does not exist",
		Remedy: "mount its disk and run `memprof recover`; if the spool is lost, delete the link " + p.path()}
}

func (p *spoolPlace) notOurs(target, why string) error {
	return &PathError{Path: p.path(), Err: ErrDamaged, Detail: "it is a link to " + target + ", " + why,
		Remedy: "if that is the recording's spool, replace the link by the directory itself"}
}

// finish renames the spool, so that no process finds it any more.
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

// remove removes a finished spool. If it is killed, another call removes the rest. It follows no link in the
// spool, and outside the run's directory removes only a directory that belongs to the run.
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
				continue // removed last: it names the run that the directory belongs to
			}
			if err := p.root.RemoveAll(e.Name()); err != nil {
				return err
			}
		}
		if err := p.root.Remove(ownerName); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		// os.Remove would also remove a file that has replaced the directory.
		if err := syscall.Rmdir(p.target); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return &fs.PathError{Op: "rmdir", Path: p.target, Err: err}
		}
	}
	return p.run.Remove(p.name)
}

// entriesOf lists an open directory, sorted by name.
func entriesOf(dir *os.Root) ([]fs.DirEntry, error) { return fs.ReadDir(dir.FS(), ".") }

// openRegular opens a regular file for reading. It refuses a pipe, which would block, and a link, which may
// lead out of the directory.
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

// readRegular reads a file of at most `most` bytes.
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
