package stores

import (
	"fmt"
	"math"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/models"
)

// New makes the memory of a policy. Its errors are of options that no memory can have.
func New(o kvcache.Options) (kvcache.Store, error) {
	switch o.Policy.Kind {
	case kvcache.Max, kvcache.Pow2, kvcache.Oracle:
		return newContiguous(o)
	case kvcache.Paged:
		if o.Policy.Block < 1 || o.Policy.Block > math.MaxInt32 {
			return nil, fmt.Errorf("%d slots cannot be divided into blocks of %d", o.Capacity, o.Policy.Block)
		}
		if n := o.Capacity / int64(o.Policy.Block); n > kvcache.MostBlocks {
			return nil, fmt.Errorf("%d slots are %d blocks of %d, and at most %d are simulated", o.Capacity, n, o.Policy.Block, kvcache.MostBlocks)
		}
		return newPaged(o), nil
	case kvcache.Hybrid, kvcache.Uniform:
		return newHybridStore(o)
	}
	return nil, fmt.Errorf("policy %d is not known", o.Policy.Kind)
}

// newHybridStore is a memory of layers of several kinds.
func newHybridStore(o kvcache.Options) (kvcache.Store, error) {
	if o.Policy.Block < 1 || o.Policy.Slot < 1 || len(o.Policy.Layers) == 0 || o.Capacity > math.MaxInt64/o.Policy.Slot {
		return nil, fmt.Errorf("blocks of %d tokens of %d bytes in %d kinds of layers: want at least 1 of each", o.Policy.Block, o.Policy.Slot, len(o.Policy.Layers))
	}
	for _, k := range o.Policy.Layers {
		if k.Layers < 1 || k.Bytes < 1 || k.Window < 1 && (k.Keep == models.Sliding || k.Keep == models.Chunked || k.Keep == models.Cross) {
			return nil, fmt.Errorf("%d layers of %v with %d bytes", k.Layers, k, k.Bytes)
		}
	}
	return newLayered(o), nil
}
