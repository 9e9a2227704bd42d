package hooks

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

func install(t *testing.T, cache string) *Installation {
	t.Helper()
	installed, err := Install(cache)
	assert.Must(t, !errors.Is(err, ErrNotBuilt), "hooks/dist/libmemprof.so is missing: run `make -C hooks dist` first")
	assert.NoError(t, err)
	return installed
}

func TestInstallAgain(t *testing.T) {
	cache := t.TempDir()
	first := install(t, cache)
	before, err := os.Stat(first.Library())
	assert.NoError(t, err)
	second := install(t, cache)
	after, err := os.Stat(second.Library())
	assert.NoError(t, err)
	assert.That(t, first.Dir == second.Dir && os.SameFile(before, after), "a complete installation was written again: %s, then %s", first.Dir, second.Dir)
	for _, name := range []string{"torch/shim.cpp", "capture/memprof.h", "python/sitecustomize.py", "python/memprof/__init__.py", "python/memprof/_attribution/__init__.py", "sim/libcuda.so.1", "sim/libcudart.so.12"} {
		_, err := os.Stat(filepath.Join(first.Dir, name))
		assert.That(t, err == nil, "not installed: %v", err)
	}
}

func TestInstallRepairs(t *testing.T) {
	cache := t.TempDir()
	installed := install(t, cache)
	want, err := os.ReadFile(installed.Library())
	assert.NoError(t, err)
	assert.NoError(t, os.Truncate(installed.Library(), 100))
	assert.NoError(t, os.Remove(filepath.Join(installed.SimDir(), "libcudart.so.13")))
	install(t, cache)
	got, err := os.ReadFile(installed.Library())
	assert.That(t, err == nil && string(got) == string(want), "a truncated library was not put back: %d bytes, %v, want %d bytes", len(got), err, len(want))
	entries, err := os.ReadDir(cache)
	assert.That(t, err == nil && len(entries) == 1, "the cache holds %v, %v; want the installation alone", entries, err)
}

