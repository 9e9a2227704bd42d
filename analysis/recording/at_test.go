package recording

import (
	"errors"
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// What one part says of a moment is what a pass from the first event finds, the iterations before the part counted; a recording
// that says nothing of the marks before its parts is read from its first event on.
func TestAtFromTheMiddle(t *testing.T) {
	dir := t.TempDir()
	events, texts := tracetest.Training(30_000)
	tracetest.WriteRun(t, dir, tracetest.Process{Events: events, Texts: texts, Options: dataset.WriterOptions{PartEvents: 7000, RowGroup: 900}})
	p := tracetest.One(t, dir)
	var none *analysis.NoEventError
	if _, err := At(p, 30_000); !errors.As(err, &none) || *none != (analysis.NoEventError{Seq: 30_000, First: 0, Last: 29_999}) {
		t.Errorf("of an event that is not there: %v", err)
	}
	marks := p.Parts[2].Marks
	p.Parts[2].Marks = -1
	whole, err := At(p, 3, 14_500)
	assert.NoError(t, err)
	p.Parts[2].Marks = marks
	part, err := At(p, 3, 14_500)
	assert.NoError(t, err)
	assert.Diff(t, whole, part, "event 14500 (-whole +part)")
}
