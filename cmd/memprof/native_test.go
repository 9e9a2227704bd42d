package main

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestNative runs the scripts that record a native allocator.
func TestNative(t *testing.T) {
	needHook(t)
	needCompiler(t)
	bin, cache := t.TempDir(), t.TempDir()
	attach := filepath.Join(bin, "attach.so")
	library := func(name string) []string {
		return []string{"gcc", "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-shared", "-fPIC", "testdata/torch/segment.c",
			"-o", filepath.Join(bin, name), "-ldl"}
	}
	// The shim's half of the watching is compiled against a stand-in for torch.
	for _, command := range [][]string{
		{"gcc", "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "testdata/native.c", "-o", filepath.Join(bin, "native"), "-ldl"},
		{"g++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread", "-Itestdata/torch", "-I../../hooks/torch",
			"-I../../hooks/capture", "testdata/torch/attach.cpp", "-o", attach},
		library("libc10_cuda.so"), library("libother.so"),
	} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", command, err, out)
		}
	}
	runScripts(t, "testdata/script/native", func(env *testscript.Env) error {
		env.Setenv("PATH", bin+string(filepath.ListSeparator)+env.Getenv("PATH"))
		env.Setenv("MEMPROF_CACHE", cache)
		env.Setenv("RANK", "0")
		env.Setenv("ATTACH", attach)
		env.Setenv("LIBRARIES", bin)
		return nil
	})
}
