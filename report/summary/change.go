package summary

import (
	"fmt"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/plain"
)

// Change is the smallest change that would have let a request through that failed: settings that serve it by
// replay, else how much memory is missing, and what batch that is.
func Change(d *analysis.DeviceResult, o *analysis.OOM) string {
	r := d.Remedy
	switch {
	case o.Request > accounting.LargestCard:
		return "larger than any GPU"
	case o.Capturing && o.Verdict == analysis.Fragmentation:
		return "fragmentation: nothing is unmapped while a CUDA graph is captured, so torch.cuda.empty_cache() before the capture"
	case r != nil && r.Setting != "":
		return fmt.Sprintf("%s: serves every request of the recording, reserves %s (replayed)", r.Name(), plain.FormatSize(r.Reserved))
	case o.Verdict == analysis.Fragmentation && r == nil && d.Chunks == nil:
		return "fragmentation: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or memprof's allocator with --preset compact"
	case o.Verdict == analysis.Fragmentation && r == nil:
		return "fragmentation: try --preset compact"
	}
	missing := missingAlone(d, o)
	if r != nil {
		missing = r.Missing
	}
	limit := (o.Limit + missing + page - 1) / page * page
	switch {
	case missing > 0 && o.Limit >= 0 && o.Used >= 0 && limit <= o.At.R+d.Total-o.Used:
		return fmt.Sprintf("--limit %s: %s more than %s", plain.ExactSize(uint64(limit)), plain.FormatSize(missing), plain.FormatSize(o.Limit))
	case missing <= 0:
		return "capacity: a smaller batch, or a larger GPU"
	}
	text := fmt.Sprintf("capacity: %s more memory", plain.FormatSize(missing))
	if r != nil {
		text = fmt.Sprintf("%s: at least %s more memory (replayed)", o.Verdict, plain.FormatSize(missing))
		if alone := missingAlone(d, o); 0 < alone && alone < missing {
			text = fmt.Sprintf("%s: %s more memory for this request, at least %s for the job (replayed)", o.Verdict, plain.FormatSize(alone), plain.FormatSize(missing))
		}
	}
	if part := smallerBatch(o, missing); part > 0 {
		text += fmt.Sprintf(", or a batch at least %d %% smaller", part)
	}
	return text
}

// missingAlone is how much more memory a request needs than there is, in bytes; 0 where that is not known.
func missingAlone(d *analysis.DeviceResult, o *analysis.OOM) int64 {
	room := int64(-1) // what arenas may reserve
	switch {
	case d.Total > 0 && o.Used >= 0:
		room = o.At.R + max(0, d.Total-o.Used)
	case d.Total > 0 && o.Limit >= 0: // its arena is known, and what others have is not
		room = d.Total - o.OtherLibraries
	}
	if o.Limit >= 0 && (room < 0 || o.Limit < room) {
		room = o.Limit
	}
	switch {
	case room < 0:
		return 0
	case o.Free < 0:
		return max(0, o.At.R+o.Request-room)
	}
	return max(0, o.At.R-o.Free+o.Request-room)
}

// smallerBatch returns by how many percent a batch is smaller whose activations need so much less, if they shrink
// with it; 0 where activations are not known or do not suffice.
func smallerBatch(o *analysis.OOM, missing int64) int64 {
	if o.Held == nil || !o.Held.Known {
		return 0
	}
	for i := range o.Held.Categories.Groups {
		if g := &o.Held.Categories.Groups[i]; g.Name == attribution.Activations.String() && g.Requested+o.Request > missing {
			all := g.Requested + o.Request // which was most likely for one, too
			return (100*missing + all - 1) / all
		}
	}
	return 0
}
