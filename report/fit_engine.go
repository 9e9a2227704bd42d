package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/memprof/memprof/analysis/fit"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
)

// EngineSections are the memory of the card after an engine's start, its graphs, and what to type.
func EngineSections(p *fit.Plan) []layout.Section {
	sections := []layout.Section{engineCard(p)}
	if len(p.Lists) > 0 {
		sections = append(sections, engineGraphs(p))
	}
	last := engineSettings(p)
	last.Last = true
	return append(sections, last)
}

// engineCard divides the card.
func engineCard(p *fit.Plan) layout.Section {
	s := layout.Section{Title: "What the engine's start takes of the card"}
	s.Before = layout.Note(fmt.Sprintf("%s, device %d: as PyTorch's own allocator would serve it", plain.Shorten(p.Process, 32), p.Device))
	s.Columns = []layout.Column{layout.Words("part"), layout.Numbers("bytes"), layout.Numbers("of the card"), layout.Words("meaning")}
	sizes := "all sizes, as recorded"
	if p.Predicted {
		sizes = "all sizes, from the first captured"
	}
	driver := "context, code, unexplained"
	if p.DriverUnknown != "" {
		driver = "context, code, recorded graphs, unexplained"
	}
	phase := ""
	if p.Fails != nil && p.Fails.Phase != "" {
		phase = " in phase " + plain.Shorten(p.Fails.Phase, 24)
	}
	for _, part := range []struct {
		name    string
		bytes   int64
		meaning string
	}{
		{"weights", p.Weights, "and buffers: what stays"},
		{"workspaces", p.Workspaces, "of cuBLAS"},
		{"activations", p.Activations, "reserved at most beside what stays" + phase},
		{"graphs", p.Graphs, "pools, " + sizes},
		{"driver, for graphs", p.DriverGraphs, sizes},
		{"NCCL", p.NCCL, ""},
		{"other libraries", p.Libraries, ""},
		{"driver", p.Driver, driver},
		{"other processes", p.Others, ""},
		{"left for KV", p.Left, fmt.Sprintf("recorded: %s", plain.FormatSize(p.Recorded))},
	} {
		if part.bytes == 0 && part.name != "left for KV" {
			continue
		}
		s.Rows = append(s.Rows, layout.Row(part.name, fitMargin(part.bytes), plain.FormatPercent(plain.Ratio(part.bytes, p.Total)), part.meaning))
	}
	s.Total = layout.Toned(layout.Strong, layout.Row("= card", plain.FormatSize(p.Total), "100%", ""))
	return s
}

// engineGraphs are the lists of graphs, with what vLLM's formula says.
func engineGraphs(p *fit.Plan) layout.Section {
	s := layout.Section{Title: "CUDA graphs of all sizes", Columns: []layout.Column{
		layout.Words("list"), layout.Numbers("sizes"), layout.Numbers("captured"), layout.Numbers("own pool"), layout.Numbers("by the first three"),
		layout.Numbers("vLLM's estimate"),
	}}
	for i := range p.Lists {
		l := &p.Lists[i]
		three := plain.Absent
		if l.FromThree >= 0 {
			three = plain.FormatSize(l.FromThree)
		}
		sizes, captured := int64(max(len(l.Sizes), l.Captured)), int64(l.Captured)
		s.Rows = append(s.Rows, layout.Row(plain.Shorten(l.Name, 20), plain.FormatCount(sizes), plain.FormatCount(captured),
			plain.FormatSize(l.Bytes), three, plain.FormatSize(l.Linear)))
		if l.Why != "" && len(s.After) < 3 {
			s.After = append(s.After, layout.Note(plain.Shorten(l.Name, 20)+": "+plain.Shorten(l.Why, 160))...)
		}
	}
	s.Total = layout.Toned(layout.Strong, layout.Row("= together", "", "", plain.FormatSize(p.Graphs), "", plain.FormatSize(p.Linear)))
	s.After = append(s.After, layout.Row("vLLM's estimate: the first graph, and for each other one what the second took, at least 1 MiB;",
		"graphs of one pool reuse its memory")...)
	return s
}

