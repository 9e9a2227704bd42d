package hooks

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// BuildShim has the Python package compile the shim, unless the cache has it, and returns its path.
// The package has printed errors to stderr.
func (i *Installation) BuildShim(python string, stderr io.Writer) (string, error) {
	program, err := exec.LookPath(python)
	if err == nil {
		program, err = filepath.Abs(program)
	}
	if err != nil {
		return "", fmt.Errorf("no torch shim: %w", err)
	}
	build := exec.Command(program, "-m", "memprof._shim")
	build.Dir = i.PythonDir() // Python imports from where it starts first: a folder memprof may lie where the user calls this from
	build.Env = i.ShimEnvironment(os.Environ())
	build.Stderr = stderr
	out, err := build.Output()
	if err != nil {
		var ended *exec.ExitError
		if errors.As(err, &ended) {
			return "", fmt.Errorf("no torch shim for %s: the lines above say why", python)
		}
		return "", fmt.Errorf("no torch shim: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
