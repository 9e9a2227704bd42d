package main

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestNative runs the scripts that record a native allocator.
func TestNative(t *testing.T) {
	needHook(t)
	needCompiler(t)
	compile(t, "native", "-D_GNU_SOURCE", "testdata/native.c")
	for _, name := range []string{"libc10_cuda.so", "libother.so"} {
		compile(t, name, "-D_GNU_SOURCE", "-shared", "-fPIC", "testdata/torch/segment.c")
	}
	// The shim's half of the watching is compiled against a stand-in for torch.
	attach := filepath.Join(t.TempDir(), "attach.so")
	out, err := exec.Command("g++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread", "-Itestdata/torch", "-I../../hooks/torch",
		"-I../../hooks/capture", "testdata/torch/attach.cpp", "-o", attach).CombinedOutput()
	assert.Must(t, err == nil, "%v\n%s", err, out)
	runScripts(t, "testdata/script/native", func(env *testscript.Env) error {
		env.Setenv("PATH", shared+string(filepath.ListSeparator)+env.Getenv("PATH"))
		env.Setenv("MEMPROF_CACHE", cache)
		env.Setenv("RANK", "0")
		env.Setenv("ATTACH", attach)
		env.Setenv("LIBRARIES", shared)
		return nil
	})
}
