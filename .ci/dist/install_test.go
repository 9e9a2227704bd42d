package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// These tests install what a build of the present sources gives, and try it where people would. They take a minute; dist-check
// tries the packages of dist/ in whole roots.

// builds has a folder for what program builds, which TestMain removes.
var builds string

// program is memprof as `make build` builds it, but for the paths in it, in a folder of its own. The one without cgo, which takes a minute to
// compile, is tested by `make dist-check`.
func program(t *testing.T) string {
	t.Helper()
	built := filepath.Join(builds, "memprof")
	if _, err := os.Stat(built); err != nil {
		makefile, err := os.ReadFile("Makefile")
		if err != nil {
			t.Fatal(err)
		}
		tags := regexp.MustCompile(`(?m)^TAGS := (\S+)$`).FindSubmatch(makefile)
		if tags == nil {
			t.Fatal("the Makefile has no TAGS")
		}
		build := exec.Command("go", "build", "-tags", string(tags[1]), "-buildvcs=false", "-ldflags", "-s -w", "-o", built, "./cmd/memprof")
		build.Env = append(os.Environ(), "CGO_ENABLED=1")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	dir, err := os.MkdirTemp("", "memprof-dist-") // of which other users can read the parents, which is not so of t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	binary := filepath.Join(dir, "memprof")
	if err := errors.Join(os.Chmod(dir, 0o755), os.Link(built, binary)); err != nil {
		t.Fatal(err)
	}
	return binary
}

// wants runs a command and wants its exit code, and a text in what it prints.
func wants(t *testing.T, code int, text string, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	if cmd.ProcessState.ExitCode() != code || !strings.Contains(string(out), text) {
		t.Errorf("%v: exit %d, want %d and %q in:\n%s", cmd.Args, cmd.ProcessState.ExitCode(), code, text, out)
	}
}

// TestSize wants at most 29 MB: it was 46.9 with arrow-go's compute kernels and text/template. Left out are, in MB:
//
//	14   kernels for all types of arrow/compute, which the Parquet writer links from arrow-go 18.5 on: it stays at 18.4
//	5.5  exported methods that nothing calls: the linker drops them only without text/template (usage in cmd/memprof/root.go)
//	1.3  arrow-go's JSON library: -tags arrow_json_stdlib
//	1.0  plot's PDF, EPS and TeX: -tags minimal
//	0.4  HTTP/2: -tags nethttpomithttp2
//	     debugging information: -s -w
func TestSize(t *testing.T) {
	info, err := os.Stat(program(t))
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > 29_000_000 {
		t.Errorf("memprof has %d bytes, more than 29 MB. `go list -deps ./cmd/memprof` names its packages; a call of text/template or of reflect's "+
			"MethodByName keeps every method of every type.", info.Size())
	}
}

// TestBareUser records and reads as a user without rights, in a home that cannot be written, with neither compiler nor Python.
func TestBareUser(t *testing.T) {
	binary := program(t)
	dir := filepath.Dir(binary)
	home, runs := filepath.Join(dir, "home"), filepath.Join(dir, "runs")
	if err := errors.Join(os.Mkdir(home, 0o555), os.Mkdir(runs, 0o755), os.CopyFS(filepath.Join(dir, "sample"), os.DirFS("samples/resnet50"))); err != nil {
		t.Fatal(err)
	}
	user := func(args ...string) *exec.Cmd {
		cmd := exec.Command(binary, args...)
		cmd.Dir = dir
		cmd.Env = []string{"HOME=" + home, "PATH=" + dir, "TMPDIR=" + runs}
		if os.Getuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
		return cmd
	}
	if os.Getuid() == 0 {
		if err := os.Chown(runs, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	run := filepath.Join(runs, "run")
	wants(t, 0, "", user("record", "-q", "--device", "sim", "-o", run, "--", "memprof", "lab", "rerun", "sample"))
	wants(t, 0, "reserved", user("report", run))
	wants(t, 0, "came out the same", user("verify", run))
	wants(t, 1, "reserved.peak", user("check", run, "--gate", "reserved.peak < 1MiB"))
	if entries, err := os.ReadDir(home); err != nil || len(entries) > 0 {
		t.Errorf("the home has %v, %v", entries, err)
	}
}

// TestWheelInstalled installs the wheel with pip, without an index, and then has another package named memprof in its place, which doctor and
// record must name.
func TestWheelInstalled(t *testing.T) {
	if err := exec.Command("python3", "-c", "import ensurepip, venv").Run(); err != nil {
		t.Skip("no python3 with venv and ensurepip here")
	}
	binary := program(t)
	dir := t.TempDir()
	for _, a := range architectures { // the other packages have what is small
		name, of := filepath.Join(dir, a.machine, "memprof"), os.Args[0]
		if a.machine == "x86_64" {
			of = binary
		}
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, a.machine, "static"), 0o755), os.Symlink(of, name), os.WriteFile(filepath.Join(dir, a.machine, "static", "memprof"), nil, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	if err := run("1.2", 1_700_000_000, dir, "", "", dir); err != nil {
		t.Fatal(err)
	}
	env := filepath.Join(dir, "env")
	own := func(program string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(env, "bin", program), args...)
		cmd.Dir = dir
		cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "PYTHON") })
		return cmd
	}
	wants(t, 0, "", exec.Command("python3", "-m", "venv", env))
	wants(t, 0, "", own("pip", "install", "-q", "--no-index", filepath.Join(dir, "gpu_memprof-1.2-py3-none-manylinux_2_28_x86_64.whl")))
	wants(t, 0, "memprof version", own("memprof", "--version"))
	wants(t, 0, "EntryPoint(name='memprof.pytest_plugin', value='memprof.pytest_plugin', group='pytest11')",
		own("python3", "-c", "from importlib.metadata import distribution; print(*distribution('gpu-memprof').entry_points)"))
	script := filepath.Join(dir, "job.py")
	if err := os.WriteFile(script, []byte("import memprof\nmemprof.iteration()\nprint(memprof.recording())\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	python := filepath.Join(env, "bin", "python3")
	wants(t, 0, "False", own("python3", script))
	wants(t, 0, "True", own("memprof", "record", "--device", "sim", "-o", "run", "--", python, script))

	// Every process begins with the .pth file, which imports the package where MEMPROF_WATCH is set.
	begins := []string{"-c", "import sys; print(sorted(m for m in sys.modules if m.startswith('memprof')))"}
	wants(t, 0, "[]\n", own("python3", begins...))
	watched := own("python3", begins...)
	watched.Env = append(watched.Env, "MEMPROF_WATCH=run")
	wants(t, 0, "'memprof._recording'", watched)

	if err := os.WriteFile(filepath.Join(dir, "memprof.py"), []byte("def iteration(): pass\ndef recording(): return 'another'\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	wants(t, 0, "another", own("python3", script))
	wants(t, 0, "memprof.py is another package named memprof", own("memprof", "record", "--force", "--device", "sim", "-o", "run", "--", python, script))
	if out, _ := own("memprof", "doctor", "--", python, script).CombinedOutput(); !strings.Contains(string(out), "memprof.py is another package named memprof") {
		t.Errorf("doctor does not name the other package:\n%s", out)
	}
}
