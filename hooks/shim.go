package hooks

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// BuildShim has the Python package compile the shim, unless the cache has it, and returns its path.
// The package has printed errors to stderr.
func (i *Installation) BuildShim(python string, stderr io.Writer) (string, error) {
	build := exec.Command(python, "-m", "memprof._shim")
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
