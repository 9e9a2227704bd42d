package top

import (
	"sync"
	"time"

	"github.com/memprof/memprof/hooks/nvml"
	"github.com/memprof/memprof/trace"
)

// cardWatch asks NVML what the recording's GPUs have in use, on a goroutine of its own: NVML may hang if a
// card is in trouble.
type cardWatch struct {
	gpus  []trace.GPU
	stale time.Duration // how old an answer may be

	mu     sync.Mutex
	byUUID map[string]int64
	at     time.Time
}

// newCardWatch starts to ask. Simulated GPUs are not asked about.
func newCardWatch(info *trace.Info, interval time.Duration) *cardWatch {
	w := &cardWatch{gpus: info.GPUs, stale: 3*interval + time.Second}
	if info.Options["device"] == "sim" || len(info.GPUs) == 0 {
		return w
	}
	w.ask()
	go func() {
		for range time.Tick(interval) {
			w.ask()
		}
	}()
	return w
}

// ask waits for an answer for at most w.stale.
func (w *cardWatch) ask() {
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		state, err := nvml.Read()
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
	}()
	select {
	case <-answered:
	case <-time.After(w.stale):
	}
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
