package tracetest

import (
	"slices"
	"strings"
	"testing"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// CheckContext fails the test if a context that one of our writers wrote is not by the grammar of
// trace.Context: a part that is no field, or a field that the kind's row does not name.
func CheckContext(t testing.TB, kind trace.Kind, text string) {
	t.Helper()
	row := slices.IndexFunc(trace.Kinds(), func(info trace.KindInfo) bool { return info.Kind == kind })
	if row < 0 {
		t.Errorf("%v is no kind", kind)
		return
	}
	known := trace.Kinds()[row].Fields
	context := trace.ParseContext(kind, text)
	if name := context.Name(); name == text {
		return // without fields
	}
	var fields []trace.Field
	if name := context.Name(); name != "" {
		text = strings.TrimPrefix(text, name+"\t")
	}
	for name, value := range context.Fields() {
		fields = append(fields, trace.Field{Name: name, Value: value})
		assert.That(t, slices.Contains(known, name), "%v: no field %q is described: %q", kind, name, text)
	}
	separators := strings.NewReplacer("\t", " ") // in the options of an arena both separate
	again := trace.FormatContext(fields...)
	assert.That(t, separators.Replace(again) == separators.Replace(text), "%v: %q has more than these fields: %q", kind, text, again)
}
