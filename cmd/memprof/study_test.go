package main

import (
	"encoding/json"
	"io/fs"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestStudy runs the scripts about the recordings in samples/: $SAMPLES. They leave no file there.
func TestStudy(t *testing.T) {
	needHook(t)
	samples, err := filepath.Abs("../../samples")
	assert.NoError(t, err)
	before := filesBelow(t, samples)
	t.Cleanup(func() { // after the scripts, which run side by side
		assert.Diff(t, before, filesBelow(t, samples), "files in samples/ (-before +after)")
	})
	runScripts(t, "testdata/script/study", func(env *testscript.Env) error {
		env.Setenv("SAMPLES", samples)
		env.Setenv("MEMPROF_CACHE", cache)
		return nil
	})
}

// filesBelow lists the files of a folder and of those below it.
func filesBelow(t *testing.T, folder string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) != ".pyc" { // Python keeps its own beside a script
			files = append(files, path)
		}
		return err
	})
	assert.NoError(t, err)
	return files
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
