package recording

import (
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/bfc"
)

// TestPolicyOf: the page of growth pages is the size of a handle; that of other growths is the device's, and says nothing.
func TestPolicyOf(t *testing.T) {
	for _, c := range []struct {
		growth, page string
		want         uint64 // bytes of a handle; 0: the default
	}{
		{"pages", "4194304", 0}, {"pages", "2097152", 2 << 20}, {"pages", "33554432", 32 << 20}, {"pages", "", 0}, {"pages", "x", 0},
		{"needed", "2097152", 0},
	} {
		options := map[string]string{"main": "1", "growth": c.growth, "split": "always", "trim": "never", "placement": "planned", "headroom": "0"}
		if c.page != "" {
			options["granularity"] = c.page
		}
		p, ok := PolicyOf(&analysis.Result{Arenas: []ledger.Info{{Options: options}}}, 0)
		if !ok || p.Handle != c.want || (p.Growth == bfc.Pages) != (c.growth == "pages") {
			t.Errorf("growth %s, pages of %q bytes: handle %d, %v, want %d", c.growth, c.page, p.Handle, ok, c.want)
		}
	}
}
