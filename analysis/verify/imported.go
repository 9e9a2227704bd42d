package verify

import (
	"context"
	"errors"
	"fmt"

	"github.com/memprof/memprof/analysis/torchalloc"
	"github.com/memprof/memprof/trace/dataset"
)

// Import says how far the allocator's decisions in an imported process were compared.
type Import struct {
	Format  string `json:"format"`        // "torch-snapshot"
	Blocks  int64  `json:"blocks_before"` // that were there before the first entry
	Modeled bool   `json:"modeled"`       // a model came to the same addresses, sizes and segments
	Version string `json:"version"`       // of PyTorch whose model that is; "" for none
	Why     string `json:"why"`           // why none did, or was not asked
}

// imported is the versions of PyTorch whose rules differ, the likeliest first: snapshots do not say theirs.
var imported = []struct {
	version torchalloc.Version
	name    string
}{{torchalloc.Torch211, "2.7 to 2.12"}, {torchalloc.Torch213, "2.13 and later"}, {torchalloc.Torch26, "up to 2.6"}}

// Imported verifies a process that `memprof import` made. Its recording has to be whole and unchanged, and each free that of a
// live block. A snapshot of PyTorch is compared with the model of PyTorch's allocator as well, from what it had before its history on. A
// difference there is no mismatch: settings that the job made in its code are not in it, and its private pools are in part guessed.
func Imported(ctx context.Context, p *dataset.Process, how *dataset.Imported) (*Result, error) {
	if len(p.Parts) == 0 || p.Parts[0].Number != 0 || p.Parts[0].FirstSeq != 0 {
		return nil, fmt.Errorf("%s: %w", p.Name, ErrNotFromStart)
	}
	j := newJudge(p)
	j.replay, j.matched = nil, newMatched(0)
	if err := j.all(ctx); err != nil {
		return nil, err
	}
	result := j.result()
	if result.Allocs == 0 {
		return nil, fmt.Errorf("%s: %w", p.Name, ErrNothingToVerify)
	}
	result.Import = &Import{Format: how.Format, Blocks: how.Blocks}
	return result, result.compare(ctx, p, how)
}

// compare follows a process with the models of all versions, until one has the same.
func (r *Result) compare(ctx context.Context, p *dataset.Process, how *dataset.Imported) error {
	furthest := int64(-1)
	for _, of := range imported {
		f := torchalloc.NewFollower(of.version, p.Strings().Text)
		f.Sized, f.Opening = true, how.Opening
		if how.Settings != nil {
			f.Conf = how.Settings.Text
		}
		err := f.All(ctx, p.Each)
		var d *torchalloc.Difference
		switch {
		case err == nil && f.Allocs == r.Allocs:
			r.Observed, r.Import.Modeled, r.Import.Version, r.Import.Why = &f.Followed, true, of.name, ""
			return nil
		case err == nil:
			r.Import.Why = fmt.Sprintf("%d of %d blocks are in arenas that it does not have", r.Allocs-f.Allocs, r.Allocs)
		case errors.As(err, &d):
			if d.Seq > furthest {
				furthest = d.Seq
				r.Import.Why = fmt.Sprintf("by the rules of PyTorch %s it differs first at %v; settings in the job's code are not in the snapshot", of.name, d)
			}
		case errors.Is(err, torchalloc.ErrNotModeled):
			r.Import.Why = err.Error()
		default:
			return err
		}
	}
	return nil
}
