package main

import (
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

func TestFrames(t *testing.T) {
	for _, flag := range []framesFlag{"", "user", "all"} {
		err := flag.validate()
		assert.That(t, err == nil && flag.all() == (flag == "all"), "--frames %s: %v, all %v", flag, err, flag.all())
	}
	assert.That(t, framesFlag("al").validate() != nil, "--frames al: want an error")
}
