package hooks

import (
	"slices"
	"testing"
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
		if ok != test.native || ok && value != "native" {
			t.Errorf("allocator %q: MEMPROF_ALLOCATOR is %q, %v", test.allocator, value, ok)
		}
		if registered := !slices.Contains(env, "NCCL_GRAPH_REGISTER=0"); registered != test.registered {
			t.Errorf("allocator %q: NCCL may register: %v", test.allocator, registered)
		}
	}
}
