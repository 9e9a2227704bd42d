package torchalloc

import (
	"os"
	"strings"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// The hook writes the problem that verify looks for.
func TestSetInCode(t *testing.T) {
	hook, err := os.ReadFile("../../hooks/python/memprof/_watch.py")
	assert.NoError(t, err)
	assert.That(t, strings.Contains(string(hook), `_hook.problem("`+SetInCode+`")`), "_watch.py does not write %q", SetInCode)
}
