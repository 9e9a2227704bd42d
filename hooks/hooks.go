// Package hooks holds what runs inside a profiled process, and puts it there.
//
// The hook is four things, all built or written beside this file and embedded in the
// memprof binary, so that one file is all a user copies:
//
//	dist/libmemprof.so   the capture hook, loaded by LD_PRELOAD
//	dist/sim/            a simulated CUDA driver and runtime, found by LD_LIBRARY_PATH
//	torch/               the source of the torch shim, compiled on the user's machine
//	capture/memprof.h    what the shim needs to know of the hook
//	python/              sitecustomize.py and the memprof package, found by PYTHONPATH
//
// A process can load only files, so Install writes them into a folder named after their
// content. Folders of several versions live side by side; a folder is renamed into place
// when it is complete, so that any number of processes may install at once.
//
// The Go in this package only carries files and environment variables. It knows nothing
// of what the hook records: that is trace's subject.
package hooks

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"

	"github.com/memprof/memprof/hooks/trust"
)

//go:embed all:dist torch/*.cpp torch/*.h python/*.py python/memprof/*.py python/memprof/*/*.py capture/memprof.h
var embedded embed.FS

// ErrNotBuilt says that this binary was compiled without `make -C hooks dist` before it:
// it can read traces but record none.
var ErrNotBuilt = errors.New("this memprof was built without its capture hook (build it with `make build`)")

const library = "libmemprof.so"

// simLibrary is the simulated driver; the other names a program may ask for are links to it.
const simLibrary = "sim/libcuda.so.1"

var simLinks = []string{"libcuda.so", "libcudart.so", "libcudart.so.11.0", "libcudart.so.12", "libcudart.so.13"}

// Installation is a folder with the hook's files, complete and ready to be loaded.
type Installation struct {
	// Dir is absolute and named after the content of the files.
	Dir string
	// ShimCache is where compiled shims are kept; versions of memprof share it.
	ShimCache string
	// PassedOver says why this is not in $MEMPROF_CACHE; empty if that is not set or has it.
	PassedOver string
}

// Library is the path of the capture hook.
func (i *Installation) Library() string { return filepath.Join(i.Dir, library) }

// SimDir is the folder of the simulated driver and runtime.
func (i *Installation) SimDir() string { return filepath.Join(i.Dir, "sim") }

// SimDriver is the path of the simulated driver.
func (i *Installation) SimDriver() string { return filepath.Join(i.Dir, simLibrary) }

// PythonDir is the folder to put on PYTHONPATH.
func (i *Installation) PythonDir() string { return filepath.Join(i.Dir, "python") }

// content maps paths below Installation.Dir to what they hold. dist/ is flattened into
// the folder itself.
func content() (map[string][]byte, error) {
	files := map[string][]byte{}
	err := fs.WalkDir(embedded, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Base(name) == ".keep" {
			return err
		}
		data, err := embedded.ReadFile(name)
		if err != nil {
			return err
		}
		files[strings.TrimPrefix(name, "dist/")] = data
		return nil
	})
	if err != nil {
		return nil, err
	}
	if files[library] == nil || files[simLibrary] == nil {
		return nil, ErrNotBuilt
	}
	return files, nil
}

// version is the content's name: 16 hexadecimal digits that change with any byte of the hook.
func version(files map[string][]byte) string {
	hash := sha256.New()
	for _, name := range sortedNames(files) {
		fmt.Fprintf(hash, "%s %d\n", name, len(files[name]))
		hash.Write(files[name])
	}
	return hex.EncodeToString(hash.Sum(nil))[:16]
}

func sortedNames(files map[string][]byte) []string {
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// Install makes sure that the hook's files lie in cache, a folder that is there, and
// returns where. Files that were damaged or removed since are put back.
func Install(cache string) (*Installation, error) {
	files, err := content()
	if err != nil {
		return nil, err
	}
	installed := installation(cache, files)
	if complete(installed.Dir, files) {
		return installed, nil
	}
	fresh, err := os.MkdirTemp(cache, ".install-")
	if err != nil {
		return nil, fmt.Errorf("installing the hook: %w", err)
	}
	defer os.RemoveAll(fresh)
	if err := write(fresh, files); err != nil {
		return nil, fmt.Errorf("installing the hook: %w", err)
	}
	if err := replace(installed.Dir, fresh, files); err != nil {
		return nil, fmt.Errorf("installing the hook: %w", err)
	}
	return installed, nil
}

// installation is where files belong in a cache.
func installation(cache string, files map[string][]byte) *Installation {
	return &Installation{
		Dir:       filepath.Join(cache, version(files)),
		ShimCache: filepath.Join(cache, "shim"),
	}
}

// complete says whether the files are in dir, byte by byte, and nobody else can change them: all that is there may be loaded
// into the user's processes. It takes some milliseconds before every recording.
func complete(dir string, files map[string][]byte) bool {
	dropCompiled(dir, files)
	if err := trust.Tree(dir); err != nil {
		return false
	}
	for name, data := range files {
		found, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Equal(found, data) {
			return false
		}
	}
	for _, link := range simLinks {
		target, err := os.Readlink(filepath.Join(dir, "sim", link))
		if err != nil || target != path.Base(simLibrary) {
			return false
		}
	}
	return true
}

// dropCompiled removes what Python has compiled of the package where others can change it: a umask that is wide makes
// it so, and Python loads it in place of the source.
func dropCompiled(dir string, files map[string][]byte) {
	folders := map[string]bool{}
	for name := range files {
		if path.Ext(name) == ".py" {
			folders[path.Dir(name)] = true
		}
	}
	for folder := range folders {
		compiled := filepath.Join(dir, folder, "__pycache__")
		if err := trust.Tree(compiled); errors.Is(err, trust.ErrOthers) {
			os.RemoveAll(compiled)
		}
	}
}

func write(dir string, files map[string][]byte) error {
	for name, data := range files {
		target := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(target, data, 0o644); err != nil { // in a folder that was made for it
			return err
		}
	}
	for _, link := range simLinks {
		name := filepath.Join(dir, "sim", link)
		if err := os.Symlink(path.Base(simLibrary), name); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return os.Chmod(dir, 0o755)
}

// replace moves fresh to dir. A damaged folder is moved out of the way first, never
// emptied: processes may have its library mapped.
func replace(dir, fresh string, files map[string][]byte) error {
	for attempt := 0; ; attempt++ {
		err := os.Rename(fresh, dir)
		if err == nil || complete(dir, files) { // complete: another process was faster
			return nil
		}
		if attempt == 3 {
			return err
		}
		aside, err := os.MkdirTemp(filepath.Dir(dir), ".damaged-")
		if err != nil {
			return err
		}
		os.Rename(dir, filepath.Join(aside, "old"))
		os.RemoveAll(aside)
	}
}
