package top

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/hooks/nvml"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// While NVML hangs, it is not asked again, and what it answered last is unknown once it is old.
func TestCardWatchHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		hangs, asked := make(chan struct{}), atomic.Int64{}
		read := func() (*nvml.State, error) {
			if asked.Add(1) == 3 {
				<-hangs
			}
			return &nvml.State{GPUs: []nvml.GPU{{UUID: "GPU-1", Used: 100 + asked.Load()}}}, nil
		}
		w := newCardWatch(ctx, &dataset.Info{GPUs: []dataset.GPU{{Index: 4, Name: "H200", UUID: "GPU-1", Memory: 1000}, {Index: 5, Name: "H200", UUID: "GPU-2", Memory: 1000}}}, time.Second, read)
		number := func(n int64) *int64 { return &n }
		want := func(used *int64, times int64) {
			t.Helper()
			synctest.Wait()
			diff := cmp.Diff([]Card{{4, "H200", used, 1000}, {5, "H200", nil, 1000}}, w.used())
			assert.That(t, diff == "" && asked.Load() == times, "asked %d times, want %d; cards (-want +got):\n%s", asked.Load(), times, diff)
		}
		want(number(101), 1)
		time.Sleep(time.Second)
		want(number(102), 2)
		time.Sleep(4*time.Second - 1)
		want(number(102), 3)
		time.Sleep(1)
		want(nil, 3)
		time.Sleep(time.Hour)
		want(nil, 3)
		close(hangs)
		want(number(103), 3)
		time.Sleep(time.Second)
		want(number(104), 4)
	})
}

// If NVML hangs from the beginning, top begins without its answer.
func TestCardWatchBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		hangs, begun := make(chan struct{}), time.Now()
		defer close(hangs)
		w := newCardWatch(ctx, &dataset.Info{GPUs: []dataset.GPU{{UUID: "GPU-1"}}}, time.Second, func() (*nvml.State, error) {
			<-hangs
			return &nvml.State{}, nil
		})
		waited := time.Since(begun)
		assert.That(t, waited == 4*time.Second && w.used()[0].Used == nil, "after %v: %+v", waited, w.used())
	})
}