// engineSettings are what to type.
func engineSettings(p *fit.Plan) layout.Section {
	s := layout.Section{Title: "What to type", Columns: []layout.Column{
		layout.Words("engine"), layout.Words("setting"), layout.Numbers("KV cache"), layout.Numbers("margin"),
	}}
	margin := func(kv int64) string { return fitMargin(p.Left - kv) }
	row := func(engine, setting string, kv int64) {
		s.Rows = append(s.Rows, layout.Row(engine, setting, plain.FormatSize(kv), margin(kv)))
	}
	share := func(of fit.Setting) string { return strconv.FormatFloat(of.Value, 'f', 4, 64) }
	row("vLLM", "--kv-cache-memory-bytes "+strconv.FormatInt(p.KV, 10), p.KV)
	row("vLLM", "--gpu-memory-utilization "+share(p.Utilization), p.Utilization.KV)
	row("vLLM, no estimate", "--gpu-memory-utilization "+share(p.Plain), p.Plain.KV)
	row("SGLang", "--mem-fraction-static "+share(p.Static), p.Static.KV)
	if p.Tokens > 0 {
		text := fmt.Sprintf("tokens of KV: %s, of %s bytes each", plain.FormatCount(p.Tokens), plain.FormatCount(p.Token))
		s.After = append(s.After, layout.Cell{Text: text, Tone: layout.Strong})
	}
	if p.Sequences > 0 {
		text := fmt.Sprintf("max_num_seqs: %d, the largest graph", p.Sequences)
		if p.Tokens > 0 {
			text += fmt.Sprintf("; each then has room for %s tokens", plain.FormatCount(p.Tokens/p.Sequences))
		}
		s.After = append(s.After, layout.Cell{Text: text, Tone: layout.Strong})
	}
	for i := range p.Lists {
		if sizes := p.Lists[i].Sizes; len(sizes) > 0 && i < 4 {
			s.After = append(s.After, layout.Note("capture sizes, "+plain.Shorten(p.Lists[i].Name, 20)+": "+spans(sizes))...)
		}
	}
	if p.Utilization.Capped {
		s.After = append(s.After, layout.Cell{Tone: layout.Warned, Text: fmt.Sprintf(
			"vLLM refuses more than --gpu-memory-utilization %s, of which its estimate of graphs leaves less: "+
				"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0 takes none off", share(p.Utilization))})
	}
	if f := p.Fails; f != nil {
		what := fmt.Sprintf("a request of %s (event %s)", plain.FormatSize(f.Bytes), plain.FormatCount(f.Seq))
		if f.Phase != "" {
			what += " like that in phase " + plain.Shorten(f.Phase, 24)
		}
		s.After = append(s.After, layout.Note("with more than what is left, "+what+" fails first, when all graphs are captured")...)
	}
	kept := fmt.Sprintf("margin: of what is left; %s are kept for PyTorch's rounding of the cache", plain.FormatSize(p.Margin))
	if p.Predicted {
		kept += ", 2 % of the graphs, and steps by which the driver's memory was seen to grow"
	}
	s.After = append(s.After, layout.Cell{Tone: layout.Faint, Text: kept})
	if p.OwnUnknown {
		s.After = append(s.After, layout.Cell{
			Tone: layout.Warned, Text: "the card has what NVML says, of which the driver keeps a part for itself: --card with the total capacity that PyTorch names",
		})
	}
	if p.Predicted && p.DriverUnknown != "" {
		s.After = append(s.After, layout.Cell{
			Tone: layout.Warned, Text: "not counted: what the driver keeps for graphs that were not captured; leave room for it: " + p.DriverUnknown,
		})
	}
	return s
}

// spans writes sizes as numbers and ranges: 1, 2, 4, 8..248 by 8.
func spans(sizes []int64) string {
	sizes = slices.Sorted(slices.Values(sizes))
	var words []string
	for i := 0; i < len(sizes); {
		end := i + 1
		for end+1 < len(sizes) && sizes[end+1]-sizes[end] == sizes[i+1]-sizes[i] {
			end++
		}
		if end-i >= 2 && end < len(sizes) {
			words = append(words, fmt.Sprintf("%d..%d by %d", sizes[i], sizes[end], sizes[i+1]-sizes[i]))
			i = end + 1
			continue
		}
		words = append(words, strconv.FormatInt(sizes[i], 10))
		i++
	}
	return strings.Join(words, ", ")
}

// EngineJSON writes the plan as one indented JSON object. It fails only if w does.
func EngineJSON(w io.Writer, p *fit.Plan) error { return plain.WriteJSON(w, p) }
