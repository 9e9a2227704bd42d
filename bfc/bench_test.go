package bfc

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// BenchmarkAllocFree keeps 1,000 blocks alive; each step frees a random one and asks for
// another of random size.
func BenchmarkAllocFree(b *testing.B) {
	const greatest = 16 << 20
	for _, c := range []struct {
		name string
		size func(*rand.Rand) uint64
	}{
		{"uniform", func(r *rand.Rand) uint64 { return 1 + r.Uint64N(greatest) }},
		{"loguniform", func(r *rand.Rand) uint64 { return uint64(math.Exp(r.Float64() * math.Log(greatest))) }},
	} {
		b.Run(c.name, func(b *testing.B) { benchmarkAllocFree(b, c.size) })
	}
}

func benchmarkAllocFree(b *testing.B, size func(*rand.Rand) uint64) {
	const live = 1000
	random := rand.New(rand.NewPCG(1, 2))
	sizes := make([]uint64, 1<<16)
	slots := make([]uint16, len(sizes))
	for i := range sizes {
		sizes[i] = size(random)
		slots[i] = uint16(random.IntN(live))
	}
	a, err := New(Options{Limit: NoLimit}, NewDevice(DeviceOptions{VMM: true, Granularity: 2 << 20}))
	assert.NoError(b, err)
	var addrs [live]uint64
	for i := range addrs {
		block, _ := a.Alloc(sizes[i])
		addrs[i] = block.Addr
	}
	step := func(i int) {
		slot := slots[i&(len(slots)-1)]
		if _, err := a.Free(addrs[slot]); err != nil {
			b.Fatal(err)
		}
		block, ok := a.Alloc(sizes[i&(len(sizes)-1)])
		if !ok {
			b.Fatal("out of memory")
		}
		addrs[slot] = block.Addr
	}
	for i := range sizes {
		step(i)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		step(i)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
}
