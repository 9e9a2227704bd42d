// Package hooks has the files that run inside a profiled process, and installs them.
//
// The files are embedded in the memprof binary, so that a user copies one file:
//
//	dist/libmemprof.so   the capture hook, loaded by LD_PRELOAD
//	dist/sim/            a simulated CUDA driver and runtime, found by LD_LIBRARY_PATH
//	torch/               the source of the torch shim, compiled on the user's machine
//	capture/memprof.h    the hook's functions, for the shim
//	python/              sitecustomize.py and the memprof package, found by PYTHONPATH; the wheel has it without this folder, and a .pth file
//
// Install writes them into a folder whose name is a digest of their content, so folders of several
// versions may exist. A folder gets its name when it is complete, so several processes may install
// at the same time.
//
// The Go of this package handles files and environment variables only. Package trace knows what
// the hook records.
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
)

//go:embed all:dist torch/*.cpp torch/*.h python/*.py python/memprof/*.py python/memprof/*/*.py python/memprof/*/*.txt python/memprof/*/*/*.py capture/memprof.h
var embedded embed.FS

// ErrNotBuilt: this binary was compiled without `make -C hooks dist` before. It can read traces,
// but record none.
var ErrNotBuilt = errors.New("this memprof was built without its capture hook (build it with `make build`)")

const library = "libmemprof.so"

// simLibrary is the simulated driver. simLinks, other names that programs load, are links to it. In driver/ there is no runtime: a
// torch that is linked with a libcudart.so of the system needs more functions of it than are simulated.
const simLibrary = "sim/libcuda.so.1"

var simLinks = []string{
	"sim/libcuda.so", "sim/libcudart.so", "sim/libcudart.so.11.0", "sim/libcudart.so.12", "sim/libcudart.so.13",
	"driver/libcuda.so", "driver/libcuda.so.1",
}

// simTarget is what the links of simLinks lead to.
const simTarget = "../" + simLibrary

// Installation is a complete folder with the hook's files.
type Installation struct {
	// Dir is the absolute path of the folder.
	Dir string
	// ShimCache is the folder of compiled shims, which all versions of memprof share.
	ShimCache string
	// PassedOver is the reason why $MEMPROF_CACHE is not used; empty if it is used, or not set.
	PassedOver string
}

// Library is the path of the capture hook.
func (i *Installation) Library() string { return filepath.Join(i.Dir, library) }

// SimDir is the folder of the simulated driver and runtime.
func (i *Installation) SimDir() string { return filepath.Join(i.Dir, "sim") }

// SimDriverDir is the folder of the simulated driver alone.
func (i *Installation) SimDriverDir() string { return filepath.Join(i.Dir, "driver") }

// SimDriver is the path of the simulated driver.
func (i *Installation) SimDriver() string { return filepath.Join(i.Dir, simLibrary) }

// PythonDir is the folder to put on PYTHONPATH.
func (i *Installation) PythonDir() string { return filepath.Join(i.Dir, "python") }

// content returns the content of each file by its path below Installation.Dir. Files of dist/ go
// into the folder itself.
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

// version returns the first 16 hexadecimal digits of a digest of all files.
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

// Install installs the hook's files in cache, an existing folder, unless they are there already.
// Damaged or removed files are replaced.
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

// installation returns where the files belong in a cache.
func installation(cache string, files map[string][]byte) *Installation {
	return &Installation{
		Dir:       filepath.Join(cache, version(files)),
		ShimCache: filepath.Join(cache, "shim"),
	}
}

// complete returns whether dir has exactly these files, and no other user can change them: whatever is there may be
// loaded into the user's processes. It takes some milliseconds before every recording.
func complete(dir string, files map[string][]byte) bool {
	dropCompiled(dir, files)
	if err := TrustedTree(dir); err != nil {
		return false
	}
	for name, data := range files {
		found, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Equal(found, data) {
			return false
		}
	}
	for _, link := range simLinks {
		target, err := os.Readlink(filepath.Join(dir, link))
		if err != nil || target != simTarget {
			return false
		}
	}
	return true
}

// dropCompiled removes files that Python has compiled of the package, if other users can change them. Python would load
// them in place of the sources, and writes them so under a wide umask.
func dropCompiled(dir string, files map[string][]byte) {
	folders := map[string]bool{}
	for name := range files {
		if path.Ext(name) == ".py" {
			folders[path.Dir(name)] = true
		}
	}
	for folder := range folders {
		compiled := filepath.Join(dir, folder, "__pycache__")
		if err := TrustedTree(compiled); errors.Is(err, ErrOthers) {
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
		if err := os.WriteFile(target, data, 0o644); err != nil { // the folder was made for it
			return err
		}
	}
	for _, link := range simLinks {
		name := filepath.Join(dir, link)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(simTarget, name); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return os.Chmod(dir, 0o755)
}

// replace moves fresh to dir. A damaged folder is first moved aside as a whole, since processes may
// have its library mapped.
func replace(dir, fresh string, files map[string][]byte) error {
	for attempt := 0; ; attempt++ {
		err := os.Rename(fresh, dir)
		if err == nil || complete(dir, files) { // complete: another process has installed it meanwhile
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
