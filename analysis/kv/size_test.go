package kv_test

import (
	"testing"

	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestKVMarksAreSmall: marks of KV caches are within the budget of the format.
func TestKVMarksAreSmall(t *testing.T) {
	r := serve(3000, 3)
	var texts []string
	for id := range int32(r.Strings.Len()) {
		texts = append(texts, r.Strings.Text(id))
	}
	dir := t.TempDir()
	tracetest.WriteRun(t, dir, tracetest.Process{Events: r.Events, Texts: texts})
	run, err := dataset.Open(dir)
	assert.NoError(t, err)
	if got := float64(run.Processes[0].Bytes()) / float64(len(r.Events)); got > 4 {
		t.Errorf("%.2f bytes an event of %d, want at most 4", got, len(r.Events))
	} else {
		t.Logf("%.2f bytes an event of %d", got, len(r.Events))
	}
}
