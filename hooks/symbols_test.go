package hooks

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// movedSymbols are older than their version says: glibc 2.32 to 2.34 moved them from libpthread and libdl into libc, or made
// functions of what were macros. A binary that is linked in Debian 11, as `make dist` links it, asks for their old versions.
var movedSymbols = []string{
	"dladdr", "dlclose", "dlerror", "dlopen", "dlsym", "dlvsym", "fstat", "lstat", "stat", "__libc_start_main",
	"pthread_attr_getstack", "pthread_attr_getstacksize", "pthread_attr_setstacksize", "pthread_create", "pthread_detach", "pthread_getattr_np",
	"pthread_getspecific", "pthread_join", "pthread_key_create", "pthread_key_delete", "pthread_kill", "pthread_mutex_trylock", "pthread_once",
	"pthread_rwlock_rdlock", "pthread_rwlock_unlock", "pthread_rwlock_wrlock", "pthread_setname_np", "pthread_setspecific", "pthread_sigmask", "sem_post", "sem_wait",
}

var newSymbol = regexp.MustCompile(`\(?GLIBC_2\.(?:29|[3-9][0-9])\)?\s+(\S+)`)

// TestOldSymbols wants hook and simulated driver to run with glibc 2.28, which torch's wheels want.
func TestOldSymbols(t *testing.T) {
	for _, file := range []string{library, simLibrary} {
		out, err := exec.Command("objdump", "-T", filepath.Join("dist", file)).CombinedOutput()
		assert.Must(t, err == nil, "%v: %s", err, out)
		for _, found := range newSymbol.FindAllStringSubmatch(string(out), -1) {
			assert.That(t, slices.Contains(movedSymbols, found[1]), "%s: %s is not in glibc 2.28", file, found[0])
		}
	}
}
