package requests

import (
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestRestacked wants a context to name its call stack by the number that the stack has now.
func TestRestacked(t *testing.T) {
	known := texts{nodes: map[int64]uint32{7: 2, 9: 0}}
	for context, want := range map[string]string{
		"module=net.fc\tstack=7": "module=net.fc\tstack=2",
		"stack=7":                "stack=2",
		"stack=9":                "stack=9", // there are too many stacks
		"module=stack=7":         "module=stack=7",
		"net.fc":                 "net.fc",
	} {
		assert.Equal(t, known.restacked(context), want, "restacked(%q)", context)
	}
}
