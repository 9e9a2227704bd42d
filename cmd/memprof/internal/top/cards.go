package top

import (
	"context"
	"sync"
	"time"

	"github.com/memprof/memprof/hooks/nvml"
	"github.com/memprof/memprof/trace/dataset"
)

// cardWatch asks NVML what the recording's GPUs have in use, on one goroutine of its own: NVML may hang if a
// card is in trouble, and each call that hangs keeps a thread.
type cardWatch struct {
	gpus  []dataset.GPU
	stale time.Duration // how old an answer may be

	mu     sync.Mutex
	byUUID map[string]int64
	at     time.Time
}

// newCardWatch asks with read at each interval until ctx is done, and waits for the first answer for at most w.stale.
// Simulated GPUs are not asked about.
func newCardWatch(ctx context.Context, info *dataset.Info, interval time.Duration, read func() (*nvml.State, error)) *cardWatch {
	w := &cardWatch{gpus: info.GPUs, stale: 3*interval + time.Second}
	if info.Options["device"] == "sim" || len(info.GPUs) == 0 {
		return w
	}
	answered := make(chan struct{})
	go func() {
		w.ask(read)
		close(answered)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(interval):
				w.ask(read)
			}
		}
	}()
	select {
	case <-answered:
	case <-time.After(w.stale):
	}
	return w
}

func (w *cardWatch) ask(read func() (*nvml.State, error)) {
	state, err := read()
	if err != nil {
		return
	}
	used := map[string]int64{}
	for _, card := range state.GPUs {
		used[card.UUID] = card.Used
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.byUUID, w.at = used, time.Now()
}

// used returns the recording's GPUs. An answer older than w.stale counts as unknown.
func (w *cardWatch) used() []Card {
	w.mu.Lock()
	defer w.mu.Unlock()
	cards := []Card{}
	for _, gpu := range w.gpus {
		card := Card{Index: gpu.Index, Name: gpu.Name, Total: gpu.Memory}
		if used, known := w.byUUID[gpu.UUID]; known && time.Since(w.at) < w.stale {
			card.Used = &used
		}
		cards = append(cards, card)
	}
	return cards
}
