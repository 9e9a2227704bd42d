package report

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/kvcache"
)

// recordedKV are the memories for keys and values of a device, as those of a simulation are
// shown: what was recorded first, then what other policies would have done.
func recordedKV(d *analysis.DeviceResult) []*KV {
	var all []*KV
	for _, kv := range d.KV {
		k := &KV{
			Model: kv.Name, Ranks: 1, Memory: kv.Recorded.Capacity * kv.TokenBytes, BytesPerToken: kv.TokenBytes,
			Load: plural(kv.Recorded.Finished, "recorded sequence"), Results: append([]*kvcache.Result{kv.Recorded}, kv.Policies...),
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
func recordedKVSections(d *analysis.DeviceResult) []section {
	var sections []section
	for i, k := range recordedKV(d) {
		kv := d.KV[i]
		head := section{title: "Keys and values", before: append(note(recordedKVLine(kv)), note(recordedKVBatch(kv))...)}
		if kv.Beams > 1 {
			head.before = append(head.before, note(recordedKVBeams(kv))...)
		}
		if k.Model != "" {
			head.title += " of " + shorten(k.Model, 60)
		}
		if kv.Fault != "" {
			place, why, _ := strings.Cut(kv.Fault, ": ")
			fault := append(note("the engine's marks make no sense from "+place+" on:"), note(shorten(why, 98))...)
			head.before = append(head.before, toned(warned, fault)...)
		}
		if kv.Recorded.Capacity == 0 {
			sections = append(sections, head)
			continue
		}
		split := kvSplitSection(k)
		split.title = "Where the slots were: recorded, in the mean over time; by policy, over steps"
		split.after = append(split.after, note("by policy: the recorded requests, over and over, in as much memory")...)
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
	line := fmt.Sprintf("%s of %s slots at most", plural(kv.Caches, "cache"), formatCount(r.Capacity))
	if kv.Block > 0 {
		line += fmt.Sprintf(" in blocks of %d", kv.Block)
	}
	if kv.TokenBytes > 0 {
		line += fmt.Sprintf(" · %s bytes a token, %s", formatCount(kv.TokenBytes), FormatSize(r.Capacity*kv.TokenBytes))
	}
	return line
}

func recordedKVBatch(kv *analysis.KeysValues) string {
	r := kv.Recorded
	return fmt.Sprintf("%s at once in the mean, %s at most", strconv.FormatFloat(r.Batch, 'f', 2, 64), plural(r.Peak, "sequence"))
}

func recordedKVBeams(kv *analysis.KeysValues) string {
	return fmt.Sprintf("%d beams share each prompt: each beam is a sequence with its own copy of the prompt", kv.Beams)
}

// recordedKVFigures are the bars, the course and the block map of each memory for keys and values.
func recordedKVFigures(d *analysis.DeviceResult) []Figure {
	var figures []Figure
	for i, k := range recordedKV(d) {
		name := "kv"
		if i > 0 {
			name = fmt.Sprintf("kv%d", i+1)
		}
		bars := kvBarsFigure(k)
		bars.Name, bars.subtitle = name+"-policies", recordedKVLine(d.KV[i])+" · "+recordedKVBatch(d.KV[i])
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
type jsonRecordedKV struct {
	Engine string  `json:"engine"`
	Block  *int64  `json:"block"`
	Caches int64   `json:"caches"`
	Beams  *int64  `json:"beams"` // of each prompt
	Fault  *string `json:"fault"`
	jsonKV
}

func newJSONRecordedKV(d *analysis.DeviceResult) []jsonRecordedKV {
	var all []jsonRecordedKV
	for i, k := range recordedKV(d) {
		kv := d.KV[i]
		out := jsonRecordedKV{Engine: kv.Engine, Caches: kv.Caches, jsonKV: newJSONKV(k)}
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
