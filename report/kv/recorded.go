package kv

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/report/figure"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/plain"
	"github.com/memprof/memprof/report/units"
)

// recordedKV are the memories for keys and values of a device, as those of a simulation are
// shown: what was recorded first, then what other policies would have done.
func recordedKV(d *analysis.DeviceResult) []*Simulation {
	var all []*Simulation
	for _, kv := range d.KV {
		k := &Simulation{
			Model: kv.Name, Ranks: 1, Memory: kv.Recorded.Capacity * kv.TokenBytes, BytesPerToken: kv.TokenBytes,
			Load: units.Counted(kv.Recorded.Finished, "recorded sequence"), Results: append([]*kvcache.Result{kv.Recorded}, kv.Policies...),
		}
		if k.Model == "" {
			k.Model = kv.Engine
		}
		k.Card = recordedCard(d, k.Memory)
		all = append(all, k)
	}
	return all
}

// recordedCard divides the card as the article does, with what was labelled as weights at the
// peak; nil where the card or the weights are not known.
func recordedCard(d *analysis.DeviceResult, kv int64) *kvcache.Card {
	weights := d.Held.Categories.Of(analysis.Weights.String()).Requested
	if weights == 0 || kv == 0 || weights+kv > d.Total {
		return nil
	}
	return &kvcache.Card{Total: d.Total, Weights: weights, KV: kv, Rest: d.Total - weights - kv}
}

// recordedKVSections are those of `memprof kv` for what was recorded on a device.
func RecordedSections(d *analysis.DeviceResult) []layout.Section {
	var sections []layout.Section
	for i, k := range recordedKV(d) {
		kv := d.KV[i]
		head := layout.Section{Title: "Keys and values", Before: append(layout.Note(recordedKVLine(kv)), layout.Note(recordedKVBatch(kv))...)}
		if kv.Beams > 1 {
			head.Before = append(head.Before, layout.Note(recordedKVBeams(kv))...)
		}
		if k.Model != "" {
			head.Title += " of " + plain.Shorten(k.Model, 60)
		}
		if kv.Fault != "" {
			place, why, _ := strings.Cut(kv.Fault, ": ")
			fault := append(layout.Note("the engine's marks make no sense from "+place+" on:"), layout.Note(plain.Shorten(why, 98))...)
			head.Before = append(head.Before, layout.Toned(layout.Warned, fault)...)
		}
		if kv.Recorded.Capacity == 0 {
			sections = append(sections, head)
			continue
		}
		split := kvSplitSection(k)
		split.Title = "Where the slots were: recorded, in the mean over time; by policy, over steps"
		split.After = append(split.After, layout.Note("by policy: the recorded requests, over and over, in as much memory")...)
		sections = append(sections, head)
		if k.Card != nil {
			sections = append(sections, kvCardSection(k))
		}
		sections = append(sections, split, kvExternalSection(k), kvRequestsSection(k))
		if s, any := kvSharingSection(k); any {
			sections = append(sections, s)
		}
		if kv.Recorded.Map != nil {
			sections = append(sections, kvMapSections(kv.Recorded)...)
		}
	}
	return sections
}

func recordedKVLine(kv *analysis.KeysValues) string {
	r := kv.Recorded
	line := fmt.Sprintf("%s of %s slots at most", units.Counted(kv.Caches, "cache"), units.FormatCount(r.Capacity))
	if kv.Block > 0 {
		line += fmt.Sprintf(" in blocks of %d", kv.Block)
	}
	if kv.TokenBytes > 0 {
		line += fmt.Sprintf(" · %s bytes a token, %s", units.FormatCount(kv.TokenBytes), units.FormatSize(r.Capacity*kv.TokenBytes))
	}
	return line
}

func recordedKVBatch(kv *analysis.KeysValues) string {
	r := kv.Recorded
	return fmt.Sprintf("%s at once in the mean, %s at most", strconv.FormatFloat(r.Batch, 'f', 2, 64), units.Counted(r.Peak, "sequence"))
}

func recordedKVBeams(kv *analysis.KeysValues) string {
	return fmt.Sprintf("%d beams share each prompt: each beam is a sequence with its own copy of the prompt", kv.Beams)
}

// recordedKVFigures are the bars, the course and the block map of each memory for keys and values.
func RecordedFigures(_ *analysis.Result, d *analysis.DeviceResult) []figure.Figure {
	var figures []figure.Figure
	for i, k := range recordedKV(d) {
		name := "kv"
		if i > 0 {
			name = fmt.Sprintf("kv%d", i+1)
		}
		bars := kvBarsFigure(k)
		bars.Name, bars.Subtitle = name+"-policies", recordedKVLine(d.KV[i])+" · "+recordedKVBatch(d.KV[i])
		course := kvCourseFigure(k, k.Results[0])
		course.Name = name + "-course"
		figures = append(figures, bars, course)
		if k.Results[0].Map != nil {
			blocks := kvMapFigure(k, k.Results[0])
			blocks.Name = name + "-blocks"
			figures = append(figures, blocks)
		}
	}
	return figures
}

// jsonRecordedKV is a memory for keys and values, as KVJSON has one that is simulated, and what
// the recording says of it. The first of its policies is what was recorded.
type JSONRecorded struct {
	Engine string  `json:"engine"`
	Block  *int64  `json:"block"`
	Caches int64   `json:"caches"`
	Beams  *int64  `json:"beams"` // of each prompt
	Fault  *string `json:"fault"`
	jsonKV
}

func RecordedJSON(d *analysis.DeviceResult) []JSONRecorded {
	var all []JSONRecorded
	for i, k := range recordedKV(d) {
		kv := d.KV[i]
		out := JSONRecorded{Engine: kv.Engine, Caches: kv.Caches, jsonKV: newJSONKV(k)}
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
