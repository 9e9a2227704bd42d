package main

import (
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestStudy runs the scripts about the recordings in samples/: $SAMPLES.
func TestStudy(t *testing.T) {
	samples, err := filepath.Abs("../../samples")
	if err != nil {
		t.Fatal(err)
	}
	runScripts(t, "testdata/script/study", func(env *testscript.Env) error {
		env.Setenv("SAMPLES", samples)
		return nil
	})
}
