package main

import (
	"encoding/json"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestStudy runs the scripts about the recordings in samples/: $SAMPLES.
func TestStudy(t *testing.T) {
	needHook(t)
	samples, err := filepath.Abs("../../samples")
	if err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	runScripts(t, "testdata/script/study", func(env *testscript.Env) error {
		env.Setenv("SAMPLES", samples)
		env.Setenv("MEMPROF_CACHE", cache)
		return nil
	})
}

// sameValue demands that two JSON files have the same value under keys of theirs, wherever they
// have them: samevalue FILE KEY FILE KEY.
func sameValue(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: samevalue FILE KEY FILE KEY")
	}
	var values []any
	for i := 0; i < len(args); i += 2 {
		var document any
		if err := json.Unmarshal([]byte(ts.ReadFile(args[i])), &document); err != nil {
			ts.Fatalf("%s: %v", args[i], err)
		}
		found := valuesUnder(document, args[i+1])
		if len(found) == 0 {
			ts.Fatalf("%s: no %q", args[i], args[i+1])
		}
		values = append(values, found...)
	}
	for _, value := range values {
		if !reflect.DeepEqual(value, values[0]) {
			ts.Fatalf("%s of %s and %s of %s: %v", args[1], args[0], args[3], args[2], values)
		}
	}
}

// valuesUnder are the values of a key, wherever it is in a JSON document.
func valuesUnder(document any, key string) []any {
	var found []any
	switch node := document.(type) {
	case map[string]any:
		for name, value := range node {
			if name == key {
				found = append(found, value)
			}
			found = append(found, valuesUnder(value, key)...)
		}
	case []any:
		for _, value := range node {
			found = append(found, valuesUnder(value, key)...)
		}
	}
	return found
}
