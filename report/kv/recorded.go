package kv

import (
	"fmt"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/kv"
	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/models"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
)

// simulationsOf returns KV caches that engines reported on a device, in the form of a simulation. The
// first result of each is what was recorded; the others are simulated from the recorded requests.
func simulationsOf(d *analysis.DeviceResult, caches []*kv.Result) []*Simulation {
	var all []*Simulation
	for _, kv := range caches {
		k := &Simulation{
			Model: kv.Name, Ranks: 1, Memory: kv.Recorded.Capacity * kv.TokenBytes, BytesPerToken: kv.TokenBytes,
			Load: plain.Counted(kv.Recorded.Finished, "recorded sequence"), Results: append([]*kvcache.Result{kv.Recorded}, kv.Policies...),
		}
		if k.Model == "" {
			k.Model = kv.Engine
		}
		k.Card = cardOf(d, k.Memory)
		all = append(all, k)
	}
	return all
}

// cardOf divides the GPU's memory into weights, KV cache and the rest, as the vLLM paper does. Weights
// are what was labelled so at the peak. It is nil if the card's memory or the weights are not known.
func cardOf(d *analysis.DeviceResult, kv int64) *models.Card {
	weights := d.Held.Categories.Of(attribution.Weights.String()).Requested
	if weights == 0 || kv == 0 || weights+kv > d.Total {
		return nil
	}
	return &models.Card{Total: d.Total, Weights: weights, KV: kv, Rest: d.Total - weights - kv}
}

// RecordedSections are the sections of `memprof kv` for the largest KV caches that engines reported on a device.
func RecordedSections(d *analysis.DeviceResult) []layout.Section {
	var sections []layout.Section
	shown := kv.Largest(d.KV)
	for i, k := range simulationsOf(d, shown) {
		kv := shown[i]
		head := layout.Section{Title: "KV cache", Before: append(layout.Note(recordedLine(kv)), layout.Note(fmt.Sprintf("mean batch %.2f, peak batch %s", kv.Recorded.Batch, plain.Counted(kv.Recorded.Peak, "sequence")))...)}
		if kv.Beams > 1 {
			head.Before = append(head.Before, layout.Note(fmt.Sprintf("%d beams share each prompt: each beam is a sequence with its own copy of the prompt", kv.Beams))...)
		}
		if k.Model != "" {
			head.Title += " of " + plain.Shorten(k.Model, 60)
		}
		if kv.Fault != "" {
			place, why, _ := strings.Cut(kv.Fault, ": ")
			fault := append(layout.Note("the engine's marks contradict each other from "+place+" on:"), layout.Note(plain.Shorten(why, 98))...)
			head.Before = append(head.Before, layout.Toned(layout.Warned, fault)...)
		}
		if kv.Recorded.Capacity == 0 {
			sections = append(sections, head)
			continue
		}
		split := slotsSection(k)
		split.Title = "Use of the slots: mean over time (recorded), mean over steps (simulated policies)"
		split.After = append(split.After, layout.Note("simulated policies serve the recorded requests, repeated, from as much memory")...)
		sections = append(sections, head)
		if k.Card != nil {
			sections = append(sections, cardSection(k))
		}
		sections = append(sections, split, externalSection(k), requestsSection(k))
		if s, any := sharingSection(k); any {
			sections = append(sections, s)
		}
	}
	if more := len(d.KV) - len(shown); more > 0 {
		title := fmt.Sprintf("%s more, none larger", plain.Counted(int64(more), "KV cache"))
		sections = append(sections, layout.Section{Title: title, Before: layout.Note("report --json has them all")})
	}
	return sections
}

func recordedLine(kv *kv.Result) string {
	r := kv.Recorded
	line := fmt.Sprintf("%s, at most %s slots", plain.Counted(kv.Caches, "cache"), plain.FormatCount(r.Capacity))
	if kv.Block > 0 {
		line += fmt.Sprintf(" in blocks of %d", kv.Block)
	}
	if kv.TokenBytes > 0 {
		line += fmt.Sprintf(" · %s bytes per token, %s", plain.FormatCount(kv.TokenBytes), plain.FormatSize(r.Capacity*kv.TokenBytes))
	}
	return line
}

// JSONRecorded is a KV cache that an engine reported, with the fields of a simulated one. The first of
// its policies is what was recorded.
type JSONRecorded struct {
	Engine string  `json:"engine"`
	Block  *int64  `json:"block"`
	Caches int64   `json:"caches"`
	Beams  *int64  `json:"beams"` // of each prompt
	Fault  *string `json:"fault"`
	jsonSimulation
}

// RecordedJSON returns the KV caches that engines reported on a device.
func RecordedJSON(d *analysis.DeviceResult) []JSONRecorded {
	var all []JSONRecorded
	for i, k := range simulationsOf(d, d.KV) {
		kv := d.KV[i]
		out := JSONRecorded{Engine: kv.Engine, Caches: kv.Caches, jsonSimulation: newJSON(k)}
		if kv.Block > 0 {
			out.Block = &kv.Block
		}
		if kv.Beams > 1 {
			out.Beams = &kv.Beams
		}
		if kv.Fault != "" {
			out.Fault = &kv.Fault
		}
		out.Slots = kv.Recorded.Capacity
		all = append(all, out)
	}
	return all
}
