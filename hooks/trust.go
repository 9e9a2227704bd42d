package hooks

// This file checks whether other users can change a file: code that is loaded into a user's processes must be
// of files that only this user or root can change.

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// ErrOthers: other users can change a file or a folder above it.
var ErrOthers = errors.New("other users can change it")

// Trusted checks an existing file or directory, and every directory above it. Each must belong to this user, to root or to
// the owner of /, and must not be writable by others, nor by its group unless that is one of groups. A directory above
// may be sticky, like /tmp, where only owners can remove or rename. The path must have no links: see
// [filepath.EvalSymlinks].
func Trusted(path string, groups ...int) error {
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

// TrustedTree checks a directory, every directory above it and every file below it, as [Trusted] does.
func TrustedTree(dir string) error {
	if err := Trusted(dir); err != nil {
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

// entry checks one file. above: it is a directory above the path to be checked.
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

// owners returns the users whose files are trusted. In a container, / may belong to the user who made it.
func owners() []int {
	trusted := []int{os.Geteuid(), 0}
	if stat, err := os.Lstat("/"); err == nil {
		if sys, ok := stat.Sys().(*syscall.Stat_t); ok {
			trusted = append(trusted, int(sys.Uid))
		}
	}
	return trusted
}
