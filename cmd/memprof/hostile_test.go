package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// What testdata/script/record/hostile.txtar cannot set up: programs to be compiled, other
// users, full disks, a torch that is none.

// compiled builds a C program that ends with exit code 7, or skips the test.
func (b *bench) compiled(name string, flags ...string) string {
	b.Helper()
	source := b.path(name + ".c")
	const text = "#include <stdlib.h>\nint main(void) { char *volatile p = malloc(100); free(p); return 7; }\n"
	assert.NoError(b, os.WriteFile(source, []byte(text), 0o644))
	out, err := exec.Command("gcc", append(flags, source, "-o", b.path(name))...).CombinedOutput()
	if err != nil {
		b.Skipf("gcc %s: %v\n%s", strings.Join(flags, " "), err, out)
	}
	return b.path(name)
}

func TestProgramsOfOtherKinds(t *testing.T) {
	tests := []struct {
		name  string
		flags []string
		says  string // part of stderr
	}{
		{"plain", nil, "no event was recorded"},
		{"static", []string{"-static"}, "is statically linked: no loader can put the hook into it"},
		{"address", []string{"-fsanitize=address"}, "no event was recorded"},
		{"undefined", []string{"-fsanitize=undefined"}, "no event was recorded"},
		{"thread", []string{"-fsanitize=thread"}, "no event was recorded"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t)
			program := b.compiled(test.name, test.flags...)
			if code := exitOf(exec.Command(program).Run()); code != 7 {
				t.Skipf("it ends with %d without memprof", code)
			}
			cmd, stderr := b.memprof("record", "--device", "sim", "-o", b.path("run"), "--", program)
			code := exitOf(cmd.Run())
			assert.That(t, code == 7, "exit code %d, want the job's 7\n%s", code, stderr)
			assert.That(t, strings.Contains(stderr.String(), test.says), "stderr does not say %q:\n%s", test.says, stderr)
		})
	}
}

// TestStaticLauncher: what cannot be recorded itself may start what can, so that
// --require-tensors does not refuse it.
func TestStaticLauncher(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	program := b.compiled("launcher", "-static")
	cmd, stderr := b.memprof("record", "--require-tensors", "--shim", b.job, "--device", "sim", "-o", b.path("run"), "--", program)
	code := exitOf(cmd.Run())
	assert.That(t, code == 7, "exit code %d, want the job's 7\n%s", code, stderr)
}

// TestSanitizerPreloaded: with ASan's runtime preloaded beside the hook, a job runs and is recorded.
func TestSanitizerPreloaded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	out, err := exec.Command("gcc", "-print-file-name=libasan.so").Output()
	library := strings.TrimSpace(string(out))
	if err != nil || !filepath.IsAbs(library) {
		t.Skipf("no ASan runtime here: %s %v", library, err)
	}
	cmd, stderr := b.memprof("record", "--device", "sim", "-o", b.path("run"), "--",
		"env", "ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0", b.job, "alloc", "a", "1M", "exit", "5")
	cmd.Env = append(cmd.Env, "LD_PRELOAD="+library, "ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0")
	code := exitOf(cmd.Run())
	assert.Must(t, code == 5, "exit code %d, want the job's 5\n%s", code, stderr)
	got := len(b.recorded("run"))
	assert.That(t, got == 1, "%d allocations recorded, want 1", got)
}

// TestProgramOfAnotherUser: the loader takes no preloads in a program with more rights.
func TestProgramOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a program with more rights")
	}
	b := newBench(t)
	b.cache = t.TempDir()
	const nobody = 65534
	program := b.compiled("lifted")
	for _, err := range []error{os.Chmod(program, 0o755|os.ModeSetuid), os.Chmod(b.dir, 0o777), os.Chown(b.cache, nobody, nobody), openUp(b.dir), openUp(b.cache)} {
		assert.NoError(t, err)
	}
	binary, err := exec.LookPath("memprof")
	assert.NoError(t, err)
	text, err := os.ReadFile(binary)
	assert.NoError(t, err)
	memprof := b.path("memprof")
	assert.NoError(t, os.WriteFile(memprof, text, 0o755))
	cmd, stderr := b.memprof("record", "--device", "sim", "-o", b.path("run"), "--", program)
	cmd.Path = memprof
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	code := exitOf(cmd.Run())
	assert.That(t, code == 7, "exit code %d, want the job's 7\n%s", code, stderr)
	assert.That(t, strings.Contains(stderr.String(), "lifted has more rights than its user"), "stderr does not say why nothing is recorded:\n%s", stderr)
}

