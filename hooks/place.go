package hooks

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/memprof/memprof/trace/outfile"
)

// InstallAnywhere installs the hook in $MEMPROF_CACHE, which need not be writable if it has the hook.
// If that is not set, or other users can change it, it takes the first suitable folder of: memprof/ in
// the user's cache directory, and a folder of the user's in the temporary directory, /dev/shm and
// /var/tmp. A folder is unsuitable if it cannot be written (a read-only home), if other users can
// change it or a folder above it, if files there cannot be executed, or if there is no space.
func InstallAnywhere() (*Installation, error) {
	dir := os.Getenv("MEMPROF_CACHE")
	if dir == "" {
		return installSomewhere()
	}
	installed, given := installGiven(dir)
	if !errors.Is(given, ErrOthers) {
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
	own, err := makeOwn(dir, 0o755) // an image's, say, that another user runs
	if errors.Is(err, ErrOthers) {
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

// existing returns the complete installation in dir, or nil.
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

// installIn installs in dir. It fails if other users can change dir.
func installIn(dir string) (*Installation, error) {
	dir, err := filepath.Abs(dir) // absolute, since jobs change their directory
	if err != nil {
		return nil, err
	}
	if err := loadable(dir); err != nil {
		return nil, err
	}
	if dir, err = makeOwn(dir, 0o700); err != nil {
		return nil, err
	}
	if err := writable(dir); err != nil {
		return nil, err
	}
	return Install(dir)
}

// makeOwn creates dir with that mode if it is missing, and returns its path without links. No other user may be able to
// change dir or a folder above it, else the error is [ErrOthers]. A link on the way may belong to anybody.
func makeOwn(dir string, mode fs.FileMode) (string, error) {
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
		// A folder made there belongs to this user, as one below a sticky directory does.
		if err := Trusted(filepath.Join(real, ".")); err != nil && !sticky(real) {
			return "", notOwn(err)
		}
		if err := os.MkdirAll(dir, mode); err != nil {
			return "", err
		}
	}
	if real, err = filepath.EvalSymlinks(dir); err != nil {
		return "", err
	}
	if err := loadable(real); err != nil {
		return "", err
	}
	if err := Trusted(real); err != nil {
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

// loadable refuses a path with characters that separate paths in LD_PRELOAD or PYTHONPATH.
func loadable(dir string) error {
	if strings.ContainsAny(dir, ": ;\t\n") {
		return fmt.Errorf("%s: a path with a blank, a colon or a semicolon cannot be in LD_PRELOAD", dir)
	}
	return nil
}

// writable returns an error unless files can be made in dir, and libraries loaded from there.
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
