package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/memprof/memprof/hooks"
)

// torchVersions are the versions of torch that the shim was tested with, on a GPU.
var torchVersions = []string{"2.11.0"}

func checkHook(installed *hooks.Installation, err error) Finding {
	f := Finding{Check: "hook", Health: OK}
	if err != nil {
		f.Health, f.Detail = Fail, err.Error()
		f.Remedy = "record needs the hook; verbs that read recordings work without it"
		return f
	}
	f.Detail = installed.Dir
	return f
}

// checkCompiler looks for the compilers of the torch shim, in the order in which they are tried.
func checkCompiler() Finding {
	candidates := []string{"c++", "g++", "clang++"}
	if own := strings.Fields(os.Getenv("CXX")); len(own) > 0 {
		candidates = own[:1]
	}
	for _, name := range candidates {
		if path, err := exec.LookPath(name); err == nil {
			return Finding{Check: "compiler", Health: OK, Detail: path}
		}
	}
	return Finding{
		Check: "compiler", Health: Warn, Detail: "none of " + strings.Join(candidates, ", "),
		Remedy: "tensors of PyTorch jobs are not recorded without the torch shim; install g++, or run `memprof hooks build` elsewhere and use record --shim FILE",
	}
}

// torchProgram prints the interpreter, torch's version and the paths of shims for it, one for each C++ ABI. It
// does not import torch, which takes seconds, but runs the file with torch's own version ("2.11.0+cu130", where
// the package's may be "2.11.0").
const torchProgram = `
import importlib.util, os, runpy, sys, types
folder = importlib.util.find_spec("torch").submodule_search_locations[0]
version = runpy.run_path(os.path.join(folder, "version.py"))["__version__"]
print(sys.executable)
print(version)
from memprof import _shim
for abi in (1, 0):
    print(_shim.cached_path(types.SimpleNamespace(__version__=version, _C=types.SimpleNamespace(_GLIBCXX_USE_CXX11_ABI=abi))))
`

// checkTorch returns a finding about the torch of a Python, and one about its shim if there is a hook.
func checkTorch(python string, installed *hooks.Installation) []Finding {
	f := Finding{Check: "torch", Health: Warn}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	ask := exec.CommandContext(ctx, python, "-c", torchProgram)
	if installed != nil {
		ask.Env = installed.ShimEnvironment(os.Environ())
	}
	out, err := ask.Output()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	switch {
	case errors.Is(err, exec.ErrNotFound):
		f.Detail, f.Remedy = "no "+python+" on PATH", "needed only for Python jobs"
		return []Finding{f}
	case len(lines) < 2:
		f.Detail, f.Remedy = python+" has no torch", "needed only for PyTorch jobs: activate the environment that has torch"
		return []Finding{f}
	}
	f.Detail = fmt.Sprintf("%s of %s", lines[1], lines[0])
	release, _, _ := strings.Cut(lines[1], "+")
	if slices.Contains(torchVersions, release) {
		f.Health = OK
	} else {
		f.Remedy = "the torch shim was tested with torch " + strings.Join(torchVersions, ", ") + "; it adapts to the headers of other versions"
	}
	if err != nil || installed == nil {
		return []Finding{f}
	}
	return []Finding{f, describeShim(lines[1], lines[2:], func() (string, error) { return tryShim(installed, python) })}
}

// tryShim builds the shim as the first recorded job would. The error is one line.
func tryShim(installed *hooks.Installation, python string) (string, error) {
	var stderr bytes.Buffer
	shim, err := installed.BuildShim(python, &stderr)
	if err == nil {
		return shim, nil
	}
	if reason := strings.TrimSpace(stderr.String()); reason != "" {
		line, _, _ := strings.Cut(reason, "\n")
		return "", errors.New(strings.TrimPrefix(line, "memprof: "))
	}
	return "", err
}

// describeShim returns the finding about the shims that fit a torch: one is built, or can be, or neither.
func describeShim(version string, shims []string, build func() (string, error)) Finding {
	f := Finding{Check: "torch shim", Health: OK}
	for _, shim := range shims {
		if _, err := os.Stat(shim); err == nil {
			f.Detail = "built: " + shim
			return f
		}
	}
	shim, err := build()
	if err != nil {
		f.Health = Warn
		f.Detail = fmt.Sprintf("none for torch %s: %v", version, err)
		f.Remedy = "tensors are not recorded without it; run `memprof hooks build` on a machine where it compiles, and use record --shim FILE"
		return f
	}
	f.Detail = "built now: " + shim
	return f
}
