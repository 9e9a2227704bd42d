package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/memprof/memprof/report/reporttest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

var update = reporttest.Update

func TestMain(m *testing.M) {
	testscript.Main(sharing{m}, map[string]func(){
		"memprof": func() { os.Exit(run(os.Stdout, os.Stderr, os.Args[1:])) },
	})
}

// shared is a folder for what tests compile, and cache one in it for what memprof compiles for torch.
var shared, cache string

// sharing are the tests with that folder.
type sharing struct{ *testing.M }

func (s sharing) Run() int {
	var err error
	if shared, err = os.MkdirTemp("", "memprof-tests-"); err != nil {
		panic(err)
	}
	defer os.RemoveAll(shared)
	defer reporttest.Quit()
	cache = filepath.Join(shared, "cache")
	if err := errors.Join(os.Chmod(shared, 0o755), os.Mkdir(cache, 0o700)); err != nil {
		panic(err)
	}
	return s.M.Run()
}

var compiling sync.Mutex

// compile builds a program or library of C, once for all tests, and returns its path.
func compile(t testing.TB, name string, args ...string) string {
	t.Helper()
	compiling.Lock()
	defer compiling.Unlock()
	path := filepath.Join(shared, name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	args = append([]string{"-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-o", path}, append(args, "-ldl")...)
	out, err := exec.Command("gcc", args...).CombinedOutput()
	assert.Must(t, err == nil, "compiling %s: %v\n%s", name, err, out)
	return path
}

// buildJob compiles testdata/job.c, the job that tests record.
func buildJob(t testing.TB) string { return compile(t, "job", "testdata/job.c") }

// needHook leaves the test out of short ones, since it records jobs, and fails with what to do when the C part is not built.
func needHook(t *testing.T) {
	t.Helper()
	notShort(t)
	hookIsBuilt(t)
}

// notShort leaves a test out of short ones, which make check runs: it takes seconds.
func notShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds")
	}
}

func hookIsBuilt(t *testing.T) {
	t.Helper()
	for _, file := range []string{"libmemprof.so", "sim/libcuda.so.1"} {
		_, err := os.Stat(filepath.Join("../../hooks/dist", file))
		assert.Must(t, err == nil, "hooks/dist/%s is missing: run `make -C hooks dist` first", file)
	}
}

// needCompiler leaves out what compiles the torch shim where nothing can: memprof itself is
// built and tested without C++.
func needCompiler(t *testing.T) {
	t.Helper()
	for _, name := range []string{"g++", "c++"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("no %s here: what is compiled for torch is not tested", name)
		}
	}
}

// TestInput runs the scripts about flags and damaged or foreign files.
func TestInput(t *testing.T) {
	runScripts(t, "testdata/script/input", func(*testscript.Env) error { return nil })
}

// TestRecord runs the scripts that record jobs on the simulated device; with -short one that has a bit of everything.
func TestRecord(t *testing.T) {
	hookIsBuilt(t)
	job := buildJob(t)
	scripts := "testdata/script/record"
	if testing.Short() {
		scripts += "/record.txtar"
	}
	runScripts(t, scripts, func(env *testscript.Env) error {
		env.Setenv("PATH", filepath.Dir(job)+string(filepath.ListSeparator)+env.Getenv("PATH"))
		env.Setenv("MEMPROF_CACHE", cache)
		root, err := filepath.Abs("../..")
		env.Setenv("REPOSITORY", root)
		env.Setenv("SIMULATED", filepath.Join(root, "hooks", "dist", "sim"))
		return err
	})
}

// runScripts runs the scripts of a folder, or one script.
func runScripts(t *testing.T, path string, setup func(*testscript.Env) error) {
	dir, files := path, []string(nil)
	if strings.HasSuffix(path, ".txtar") {
		dir, files = "", []string{path}
	}
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		Files:               files,
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               setup,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits":     exits,
			"maketrace": makeTrace,
			"newer":     makeNewer,
			"cutfile":   cutFile,
			"noexec":    noExec,
			"tamper":    tamper,
			"samevalue": sameValue,
			"atrest":    atRest,
		},
	})
}

// exits runs a command and demands its exit code: exits 2 memprof report nothing.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARGUMENT]...")
	}
	code := 0
	var ended *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &ended) {
		code = ended.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if fmt.Sprint(code) != args[0] {
		ts.Fatalf("%s ended with exit code %d, want %s", strings.Join(args[1:], " "), code, args[0])
	}
}
