package hooks

import (
	"slices"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

func TestEnvironmentOfAllocators(t *testing.T) {
	installation := &Installation{Dir: "/c/v", ShimCache: "/c/shim"}
	for _, test := range []struct {
		allocator  string
		native     bool // torch's own allocator stays
		registered bool // NCCL may register buffers of graphs
	}{
		{"", false, false},
		{"bfc", false, false},
		{"native", true, true},
	} {
		// The environment of a recording inside another one is its own.
		env := installation.Environment([]string{"MEMPROF_ALLOCATOR=outer"}, Options{Spool: "/s", Allocator: test.allocator})
		value, ok := lookup(env, "MEMPROF_ALLOCATOR")
		assert.That(t, ok == test.native && (!ok || value == "native"), "allocator %q: MEMPROF_ALLOCATOR is %q, %v", test.allocator, value, ok)
		assert.Equal(t, !slices.Contains(env, "NCCL_GRAPH_REGISTER=0"), test.registered, "allocator %q: NCCL may register", test.allocator)
	}
}
