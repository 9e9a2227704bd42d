package summary

import (
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestChange: what would have let a request through is a setting that a replay names, else the memory that is missing,
// and the batch that needs so much less.
func TestChange(t *testing.T) {
	activations := &attribution.Result{Known: true}
	activations.Categories.Groups = []attribution.Group{{Name: attribution.Activations.String(), Requested: 7 * gib}}
	full := analysis.OOM{Request: gib, Verdict: analysis.Capacity, Used: 10 * gib, Limit: -1, At: ledger.Instant{R: 8 * gib}}
	tests := []struct {
		name  string
		fault func(*analysis.DeviceResult, *analysis.OOM)
		want  string
	}{
		{"a setting", func(d *analysis.DeviceResult, _ *analysis.OOM) {
			d.Remedy = &analysis.Remedy{Replay: analysis.Replay{Allocator: "memprof", Setting: "--preset compact", Reserved: 7 * gib}}
		}, "memprof's allocator, --preset compact: serves every request of the recording, reserves 7 GiB (replayed)"},
		{"a request that nothing serves", func(_ *analysis.DeviceResult, o *analysis.OOM) { o.Request = 1 << 50 }, "larger than any GPU"},
		{"no setting", func(d *analysis.DeviceResult, o *analysis.OOM) {
			d.Remedy, o.Held = &analysis.Remedy{Missing: 2 * gib}, activations
		}, "capacity: 1 GiB more memory for this request, at least 2 GiB for the job (replayed), or a batch at least 25 % smaller"},
		{"no replay", func(*analysis.DeviceResult, *analysis.OOM) {}, "capacity: 1 GiB more memory"},
		{"a limit", func(_ *analysis.DeviceResult, o *analysis.OOM) { o.Used, o.Limit = 9*gib, 8*gib },
			"--limit 9GiB: 1 GiB more than 8 GiB"},
		{"a limit that is no whole number of pages", func(_ *analysis.DeviceResult, o *analysis.OOM) {
			o.Used, o.Limit, o.Request, o.At.R = 8*gib, 8*gib, gib+1, 8*gib+1000
		}, "--limit 9218MiB: 1.00 GiB more than 8 GiB"},
		{"free memory elsewhere", func(_ *analysis.DeviceResult, o *analysis.OOM) { o.Free = 512 * mib },
			"capacity: 512 MiB more memory"},
		{"a GPU of unknown use", func(_ *analysis.DeviceResult, o *analysis.OOM) { o.Used = -1 }, "capacity: a smaller batch, or a larger GPU"},
		{"a capture", func(_ *analysis.DeviceResult, o *analysis.OOM) { o.Capturing, o.Verdict = true, analysis.Fragmentation },
			"fragmentation: nothing is unmapped while a CUDA graph is captured, so torch.cuda.empty_cache() before the capture"},
		{"PyTorch's allocator", func(d *analysis.DeviceResult, o *analysis.OOM) {
			d.Chunks, o.Verdict = nil, analysis.Fragmentation
		}, "fragmentation: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or memprof's allocator with --preset compact"},
	}
	for _, test := range tests {
		d, o := &analysis.DeviceResult{Memory: &analysis.Memory{Chunks: &analysis.Chunks{}}, Total: 10 * gib}, full
		test.fault(d, &o)
		assert.Equal(t, Change(d, &o), test.want, "%s", test.name)
	}
}
