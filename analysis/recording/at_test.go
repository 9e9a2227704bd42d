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
	whole, err := InParts(p, 3, 14_500)
	assert.NoError(t, err)
	p.Parts[2].Marks = marks
	part, err := InParts(p, 3, 14_500)
	assert.NoError(t, err)
	assert.Diff(t, whole, part, "event 14500 (-whole +part)")
}

// What a recording says of its peak's event is what its report says of the peak: categories and phases, too, whichever part has it.
func TestAtThePeak(t *testing.T) {
	for _, name := range []string{"qlora", "loading", "graphs", "moe64"} {
		p := inParts(t, "../../samples/irregular/"+name, 7)
		reader, err := p.NewReader()
		assert.NoError(t, err)
		result, err := analysis.Run(reader, OptionsOf(p))
		assert.NoError(t, err)
		want := result.Devices[0].AtPeak()
		got, err := At(p, want.At.Seq)
		assert.NoError(t, err)
		assert.Diff(t, *want, got[0].Devices[0], "%s (-report +at)", name)
	}
}

// inParts is the one process of a sample, in n parts.
func inParts(t *testing.T, sample string, n int) *dataset.Process {
	t.Helper()
	p, dir := tracetest.One(t, sample), t.TempDir()
	events := tracetest.Events(t, p)
	texts := make([]string, p.Strings().Len())
	for i := range texts {
		texts[i] = p.Strings().Text(int32(i))
	}
	tracetest.WriteRun(t, dir, tracetest.Process{Events: events, Texts: texts, Options: dataset.WriterOptions{PartEvents: len(events) / n}})
	return tracetest.One(t, dir)
}
