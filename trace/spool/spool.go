package spool

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/memprof/memprof/trace"
)

// Name is the name of the spool in a run's directory while the run is recorded: a directory, or a link to
// one elsewhere.
const Name = "spool"

// finishedName is the name of the spool after the job has ended: renamed, so that no further process finds it.
// The collector then converts the remaining processes, writes Info.Processes to run.json, and
// removes the spool.
const finishedName = "spool-finished"

const (
	prefix    = "memprof-spool-" // of the name of each directory that Make makes outside the run's
	ownerName = "owner"          // in such a directory: a link whose text names the run's directory
)

// Make makes the spool of the run in dir, which has none. With parent "" it makes the directory dir/spool.
// Otherwise parent is an absolute path: Make makes a directory in it, and a link dir/spool to that. The
// new directory names its run, because a run's directory may come from somebody else and contain a link to
// a directory that is not the run's.
func Make(dir, parent string) error {
	if parent == "" {
		return os.Mkdir(filepath.Join(dir, Name), 0o700)
	}
	// The link first, so that no directory is left without one.
	target := filepath.Join(parent, prefix+rand.Text())
	link := filepath.Join(dir, Name)
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

// Spool is the spool of a run: the directory into which hooks write, with a directory for each process.
type Spool struct {
	run    *os.Root         // the run's directory
	name   string           // in it: Name or finishedName
	target string           // the directory elsewhere, if the spool is a link; else ""
	root   *os.Root         // the spool; nil if the directory elsewhere does not exist
	known  map[string]error // the processes that New returned, nil, or will not, and why
}

// Open opens the spool of the run in dir, under either name. Errors: [fs.ErrNotExist] if the run has no spool,
// [trace.ErrDamaged] if the spool is a link to anything but a directory of this run.
func Open(dir string) (*Spool, error) {
	run, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{Name, finishedName} {
		s := &Spool{run: run, name: name, known: map[string]error{}}
		if err = s.open(); err == nil {
			return s, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	run.Close()
	return nil, err
}

// Find is Open for a reader: nil without an error if the run has no spool, or its directory elsewhere does not
// exist.
func Find(dir string) (*Spool, error) {
	s, err := Open(dir)
	if err != nil {
		return nil, trace.IgnoreMissing(err)
	}
	if s.root == nil {
		s.Close()
		return nil, nil
	}
	return s, nil
}

// open opens the directory under the spool's name.
func (p *Spool) open() error {
	stat, err := p.run.Lstat(p.name)
	switch {
	case err != nil:
	case stat.IsDir():
		p.root, err = p.run.OpenRoot(p.name)
	case stat.Mode()&fs.ModeSymlink != 0:
		err = p.followLink()
	default:
		err = &trace.PathError{Path: p.path(), Err: trace.ErrDamaged, Detail: "the spool is not a directory"}
	}
	return err
}

// path is the path of the spool, for messages.
func (p *Spool) path() string { return filepath.Join(p.run.Name(), p.name) }

// Run is the run's directory. It is open until Close.
func (p *Spool) Run() *os.Root { return p.run }

// Close closes the directories.
func (p *Spool) Close() {
	if p.root != nil {
		p.root.Close()
	}
	p.run.Close()
}

// followLink opens the directory that the spool is a link to, if it belongs to this run.
func (p *Spool) followLink() error {
	target, err := p.run.Readlink(p.name)
	if err != nil {
		return err
	}
	if !filepath.IsAbs(target) || !strings.HasPrefix(filepath.Base(target), prefix) {
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
func (p *Spool) checkOwner(folder *os.Root, target string) error {
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

// CheckPresent is an [trace.ErrUnfinished] if the spool is a link to a directory that does not exist and that memprof did
// not remove (it renames the link first). The directory may be on a disk that is not mounted.
func (p *Spool) CheckPresent() error {
	if p.root != nil || p.Finished() {
		return nil
	}
	return &trace.PathError{Path: p.run.Name(), Err: trace.ErrUnfinished, Detail: "its spool is in " + p.target + ", which does not exist",
		Remedy: "mount its disk and run `memprof record --finish`; if the spool is lost, delete the link " + p.path()}
}

func (p *Spool) notOurs(target, why string) error {
	return &trace.PathError{Path: p.path(), Err: trace.ErrDamaged, Detail: "it is a link to " + target + ", " + why,
		Remedy: "if that is the recording's spool, replace the link by the directory itself"}
}

// Present says whether the directory of the spool exists.
func (p *Spool) Present() bool { return p.root != nil }

// Finished says whether the job has ended, so that no process finds the spool any more.
func (p *Spool) Finished() bool { return p.name == finishedName }

// Finish renames the spool, so that no process finds it any more.
func (p *Spool) Finish() error {
	if p.Finished() {
		return nil
	}
	if err := p.run.Rename(p.name, finishedName); err != nil {
		return err
	}
	p.name = finishedName
	return nil
}

// Remove removes a finished spool. If it is killed, another call removes the rest. It follows no link in the
// spool, and outside the run's directory removes only a directory that belongs to the run.
func (p *Spool) Remove() error {
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

// IsName says whether a name in a run's directory is one of its spool's.
func IsName(name string) bool { return name == Name || name == finishedName }

// Remove removes the spool of the run in dir and its content, if there is one.
func Remove(dir string) error {
	p, err := Open(dir)
	if err != nil {
		return trace.IgnoreMissing(err)
	}
	defer p.Close()
	if err := p.Finish(); err != nil {
		return err
	}
	return p.Remove()
}

// Names in a spool: directories of processes, and in these the files that record.h describes.
var (
	processDirName  = regexp.MustCompile(`^p\d+\.\d+$`)
	processFileName = regexp.MustCompile(`^(process|problems|strings|strings\.tmp|\d{6,}\.seg)$`)
)

// IsOwn says whether a spool, under its name in the run's directory, belongs to the run and holds only
// files of a spool.
func IsOwn(run *os.Root, name string) bool {
	p := &Spool{run: run, name: name}
	if p.open() != nil {
		return false
	}
	if p.root == nil { // the directory elsewhere has been removed
		return true
	}
	defer p.root.Close()
	entries, err := entriesOf(p.root)
	for _, e := range entries {
		if p.target != "" && e.Name() == ownerName {
			continue
		}
		if !e.IsDir() || !processDirName.MatchString(e.Name()) || !onlyProcessFiles(p.root, e.Name()) {
			return false
		}
	}
	return err == nil
}

func onlyProcessFiles(spool *os.Root, name string) bool {
	entries, err := fs.ReadDir(spool.FS(), name)
	for _, e := range entries {
		if !e.Type().IsRegular() || !processFileName.MatchString(e.Name()) {
			return false
		}
	}
	return err == nil
}