// openUp lets everybody into the directories above one of the test's.
func openUp(dir string) error {
	for dir = filepath.Dir(dir); strings.HasPrefix(dir, os.TempDir()) && dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// tmpfs mounts a small disk for the test, or skips it.
func (b *bench) tmpfs(name, size string) string {
	b.Helper()
	disk := b.path(name)
	assert.NoError(b, os.Mkdir(disk, 0o700))
	if err := syscall.Mount("none", disk, "tmpfs", 0, "size="+size); err != nil {
		b.Skipf("no tmpfs may be mounted here: %v", err)
	}
	b.Cleanup(func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			b.Error(err)
		}
	})
	return disk
}

func TestNoRoomToStart(t *testing.T) {
	b := newBench(t)
	disk := b.tmpfs("disk", "4m")
	cmd, stderr := b.memprof("record", "--device", "sim", "-o", filepath.Join(disk, "run"), "--", "sh", "-c", "exit 7")
	if code := exitOf(cmd.Run()); code != 7 || !strings.Contains(stderr.String(), "the job runs unrecorded: -o "+disk+"/run cannot be written: ") {
		t.Errorf("exit code %d, want the job's 7 and why it is not recorded\n%s", code, stderr)
	}
	assert.That(t, !b.exists("disk/run"), "the directory of a recording that never was is still there")
	cmd, stderr = b.memprof("record", "--device", "sim", "--require-tensors", "-o", filepath.Join(disk, "run"), "--", "touch", b.path("started"))
	if code := exitOf(cmd.Run()); code != exit.Usage || b.exists("started") {
		t.Errorf("--require-tensors: exit code %d, job started: %v\n%s", code, b.exists("started"), stderr)
	}
}

// TestFullTemporaryDirectory: the hook goes on to the next place.
func TestFullTemporaryDirectory(t *testing.T) {
	b := newBench(t)
	disk := b.tmpfs("disk", "64k")
	fallback := filepath.Join("/dev/shm", fmt.Sprintf("memprof-%d", os.Getuid()))
	if _, err := os.Stat(fallback); err == nil {
		t.Skipf("%s is there already", fallback)
	}
	t.Cleanup(func() { os.RemoveAll(fallback) })
	cmd, stderr := b.memprof("record", "--device", "sim", "-o", b.path("run"), "--", b.job, "alloc", "a", "1M", "exit", "5")
	cmd.Env = append(cmd.Env, "MEMPROF_CACHE=", "XDG_CACHE_HOME="+filepath.Join(b.job, "none"), "TMPDIR="+disk)
	code := exitOf(cmd.Run())
	assert.Must(t, code == 5, "exit code %d, want the job's 5\n%s", code, stderr)
	got := len(b.recorded("run"))
	assert.That(t, got == 1, "%d allocations recorded, want 1\n%s", got, stderr)
}

// oldTorch stands for one whose headers the shim cannot be compiled against.
const oldTorch = `
__version__ = "1.4.0"
class version: cuda = "10.1"
class _C: _GLIBCXX_USE_CXX11_ABI = False
class cuda:
    @staticmethod
    def _lazy_call(f): pass
`

