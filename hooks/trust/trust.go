// Package trust says whether anybody else could have put there what lies at a path: what is loaded into the
// user's processes must be the user's own.
package trust

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// ErrOthers says that other users can change what lies at a path.
var ErrOthers = errors.New("other users can change it")

// Path checks a file or directory that exists, and every directory above it: each must belong to this user, to root or
// to the owner of /, and must not be writable for others, nor for its group unless that is one of groups. A sticky directory such as /tmp
// may be above the path, as it keeps what is in it for its owners. The path has no links; see [filepath.EvalSymlinks].
func Path(path string, groups ...int) error {
	for at := path; ; at = filepath.Dir(at) {
		stat, err := os.Lstat(at)
		if err != nil {
			return err
		}
		if err := entry(at, stat, at != path, groups); err != nil {
			return err
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

// Tree checks a directory, every directory above it and every file below it, as [Path] does.
func Tree(dir string) error {
	if err := Path(dir); err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		stat, err := e.Info()
		if err != nil {
			return err
		}
		return entry(path, stat, false, nil)
	})
}

// entry checks one file. Above says that it is a directory on the way to what is to be trusted.
func entry(path string, stat fs.FileInfo, above bool, groups []int) error {
	sys, ok := stat.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	if !slices.Contains(owners(), int(sys.Uid)) {
		return fmt.Errorf("%s belongs to user %d: %w", path, sys.Uid, ErrOthers)
	}
	if stat.Mode()&fs.ModeSymlink != 0 || above && stat.Mode()&fs.ModeSticky != 0 {
		return nil
	}
	open := stat.Mode().Perm() & 0o022
	if slices.Contains(groups, int(sys.Gid)) {
		open &= 0o002
	}
	if open != 0 {
		return fmt.Errorf("%s has mode %04o: %w", path, stat.Mode().Perm(), ErrOthers)
	}
	return nil
}

// owners are the users whose files are trusted. In a container / may belong to whoever set it up.
func owners() []int {
	trusted := []int{os.Geteuid(), 0}
	if stat, err := os.Lstat("/"); err == nil {
		if sys, ok := stat.Sys().(*syscall.Stat_t); ok {
			trusted = append(trusted, int(sys.Uid))
		}
	}
	return trusted
}
