package report

import (
	"bytes"
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/reporttest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// Before anything is used, amid a step, and after a request that failed.
func TestMomentsGolden(t *testing.T) {
	r := stepped(t, 5, func(r *modeltest.Recorder, a *modeltest.Arena) {
		if len(r.Events) > 30 {
			a.Alloc(2<<30, "module="+hostileModule)
		}
	})
	moments, err := analysis.At(modeltest.Source(r.Events, 3), analysis.Options{Process: "rank0", Text: r.Strings.Text}, 0, 9, int64(len(r.Events))-1)
	assert.NoError(t, err)
	for name, write := range map[string]func(*bytes.Buffer) error{
		"moments.txt":  func(w *bytes.Buffer) error { return layout.WriteText(w, layout.Options{}, MomentsSections(moments)...) },
		"moments.md":   func(w *bytes.Buffer) error { return layout.WriteMarkdown(w, MomentsSections(moments)...) },
		"moments.json": func(w *bytes.Buffer) error { return MomentsJSON(w, moments) },
	} {
		var out bytes.Buffer
		assert.NoError(t, write(&out))
		reporttest.Golden(t, name, out.Bytes())
	}
}
