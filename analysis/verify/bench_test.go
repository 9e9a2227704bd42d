package verify

import (
	"math/rand/v2"
	"testing"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace/dataset"
)

// BenchmarkProcess is a recording of random sizes, read, summed and replayed.
func BenchmarkProcess(b *testing.B) {
	j := newJob()
	h := j.heap(b, bfc.Options{Limit: bfc.NoLimit, Headroom: 2 * gib}, bfc.DeviceOptions{
		VMM: true, Granularity: 2 * mib, Physical: 80 * gib, Reservation: 80 * gib})
	r := rand.New(rand.NewPCG(1, 1))
	live := make([]uint64, 1000)
	for range 500_000 {
		i := r.IntN(len(live))
		if live[i] != 0 {
			h.free(live[i])
		}
		live[i] = h.alloc(1 + r.Uint64N(4*mib))
	}
	dir := j.write(b, dataset.Ending{}, dataset.WriterOptions{})
	for b.Loop() {
		if _, err := verifyPath(b, dir); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(j.events))*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mevents/s")
}
