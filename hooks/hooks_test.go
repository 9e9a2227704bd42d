package hooks

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func install(t *testing.T, cache string) *Installation {
	t.Helper()
	installed, err := Install(cache)
	if errors.Is(err, ErrNotBuilt) {
		t.Fatal("hooks/dist/libmemprof.so is missing: run `make -C hooks dist` first")
	}
	if err != nil {
		t.Fatal(err)
	}
	return installed
}

func TestInstallAgain(t *testing.T) {
	cache := t.TempDir()
	first := install(t, cache)
	before, err := os.Stat(first.Library())
	if err != nil {
		t.Fatal(err)
	}
	second := install(t, cache)
	after, err := os.Stat(second.Library())
	if err != nil {
		t.Fatal(err)
	}
	if first.Dir != second.Dir || !os.SameFile(before, after) {
		t.Errorf("a complete installation was written again: %s, then %s", first.Dir, second.Dir)
	}
	for _, name := range []string{"torch/shim.cpp", "capture/memprof.h", "python/sitecustomize.py", "python/memprof/__init__.py", "sim/libcuda.so.1", "sim/libcudart.so.12"} {
		if _, err := os.Stat(filepath.Join(first.Dir, name)); err != nil {
			t.Errorf("not installed: %v", err)
		}
	}
}

func TestInstallRepairs(t *testing.T) {
	cache := t.TempDir()
	installed := install(t, cache)
	want, err := os.ReadFile(installed.Library())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(installed.Library(), 100); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(installed.SimDir(), "libcudart.so.13")); err != nil {
		t.Fatal(err)
	}
	install(t, cache)
	got, err := os.ReadFile(installed.Library())
	if err != nil || string(got) != string(want) {
		t.Errorf("a truncated library was not put back: %d bytes, %v, want %d bytes", len(got), err, len(want))
	}
	entries, err := os.ReadDir(cache)
	if err != nil || len(entries) != 1 {
		t.Errorf("the cache holds %v, %v; want the installation alone", entries, err)
	}
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

func TestCacheDirFallsBack(t *testing.T) {
	blocker := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tmp := t.TempDir()
	t.Setenv("MEMPROF_CACHE", "")
	t.Setenv("XDG_CACHE_HOME", blocker) // cannot be a directory, even for root
	t.Setenv("TMPDIR", tmp)
	dir, err := CacheDir()
	if err != nil || filepath.Dir(dir) != tmp {
		t.Fatalf("CacheDir() = %q, %v; want a folder in %s", dir, err, tmp)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := CacheDir(); err == nil || !strings.Contains(err.Error(), "not a private directory") {
		t.Errorf("a folder anybody can write to was accepted: %v", err)
	}
	t.Setenv("MEMPROF_CACHE", filepath.Join(blocker, "x"))
	if _, err := CacheDir(); err == nil {
		t.Error("MEMPROF_CACHE below a file was accepted")
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
			options: Options{Spool: "/s", Growth: "double", Headroom: 2 << 30},
			want: []string{
				"HOME=/root", "MEMPROF_SPOOL=/s", "MEMPROF_OPTIONS=growth=double,headroom=2147483648,serve=0",
				"MEMPROF_HOOKS=/c/v", "MEMPROF_SHIM_CACHE=/c/shim", "LD_PRELOAD=/c/v/libmemprof.so", "PYTHONPATH=/c/v/python",
				"NCCL_GRAPH_REGISTER=0", "ASAN_OPTIONS=verify_asan_link_order=0",
			},
		},
		{
			name: "lists are prepended to",
			base: []string{
				"LD_PRELOAD=/old/libmemprof.so /j/libjemalloc.so", "PYTHONPATH=:/mine", "LD_LIBRARY_PATH=/lib", "NCCL_GRAPH_REGISTER=1",
				"MEMPROF_SPOOL=/outer", "ASAN_OPTIONS=detect_leaks=0",
			},
			options: Options{
				Spool: "/s", Growth: "none", Limit: 1 << 30, Handle: 2 << 20, Serve: true,
				Simulate: true, SimMemory: 8 << 30, Shim: "/x/shim.so",
			},
			want: []string{
				"NCCL_GRAPH_REGISTER=1", "MEMPROF_SPOOL=/s",
				"MEMPROF_OPTIONS=growth=none,headroom=0,serve=1,limit=1073741824,handle=2097152",
				"MEMPROF_HOOKS=/c/v", "MEMPROF_SHIM_CACHE=/c/shim", "LD_PRELOAD=/c/v/libmemprof.so:/j/libjemalloc.so",
				"PYTHONPATH=/c/v/python::/mine", "MEMPROF_SHIM=/x/shim.so", "LD_LIBRARY_PATH=/c/v/sim:/lib", "MEMPROF_SIM_MEMORY=8589934592",
				"ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0",
			},
		},
		{
			name:    "what the user set stays",
			base:    []string{"ASAN_OPTIONS=verify_asan_link_order=1", "NCCL_GRAPH_REGISTER=0", "LD_PRELOAD=/x/libmemprof.so"},
			options: Options{Spool: "/s", Growth: "double"},
			want: []string{
				"ASAN_OPTIONS=verify_asan_link_order=1", "NCCL_GRAPH_REGISTER=0", "MEMPROF_SPOOL=/s", "MEMPROF_OPTIONS=growth=double,headroom=0,serve=0",
				"MEMPROF_HOOKS=/c/v", "MEMPROF_SHIM_CACHE=/c/shim", "LD_PRELOAD=/c/v/libmemprof.so", "PYTHONPATH=/c/v/python",
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, installation.Environment(test.base, test.options)); diff != "" {
				t.Errorf("environment (-want +got):\n%s", diff)
			}
		})
	}
}
