package recording

import (
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestPolicyOf: the page of preset compact is the size of a handle; that of classic is the device's, and says nothing.
func TestPolicyOf(t *testing.T) {
	for _, c := range []struct {
		preset bfc.Preset
		page   string
		want   uint64 // bytes of a handle; 0: the default
	}{
		{bfc.Compact, "4194304", 0}, {bfc.Compact, "2097152", 2 << 20}, {bfc.Compact, "33554432", 32 << 20}, {bfc.Compact, "", 0}, {bfc.Compact, "x", 0},
		{bfc.Classic, "2097152", 0},
	} {
		options := map[string]string{"main": "1", "growth": "double", "split": "classic", "trim": "iteration", "headroom": "5"}
		if c.preset == bfc.Compact {
			options["growth"], options["split"] = "pages", "always"
		}
		if c.page != "" {
			options["granularity"] = c.page
		}
		p, ok := PolicyOf(&analysis.Result{Arenas: []ledger.Info{{Options: options}}}, 0)
		want := bfc.Policy{Preset: c.preset, Handle: c.want, Headroom: 5, Trim: bfc.Trim{When: bfc.TrimIteration}}
		assert.That(t, ok && p == want, "%v, pages of %q bytes: %+v, %v, want %+v", c.preset, c.page, p, ok, want)
	}
}
