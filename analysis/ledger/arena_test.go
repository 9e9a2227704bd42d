package ledger

import (
	"errors"
	"testing"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// A main arena of a policy that was removed is refused; what other arenas and allocators say is read.
func TestRemovedPolicies(t *testing.T) {
	for options, gone := range map[string]bool{
		"growth=pages split=always placement=planned main=1": true,
		"growth=needed main=1":                               true,
		"growth=needed main=0":                               false,
		"growth=double placement=best-fit main=1":            false,
		"allocator=native main=1":                            false,
	} {
		l := New()
		_, err := l.Describe(&trace.Event{Kind: trace.KindArena}, options, func(int32) *Device { return &Device{} })
		assert.That(t, errors.Is(err, bfc.ErrGone) == gone && (gone || err == nil), "%s: %v", options, err)
	}
}
