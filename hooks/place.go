package hooks

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/memprof/memprof/hooks/trust"
	"github.com/memprof/memprof/trace/outfile"
)

// InstallAnywhere installs the hook in $MEMPROF_CACHE, which need not be writable if the
// hook is there; or, where that is not set or other users can change it, in the first folder that will do: memprof/ in
// the user's cache directory, or one of the user's own in the temporary directory, in
// /dev/shm or /var/tmp. A folder will not do where it cannot be written (a read-only
// home), where other users can change it or a folder above it, where nothing may be executed, or where there is no room.
func InstallAnywhere() (*Installation, error) {
	dir := os.Getenv("MEMPROF_CACHE")
	if dir == "" {
		return installSomewhere()
	}
	installed, given := installGiven(dir)
	if !errors.Is(given, trust.ErrOthers) {
		return installed, given
	}
	installed, err := installSomewhere()
	if err != nil {
		return nil, errors.Join(given, err)
	}
	installed.PassedOver = given.Error()
	return installed, nil
}

func installSomewhere() (*Installation, error) {
	var failed []error
	if dir, err := os.UserCacheDir(); err == nil {
		installed, err := installIn(filepath.Join(dir, "memprof"))
		if err == nil || errors.Is(err, ErrNotBuilt) {
			return installed, err
		}
		failed = append(failed, err)
	}
	for _, dir := range []string{os.TempDir(), "/dev/shm", "/var/tmp"} {
		installed, err := installIn(filepath.Join(dir, fmt.Sprintf("memprof-%d", os.Getuid())))
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
	own, err := makeOwn(dir)
	if errors.Is(err, trust.ErrOthers) {
		return nil, err
	}
	if err == nil {
		dir, err = own, writable(own)
	}
	if err != nil {
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
	if dir, err = filepath.EvalSymlinks(dir); err != nil || loadable(dir) != nil {
		return nil
	}
	installed := installation(dir, files)
	if !complete(installed.Dir, files) {
		return nil
	}
	return installed
}

// installIn installs in dir, or fails where others can change what is there.
func installIn(dir string) (*Installation, error) {
	dir, err := filepath.Abs(dir) // jobs change their directory
	if err != nil {
		return nil, err
	}
	if err := loadable(dir); err != nil {
		return nil, err
	}
	if dir, err = makeOwn(dir); err != nil {
		return nil, err
	}
	if err := writable(dir); err != nil {
		return nil, err
	}
	return Install(dir)
}

// makeOwn creates dir where it is not there, in a folder that nobody else can change, and returns it without links: a
// link in the way may belong to anybody, if what it leads to does not. The error of what others can change is
// [trust.ErrOthers].
func makeOwn(dir string) (string, error) {
	above := dir
	for {
		if _, err := os.Lstat(above); !errors.Is(err, fs.ErrNotExist) || above == filepath.Dir(above) {
			break
		}
		above = filepath.Dir(above)
	}
	real, err := filepath.EvalSymlinks(above)
	if err != nil {
		return "", err
	}
	if above != dir {
		// What is made there is this user's, as it would be below a sticky directory.
		if err := trust.Path(filepath.Join(real, ".")); err != nil && !sticky(real) {
			return "", notOwn(err)
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", err
		}
	}
	if real, err = filepath.EvalSymlinks(dir); err != nil {
		return "", err
	}
	if err := loadable(real); err != nil {
		return "", err
	}
	if err := trust.Path(real); err != nil {
		return "", notOwn(err)
	}
	return real, nil
}

func notOwn(err error) error {
	return fmt.Errorf("no library is loaded from there: %w (set MEMPROF_CACHE to a directory of your own)", err)
}

func sticky(dir string) bool {
	stat, err := os.Lstat(dir)
	return err == nil && stat.Mode()&fs.ModeSticky != 0
}

// loadable refuses a path that LD_PRELOAD or PYTHONPATH would take for several.
func loadable(dir string) error {
	if strings.ContainsAny(dir, ": ;\t\n") {
		return fmt.Errorf("%s: a path with a blank, a colon or a semicolon cannot be in LD_PRELOAD", dir)
	}
	return nil
}

// writable sees that files may be made in dir, and libraries loaded from there.
func writable(dir string) error {
	const noExec = 0x8 // ST_NOEXEC of statfs(2)
	if err := outfile.Possible(dir); err != nil {
		return err
	}
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err == nil && stat.Flags&noExec != 0 {
		return fmt.Errorf("%s: mounted noexec, so no library can be loaded from there", dir)
	}
	return nil
}
