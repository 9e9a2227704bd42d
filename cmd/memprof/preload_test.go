package main

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/memprof/memprof/hooks"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// mostPreloadCost is what the hook may add to a process that never touches CUDA, alone and beside
// other preloaded libraries: every shell, compiler and ninja below a recorded job loads it. On a machine on which the process
// itself takes long, it is a share of that.
func mostPreloadCost(beside string, without time.Duration) time.Duration {
	if beside == "" {
		return max(100*time.Microsecond, without/5)
	}
	return max(500*time.Microsecond, without/3)
}

// preloads are the libraries beside which the hook is loaded, those that are here.
func preloads(t testing.TB) map[string]string {
	found := map[string]string{"alone": ""}
	for name, pattern := range map[string]string{"jemalloc": "libjemalloc.so*", "tcmalloc": "libtcmalloc*.so*"} {
		for _, dir := range []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"} {
			if matches, _ := filepath.Glob(filepath.Join(dir, pattern)); len(matches) > 0 {
				found[name] = matches[0]
			}
		}
	}
	out, err := exec.Command("gcc", "-print-file-name=libasan.so").Output()
	if library := strings.TrimSpace(string(out)); err == nil && filepath.IsAbs(library) {
		found["asan"] = library
	}
	t.Logf("beside: %v", found)
	return found
}

// pairOfRuns times `bash -c true` once without the hook and once with it.
type pairOfRuns struct{ without, with []string }

func preloaded(t testing.TB, beside string) pairOfRuns {
	t.Helper()
	installed, err := hooks.Install(t.TempDir())
	assert.NoError(t, err)
	base := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return strings.HasPrefix(entry, "LD_PRELOAD=") || strings.HasPrefix(entry, "ASAN_OPTIONS=")
	})
	base = append(base, "ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0")
	if beside != "" {
		base = append(base, "LD_PRELOAD="+beside)
	}
	return pairOfRuns{base, installed.Environment(base, hooks.Options{Spool: t.TempDir()})}
}

// timeBash is in processor time, which other load on the machine changes little.
func timeBash(t testing.TB, env []string) time.Duration {
	t.Helper()
	cmd := exec.Command("/bin/bash", "-c", "true")
	cmd.Env = env
	err := cmd.Run()
	assert.Must(t, err == nil, "bash -c true: %v", err)
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// TestPreloadCost compares interleaved runs by their fastest and their median: noise only
// ever adds. One of the two differences within the budget is enough, in one of five tries.
func TestPreloadCost(t *testing.T) {
	needHook(t)
	if testing.Short() {
		t.Skip("times processes")
	}
	if _, err := os.Stat("/bin/bash"); err != nil {
		t.Skip(err)
	}
	const runs = 120
	for name, beside := range preloads(t) {
		t.Run(name, func(t *testing.T) {
			pair := preloaded(t, beside)
			least, most := time.Duration(math.MaxInt64), time.Duration(0)
			for range 5 {
				var without, with []time.Duration
				for range runs {
					without = append(without, timeBash(t, pair.without))
					with = append(with, timeBash(t, pair.with))
				}
				slices.Sort(without)
				slices.Sort(with)
				fastest, median := with[0]-without[0], with[runs/2]-without[runs/2]
				t.Logf("fastest %v to %v (%+v), median %v to %v (%+v, ratio %.2f)", without[0], with[0], fastest,
					without[runs/2], with[runs/2], median, float64(with[runs/2])/float64(without[runs/2]))
				most = max(most, mostPreloadCost(beside, without[0]))
				if least = min(least, fastest, median); least < most {
					return
				}
			}
			t.Errorf("the hook adds %v to bash -c true, at most %v is allowed", least, most)
		})
	}
}

func BenchmarkBash(b *testing.B) {
	for _, name := range []string{"alone", "jemalloc", "tcmalloc", "asan"} {
		beside, ok := preloads(b)[name]
		if !ok {
			continue
		}
		pair := preloaded(b, beside)
		for _, env := range []struct {
			name string
			env  []string
		}{{"without", pair.without}, {"with", pair.with}} {
			b.Run(fmt.Sprintf("%s/%s", name, env.name), func(b *testing.B) {
				for range b.N {
					timeBash(b, env.env)
				}
			})
		}
	}
}
