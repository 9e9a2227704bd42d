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
		Remedy: "PyTorch is recorded by its plug-in allocator where the torch shim cannot be compiled, with less detail; install g++, or run `memprof doctor hooks build` elsewhere and use record --shim FILE",
	}
}

// torchProgram prints the interpreter, torch's version, the paths of shims for it, one for each C++ ABI, what is
// missing without a shim, and then a line for each thing that the shim lacks. It does not import torch, which takes seconds, but runs the file with torch's own version ("2.11.0+cu130", where
// the package's may be "2.11.0").
const torchProgram = `
import importlib.util, os, runpy, sys, types
folder = importlib.util.find_spec("torch").submodule_search_locations[0]
version = runpy.run_path(os.path.join(folder, "version.py"))["__version__"]
print(sys.executable)
print(version)
from memprof import _interface, _plugin, _shim
for abi in (1, 0):
    print(_shim.cached_path(types.SimpleNamespace(__version__=version, _C=types.SimpleNamespace(_GLIBCXX_USE_CXX11_ABI=abi))))
print(_plugin.LACKS)
for line in _interface.missing(folder):
    print(line)
`

// installedTorch is what torchProgram prints.
type installedTorch struct {
	python, version string
	shims           []string // where one may be, that is built
	withoutShim     string   // what is missing where the shim cannot be built
	lacked          []string // of torch's allocator interface, by the shim
}

const torchLines = 5 // that torchProgram always prints, if there is a hook

func readTorch(out string) *installedTorch {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) < 2 {
		return nil
	}
	found := &installedTorch{python: lines[0], version: lines[1]}
	if len(lines) >= torchLines {
		found.shims, found.withoutShim, found.lacked = lines[2:4], lines[4], lines[torchLines:]
	}
	return found
}

// describeTorch returns the finding about a torch: whether memprof was run with it, and else what the shim lacks.
func describeTorch(found *installedTorch) Finding {
	f := Finding{Check: "torch", Health: Warn, Detail: fmt.Sprintf("%s of %s", found.version, found.python)}
	release, _, _ := strings.Cut(found.version, "+")
	switch {
	case slices.Contains(torchVersions, release):
		f.Health = OK
	case len(found.lacked) > 0:
		f.Remedy = fmt.Sprintf("memprof was run with torch %s; of this one's allocator interface the shim lacks %s", strings.Join(torchVersions, ", "), strings.Join(found.lacked, ", "))
	default:
		f.Remedy = fmt.Sprintf("memprof was run with torch %s; the shim has all of this one's allocator interface", strings.Join(torchVersions, ", "))
	}
	return f
}

// checkTorch returns a finding about the torch of a Python, and one about its shim if there is a hook.
func checkTorch(python string, installed *hooks.Installation) []Finding {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	ask := exec.CommandContext(ctx, python, "-c", torchProgram)
	if installed != nil {
		ask.Env = installed.ShimEnvironment(os.Environ())
	}
	out, err := ask.Output()
	found := readTorch(string(out))
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return []Finding{{Check: "torch", Health: Warn, Detail: "no " + python + " on PATH", Remedy: "needed only for Python jobs"}}
	case found == nil:
		return []Finding{{Check: "torch", Health: Warn, Detail: python + " has no torch", Remedy: "needed only for PyTorch jobs: activate the environment that has torch"}}
	}
	f := describeTorch(found)
	if err != nil || installed == nil {
		return []Finding{f}
	}
	return []Finding{f, describeShim(found, func() (string, error) { return tryShim(installed, python) })}
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
func describeShim(torch *installedTorch, build func() (string, error)) Finding {
	f := Finding{Check: "torch shim", Health: OK}
	for _, shim := range torch.shims {
		if _, err := os.Stat(shim); err == nil {
			f.Detail = "built: " + shim
			return f
		}
	}
	shim, err := build()
	if err != nil {
		f.Health = Warn
		f.Detail = fmt.Sprintf("none for torch %s: %v", torch.version, err)
		f.Remedy = fmt.Sprintf("torch's plug-in allocator is recorded in its place, without %s; run `memprof doctor hooks build` where the shim compiles, and use record --shim FILE", torch.withoutShim)
		return f
	}
	f.Detail = "built now: " + shim
	return f
}