// TestPythonJobs: a torch too old, no compiler, options that keep the shim out. The job
// goes on and ends as it will.
func TestPythonJobs(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 here")
	}
	real, err := exec.Command(python, "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		t.Skipf("python3: %v", err)
	}
	python = strings.TrimSpace(string(real)) // not a script in front of it
	const allocate = `
import ctypes, sys
import torch
runtime = ctypes.CDLL("libcudart.so.12", mode=ctypes.RTLD_GLOBAL)
pointer = ctypes.c_void_p()
assert runtime.cudaSetDevice(0) == 0
assert ctypes.CDLL(None).cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(1 << 20)) == 0
print("torch", torch.__version__)
sys.exit(9)
`
	tests := []struct {
		name    string
		options []string
		env     []string
		says    string
	}{
		{"torch too old", nil, nil, "could not compile the shim"},
		{"no compiler", nil, []string{"PATH=/nowhere"}, "no C++ compiler found"},
		{"compiler that fails", nil, []string{"CXX=/bin/false"}, "could not compile the shim"},
		{"compiler that is none", nil, []string{"CXX=/nowhere/c++"}, "cannot run the C++ compiler"},
		{"without the environment", []string{"-E"}, nil, "-E ignores PYTHONPATH"},
		{"without site", []string{"-S"}, nil, "-S skips site"},
		{"another home of site-packages", nil, []string{"PYTHONNOUSERSITE=1", "PYTHONSAFEPATH=1"}, "tensors are not recorded"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if test.options == nil && test.env == nil { // the machine's own compiler is asked
				needCompiler(t)
			}
			t.Parallel()
			b := newBench(t)
			toolkit := b.path("cuda/include")
			assert.NoError(t, os.MkdirAll(toolkit, 0o755))
			for file, content := range map[string]string{b.path("torch.py"): oldTorch, filepath.Join(toolkit, "cuda_runtime_api.h"): ""} {
				assert.NoError(t, os.WriteFile(file, []byte(content), 0o644))
			}
			// The module is found whatever options the interpreter has.
			script := "import sys; sys.path.insert(0, " + fmt.Sprintf("%q", b.dir) + ")\n" + allocate
			assert.NoError(t, os.WriteFile(b.path("train.py"), []byte(script), 0o644))
			args := append([]string{"record", "--device", "sim", "-o", b.path("run"), "--", python}, test.options...)
			cmd, stderr := b.memprof(append(args, b.path("train.py"))...)
			cmd.Env = append(append(cmd.Env, "PYTHONDONTWRITEBYTECODE=1", "CUDA_HOME="+b.path("cuda")), test.env...)
			out, err := cmd.Output()
			code := exitOf(err)
			assert.That(t, code == 9 && string(out) == "torch 1.4.0\n", "exit code %d, stdout %q, want the job's 9\n%s", code, out, stderr)
			assert.That(t, strings.Contains(stderr.String(), test.says), "stderr does not say %q:\n%s", test.says, stderr)
		})
	}
}

// TestArgumentsUpToTheLimit: with what the recorder adds to the environment the kernel
// would refuse a command line that fits without.
func TestArgumentsUpToTheLimit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	run := func(bytes int) (code int, stderr string, err error) {
		args := []string{"record", "--device", "sim", "-o", b.path("run"), "--", "sh", "-c", "exit 7"}
		for ; bytes > 0; bytes -= 1 << 16 {
			args = append(args, strings.Repeat("x", min(bytes, 1<<16)))
		}
		cmd, said := b.memprof(args...)
		if err := cmd.Run(); errors.Is(err, syscall.E2BIG) {
			return 0, "", err
		} else {
			return exitOf(err), said.String(), nil
		}
	}
	fits, tooMuch := 0, 64<<20
	for tooMuch-fits > 64 {
		middle := (fits + tooMuch) / 2
		os.RemoveAll(b.path("run"))
		code, stderr, err := run(middle)
		switch {
		case err != nil:
			tooMuch = middle
			continue
		case code != 7:
			t.Fatalf("%d bytes of arguments: exit code %d, want the job's 7\n%s", middle, code, stderr)
		}
		fits = middle
	}
	os.RemoveAll(b.path("run"))
	if _, stderr, err := run(fits); err != nil || !strings.Contains(stderr, "the job runs unrecorded: starting the job under the recorder: ") {
		t.Errorf("%d bytes of arguments: %v, and stderr does not say why it is not recorded:\n%s", fits, err, stderr)
	}
}