func TestInstallAtOnce(t *testing.T) {
	cache := t.TempDir()
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			installed, err := Install(cache)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := os.Stat(installed.Library()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

func TestInstallAnywhere(t *testing.T) {
	blocker := filepath.Join(t.TempDir(), "file")
	assert.NoError(t, os.WriteFile(blocker, nil, 0o600))
	tmp := t.TempDir()
	t.Setenv("MEMPROF_CACHE", "")
	t.Setenv("TMPDIR", tmp)
	// A home that cannot be written, even by root; one that LD_PRELOAD cannot name; none.
	for _, home := range []string{blocker, filepath.Join(t.TempDir(), "my files"), ""} {
		t.Setenv("XDG_CACHE_HOME", home)
		t.Setenv("HOME", "")
		installed, err := InstallAnywhere()
		assert.Must(t, err == nil && filepath.Dir(filepath.Dir(installed.Dir)) == tmp, "home %q: %+v, %v; want a folder in %s", home, installed, err, tmp)
		assert.NoError(t, os.RemoveAll(filepath.Dir(installed.Dir)))
	}
	t.Chdir(filepath.Dir(tmp))
	t.Setenv("TMPDIR", filepath.Base(tmp))
	if installed, err := InstallAnywhere(); err != nil || filepath.Dir(filepath.Dir(installed.Dir)) != tmp {
		t.Errorf("a relative TMPDIR: %+v, %v; want a folder in %s", installed, err, tmp)
	}
	cache := filepath.Join(tmp, "opt", "cache")
	t.Setenv("MEMPROF_CACHE", cache)
	if installed, err := InstallAnywhere(); err != nil || filepath.Dir(installed.Dir) != cache {
		t.Errorf("MEMPROF_CACHE=%s: %+v, %v", cache, installed, err)
	}
	for dir := cache; dir != tmp; dir = filepath.Dir(dir) { // root makes it in an image, and another user runs the job
		stat, err := os.Stat(dir)
		assert.That(t, err == nil && stat.Mode().Perm() == 0o755, "%s: %v, %v; want a folder that others can read and not change", dir, stat, err)
	}
	for _, dir := range []string{filepath.Join(blocker, "x"), filepath.Join(tmp, "a b"), filepath.Join(tmp, "a:b")} {
		t.Setenv("MEMPROF_CACHE", dir)
		installed, err := InstallAnywhere()
		assert.That(t, err != nil, "MEMPROF_CACHE=%s was accepted: %+v", dir, installed)
	}
}

// TestInstallOfOthers: a cache that others can change, or could, is not loaded from, whatever it holds: the same
// content is put where only this user can change it.
func TestInstallOfOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	spoil := map[string]func(t *testing.T, dir string, installed *Installation){
		"same size, other bytes": func(t *testing.T, _ string, installed *Installation) {
			stat, err := os.Stat(installed.Library())
			assert.NoError(t, err)
			assert.NoError(t, os.WriteFile(installed.Library(), make([]byte, stat.Size()), 0o644))
		},
		"library that all can write": func(t *testing.T, _ string, installed *Installation) { chmod(t, installed.Library(), 0o666) },
		"folder that all can write":  func(t *testing.T, _ string, installed *Installation) { chmod(t, installed.PythonDir(), 0o777) },
		"cache that all can write":   func(t *testing.T, dir string, _ *Installation) { chmod(t, dir, 0o777) },
		"parent that a group can write": func(t *testing.T, dir string, _ *Installation) {
			chmod(t, filepath.Dir(dir), 0o775)
		},
		"link to another library": func(t *testing.T, _ string, installed *Installation) {
			link := filepath.Join(installed.SimDir(), "libcudart.so.12")
			assert.NoError(t, errors.Join(os.Remove(link), os.Symlink(installed.Library(), link)))
		},
		"library of another user": func(t *testing.T, _ string, installed *Installation) { give(t, installed.Library()) },
		"cache of another user":   func(t *testing.T, dir string, _ *Installation) { give(t, dir) },
		"home of another user":    func(t *testing.T, dir string, _ *Installation) { give(t, filepath.Dir(dir)) },
	}
	for name, spoil := range spoil {
		for _, variable := range []string{"XDG_CACHE_HOME", "MEMPROF_CACHE"} {
			t.Run(name+" in "+variable, func(t *testing.T) {
				home, tmp := t.TempDir(), t.TempDir()
				t.Setenv("MEMPROF_CACHE", "")
				t.Setenv("TMPDIR", tmp)
				t.Setenv("XDG_CACHE_HOME", home)
				cache := filepath.Join(home, "memprof")
				if variable == "MEMPROF_CACHE" {
					t.Setenv(variable, cache)
				}
				first, err := InstallAnywhere()
				assert.Must(t, err == nil && filepath.Dir(first.Dir) == cache, "%+v, %v, want one in %s", first, err, cache)
				want, err := os.ReadFile(first.Library())
				assert.NoError(t, err)
				spoil(t, cache, first)
				second, err := InstallAnywhere()
				assert.NoError(t, err)
				if err := TrustedTree(second.Dir); err != nil {
					t.Errorf("what is loaded: %v", err)
				}
				if got, err := os.ReadFile(second.Library()); err != nil || !bytes.Equal(got, want) {
					t.Errorf("the library is not the one that was installed: %d bytes, %v", len(got), err)
				}
				moved := filepath.Dir(second.Dir) != cache
				wantMoved := strings.HasPrefix(name, "cache") || strings.HasPrefix(name, "parent") || strings.HasPrefix(name, "home")
				assert.That(t, moved == wantMoved, "installed in %s, the first time in %s", second.Dir, first.Dir)
				assert.That(t, moved == strings.HasPrefix(second.Dir, tmp) && (second.PassedOver != "") == (moved && variable == "MEMPROF_CACHE"),
					"installed in %s, passed over %q", second.Dir, second.PassedOver)
			})
		}
	}
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	assert.NoError(t, os.Chmod(path, mode))
}

// give gives a file to another user, which only root can.
func give(t *testing.T, path string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	assert.NoError(t, os.Chown(path, 65534, -1))
}

// TestCompiledByOthers: what Python has compiled is removed where others could have put it there, and nothing else of the installation
// is touched.
func TestCompiledByOthers(t *testing.T) {
	cache := t.TempDir()
	installed := install(t, cache)
	before, err := os.Stat(installed.Dir)
	assert.NoError(t, err)
	compiled := filepath.Join(installed.PythonDir(), "memprof", "_attribution", "__pycache__")
	for _, test := range []struct {
		mode os.FileMode
		kept bool
	}{{0o755, true}, {0o775, false}} {
		assert.NoError(t, os.MkdirAll(compiled, 0o755))
		chmod(t, compiled, test.mode)
		again := install(t, cache)
		after, err := os.Stat(again.Dir)
		assert.That(t, err == nil && os.SameFile(before, after), "mode %v: it was installed again", test.mode)
		if _, err := os.Stat(compiled); (err == nil) != test.kept {
			t.Errorf("mode %v: %v, want it kept %v", test.mode, err, test.kept)
		}
	}
}

// A cache that was filled before it became read-only is used as it is.
func TestExisting(t *testing.T) {
	cache := t.TempDir()
	installed := existing(cache)
	assert.That(t, installed == nil, "found %+v in an empty cache", installed)
	want, err := Install(cache)
	assert.NoError(t, err)
	assert.Diff(t, want, existing(cache))
	assert.NoError(t, os.Truncate(want.Library(), 10))
	if installed := existing(cache); installed != nil {
		t.Errorf("a damaged installation was taken: %+v", installed)
	}
}

func TestEnvironment(t *testing.T) {
	installation := &Installation{Dir: "/c/v", ShimCache: "/c/shim"}
	tests := []struct {
		name    string
		base    []string
		options Options
		want    []string
	}{
		{
			name:    "nothing set",
			base:    []string{"HOME=/root"},
			options: Options{Spool: "/s", Policy: "growth=double,headroom=2147483648"},
			want: []string{
				"HOME=/root", "MEMPROF_SPOOL=/s", "MEMPROF_OPTIONS=growth=double,headroom=2147483648,serve=0",
				"MEMPROF_HOOKS=/c/v", "MEMPROF_SHIM_CACHE=/c/shim", "LD_PRELOAD=/c/v/libmemprof.so", "PYTHONPATH=/c/v/python",
				"NCCL_GRAPH_REGISTER=0", "XLA_PYTHON_CLIENT_PREALLOCATE=false", "XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async",
				"ASAN_OPTIONS=verify_asan_link_order=0",
			},
		},
		{
			name: "lists are prepended to",
			base: []string{
				"LD_PRELOAD=/old/libmemprof.so /j/libjemalloc.so", "PYTHONPATH=:/mine", "LD_LIBRARY_PATH=/lib", "NCCL_GRAPH_REGISTER=1",
				"MEMPROF_SPOOL=/outer", "ASAN_OPTIONS=detect_leaks=0",
			},
			options: Options{
				Spool: "/s", Policy: "growth=none,split=always", BackupLimit: 1 << 30, Serve: true,
				Simulate: true, SimMemory: 8 << 30, Shim: "/x/shim.so",
			},
			want: []string{
				"NCCL_GRAPH_REGISTER=1", "MEMPROF_SPOOL=/s",
				"MEMPROF_OPTIONS=growth=none,split=always,serve=1,backup_limit=1073741824",
				"MEMPROF_HOOKS=/c/v", "MEMPROF_SHIM_CACHE=/c/shim", "LD_PRELOAD=/c/v/libmemprof.so:/j/libjemalloc.so",
				"PYTHONPATH=/c/v/python::/mine", "MEMPROF_SHIM=/x/shim.so", "LD_LIBRARY_PATH=/c/v/sim:/lib", "MEMPROF_SIM_MEMORY=8589934592",
				"XLA_PYTHON_CLIENT_PREALLOCATE=false", "XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async",
				"ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0",
			},
		},
		{
			name:    "attribution and stacks",
			base:    []string{"MEMPROF_ATTRIBUTION=none", "NCCL_GRAPH_REGISTER=0"},
			options: Options{Spool: "/s", Attribution: "phases", Stacks: true, Readings: true},
			want: []string{
				"NCCL_GRAPH_REGISTER=0", "MEMPROF_SPOOL=/s", "MEMPROF_OPTIONS=serve=0,stacks=1,readings=1",
				"MEMPROF_HOOKS=/c/v", "MEMPROF_SHIM_CACHE=/c/shim", "LD_PRELOAD=/c/v/libmemprof.so", "PYTHONPATH=/c/v/python",
				"MEMPROF_ATTRIBUTION=phases", "XLA_PYTHON_CLIENT_PREALLOCATE=false", "XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async",
				"ASAN_OPTIONS=verify_asan_link_order=0",
			},
		},
		{
			name:    "torch_memory_saver",
			base:    []string{"MEMPROF_MEMORY_SAVER=installed", "NCCL_GRAPH_REGISTER=0", "XLA_PYTHON_CLIENT_ALLOCATOR=platform"},
			options: Options{Spool: "/s", MemorySaver: "memprof"},
			want: []string{
				"NCCL_GRAPH_REGISTER=0", "XLA_PYTHON_CLIENT_ALLOCATOR=platform", "MEMPROF_SPOOL=/s", "MEMPROF_OPTIONS=serve=0", "MEMPROF_MEMORY_SAVER=memprof",
				"MEMPROF_HOOKS=/c/v", "MEMPROF_SHIM_CACHE=/c/shim", "LD_PRELOAD=/c/v/libmemprof.so", "PYTHONPATH=/c/v/python",
				"ASAN_OPTIONS=verify_asan_link_order=0",
			},
		},
		{
			name: "what the user set stays",
			base: []string{
				"ASAN_OPTIONS=verify_asan_link_order=1", "NCCL_GRAPH_REGISTER=0", "LD_PRELOAD=/x/libmemprof.so", "XLA_PYTHON_CLIENT_ALLOCATOR=platform",
			},
			options: Options{Spool: "/s"},
			want: []string{
				"ASAN_OPTIONS=verify_asan_link_order=1", "NCCL_GRAPH_REGISTER=0", "XLA_PYTHON_CLIENT_ALLOCATOR=platform",
				"MEMPROF_SPOOL=/s", "MEMPROF_OPTIONS=serve=0",
				"MEMPROF_HOOKS=/c/v", "MEMPROF_SHIM_CACHE=/c/shim", "LD_PRELOAD=/c/v/libmemprof.so", "PYTHONPATH=/c/v/python",
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			assert.Diff(t, test.want, installation.Environment(test.base, test.options), "environment")
		})
	}
}
