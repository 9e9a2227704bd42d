package main

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestNative runs the scripts that record an allocator which is only watched.
func TestNative(t *testing.T) {
	needHook(t)
	bin, cache := t.TempDir(), t.TempDir()
	out, err := exec.Command("gcc", "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "testdata/watched.c", "-o", filepath.Join(bin, "watched"), "-ldl").CombinedOutput()
	if err != nil {
		t.Fatalf("compiling testdata/watched.c: %v\n%s", err, out)
	}
	runScripts(t, "testdata/script/native", func(env *testscript.Env) error {
		env.Setenv("PATH", bin+string(filepath.ListSeparator)+env.Getenv("PATH"))
		env.Setenv("MEMPROF_CACHE", cache)
		env.Setenv("RANK", "0")
		return nil
	})
}
