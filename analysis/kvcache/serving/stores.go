package serving

import (
	"fmt"
	"math"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/contiguous"
	"github.com/memprof/memprof/analysis/kvcache/layered"
	"github.com/memprof/memprof/analysis/kvcache/mapped"
	"github.com/memprof/memprof/analysis/kvcache/models"
	"github.com/memprof/memprof/analysis/kvcache/paged"
)

// newStore makes the memory of the policy. Engines under Elastic map from the shared one, unless it is nil.
func newStore(o kvcache.Options, shared *mapped.Memory) (kvcache.Store, error) {
	switch o.Policy.Kind {
	case kvcache.Max, kvcache.Pow2, kvcache.Oracle:
		return contiguous.New(o)
	case kvcache.Paged:
		if o.Policy.Block < 1 || o.Policy.Block > math.MaxInt32 {
			return nil, fmt.Errorf("%d slots cannot be divided into blocks of %d", o.Capacity, o.Policy.Block)
		}
		if n := o.Capacity / int64(o.Policy.Block); n > kvcache.MostBlocks {
			return nil, fmt.Errorf("%d slots are %d blocks of %d, and at most %d are simulated", o.Capacity, n, o.Policy.Block, kvcache.MostBlocks)
		}
		return paged.New(o), nil
	case kvcache.Hybrid, kvcache.Uniform:
		return newHybridStore(o)
	case kvcache.VMM, kvcache.VAttention, kvcache.Elastic:
		if o.Policy.Page < 1 || o.Policy.TokenSize < 1 || o.Policy.Tensors < 1 || o.Capacity > math.MaxInt64/o.Policy.TokenSize {
			return nil, fmt.Errorf("pages of %d bytes cannot hold %d tokens of %d bytes", o.Policy.Page, o.Capacity, o.Policy.TokenSize)
		}
		if o.Policy.Kind != kvcache.Elastic {
			return mapped.NewVMM(o), nil
		}
		if o.Policy.Block < 1 || o.Policy.Page/o.Policy.TokenSize < int64(o.Policy.Block) {
			return nil, fmt.Errorf("pages of %d bytes hold no block of %d tokens of %d bytes", o.Policy.Page, o.Policy.Block, o.Policy.TokenSize)
		}
		return mapped.NewElastic(o, shared), nil
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
	return layered.New(o), nil
}
