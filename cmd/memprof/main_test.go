package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "rewrite the golden output in the scripts")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"memprof": func() { os.Exit(run(os.Stdout, os.Stderr, os.Args[1:])) },
	})
}

// buildJob compiles testdata/job.c, the job that tests record.
func buildJob(t *testing.T) string {
	t.Helper()
	job := filepath.Join(t.TempDir(), "job")
	out, err := exec.Command("gcc", "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "testdata/job.c", "-o", job, "-ldl").CombinedOutput()
	if err != nil {
		t.Fatalf("compiling testdata/job.c: %v\n%s", err, out)
	}
	return job
}

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
		if _, err := os.Stat(filepath.Join("../../hooks/dist", file)); err != nil {
			t.Fatalf("hooks/dist/%s is missing: run `make -C hooks dist` first", file)
		}
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
	job, cache := buildJob(t), t.TempDir()
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
