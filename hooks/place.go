package hooks

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// InstallAnywhere installs the hook in $MEMPROF_CACHE, which need not be writable if the
// hook is there; or, where that is not set, in the first folder that will do: memprof/ in
// the user's cache directory, or one of the user's own in the temporary directory, in
// /dev/shm or /var/tmp. A folder will not do where it cannot be written (a read-only
// home), where nothing may be executed, or where there is no room.
func InstallAnywhere() (*Installation, error) {
	if dir := os.Getenv("MEMPROF_CACHE"); dir != "" {
		return installGiven(dir)
	}
	var failed []error
	if dir, err := os.UserCacheDir(); err == nil {
		installed, err := installIn(filepath.Join(dir, "memprof"), false)
		if err == nil || errors.Is(err, ErrNotBuilt) {
			return installed, err
		}
		failed = append(failed, err)
	}
	for _, dir := range []string{os.TempDir(), "/dev/shm", "/var/tmp"} {
		installed, err := installIn(filepath.Join(dir, fmt.Sprintf("memprof-%d", os.Getuid())), true)
		if err == nil || errors.Is(err, ErrNotBuilt) {
			return installed, err
		}
		failed = append(failed, err)
	}
	return nil, inOneLine(failed)
}

// inOneLine joins errors as one line of text.
func inOneLine(failed []error) error {
	var texts []string
	for _, err := range failed {
		texts = append(texts, err.Error())
	}
	return errors.New(strings.Join(texts, "; "))
}

func installGiven(dir string) (*Installation, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := loadable(dir); err != nil {
		return nil, err
	}
	if err := writable(dir); err != nil {
		if installed := existing(dir); installed != nil {
			return installed, nil
		}
		return nil, err
	}
	return Install(dir)
}

// existing is a complete installation in dir, or nil.
func existing(dir string) *Installation {
	files, err := content()
	if err != nil {
		return nil
	}
	installed := installation(dir, files)
	if !complete(installed.Dir, files) {
		return nil
	}
	return installed
}

// installIn installs in dir, which others may be able to write beside when it is shared.
func installIn(dir string, shared bool) (*Installation, error) {
	dir, err := filepath.Abs(dir) // jobs change their directory
	if err != nil {
		return nil, err
	}
	if err := loadable(dir); err != nil {
		return nil, err
	}
	if err := writable(dir); err != nil {
		return nil, err
	}
	if shared {
		if err := private(dir); err != nil {
			return nil, err
		}
	}
	return Install(dir)
}

// loadable refuses a path that LD_PRELOAD or PYTHONPATH would take for several.
func loadable(dir string) error {
	if strings.ContainsAny(dir, ": ;\t\n") {
		return fmt.Errorf("%s: a path with a blank, a colon or a semicolon cannot be in LD_PRELOAD", dir)
	}
	return nil
}

// writable creates dir and a file in it, and sees that libraries may be loaded from there.
func writable(dir string) error {
	const noExec = 0x8 // ST_NOEXEC of statfs(2)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	probe, err := os.CreateTemp(dir, ".probe-")
	if err != nil {
		return err
	}
	probe.Close()
	if err := os.Remove(probe.Name()); err != nil {
		return err
	}
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err == nil && stat.Flags&noExec != 0 {
		return fmt.Errorf("%s: mounted noexec, so no library can be loaded from there", dir)
	}
	return nil
}

// private refuses a folder that somebody else could put a library into: what lies there
// is loaded into the user's processes.
func private(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || info.Mode().Perm()&0o022 != 0 || (ok && int(owner.Uid) != os.Getuid()) {
		return fmt.Errorf("%s: not a private directory of this user (remove it, or set MEMPROF_CACHE)", dir)
	}
	return nil
}
