package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/memprof/memprof/analysis/oomtext"
	"github.com/memprof/memprof/analysis/plain"
)

// ExplainLines is the most lines of [ExplainText].
const ExplainLines = 15

// Advice is one thing to do about an out-of-memory error, and the command that does it, or shows that it is needed.
type Advice struct {
	Text    string `json:"text"`
	Command string `json:"command"`
}

// jsonExplain is what `memprof explain --json` prints. Figures are bytes, null where the text does not tell them.
type jsonExplain struct {
	*oomtext.Finding
	Advice []Advice `json:"advice"`
}

// ExplainJSON writes what an error text says as one indented JSON object. It fails only if w does.
func ExplainJSON(w io.Writer, f *oomtext.Finding) error {
	return plain.WriteJSON(w, jsonExplain{f, ExplainAdvice(f)})
}

// ExplainText writes what an error text says in at most [ExplainLines] lines: the refusal, whose bytes fill the device, the verdict
// and why, and what to do. It fails only if w does.
func ExplainText(w io.Writer, f *oomtext.Finding) error {
	lines := []string{explainHead(f)}
	if rows := explainBytes(f); len(rows) > 0 {
		lines = append(append(append(lines, ""), rows...), "")
	}
	lines = append(lines, string(f.Verdict)+": "+explainWhy(f))
	for _, a := range ExplainAdvice(f) {
		if len(lines)+2 > ExplainLines {
			break
		}
		lines = append(lines, "- "+a.Text, "    "+a.Command)
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(w, plain.Text(line)); err != nil {
			return err
		}
	}
	return nil
}

// explainHead says which request was refused, by whom, and where the text says so.
func explainHead(f *oomtext.Finding) string {
	text := fmt.Sprintf("line %s, %s: ", plain.FormatCount(int64(f.Line)), f.Framework)
	switch {
	case f.Requested != nil && f.Kind == oomtext.StartupFree:
		text += plain.FormatSize(*f.Requested) + " must be free at the start"
	case f.Requested != nil && f.Kind == oomtext.KVLength:
		text += plain.FormatSize(*f.Requested) + " of KV cache are needed"
	case f.Requested != nil:
		text += "a request of " + plain.FormatSize(*f.Requested) + " was refused"
	default:
		text += "a request was refused; the text does not tell its size"
	}
	if f.Device != "" {
		text += " on device " + f.Device
	}
	if f.Errors > 1 {
		text += fmt.Sprintf(" (first of %s)", plain.Counted(int64(f.Errors), "error"))
	}
	return text
}

// explainBytes is whose bytes fill the device, a row each.
func explainBytes(f *oomtext.Finding) []string {
	if f.Dump != nil {
		return explainDump(f)
	}
	framework := map[oomtext.Framework]string{oomtext.Torch: "PyTorch"}[f.Framework]
	if framework == "" {
		framework = "the allocator"
	}
	var rows []string
	add := func(name string, bytes *int64) {
		if bytes == nil {
			return
		}
		row := fmt.Sprintf("  %-34s %10s", name, plain.FormatSize(*bytes))
		if f.Total != nil && *f.Total > 0 {
			row += fmt.Sprintf(" %7s", plain.FormatPercent(plain.Ratio(*bytes, *f.Total)))
		}
		rows = append(rows, row)
	}
	add("live in "+framework, f.Allocated)
	add("cached by "+framework+", not live", f.ReservedUnallocated)
	if n := f.Outside(); n > 0 {
		add("this process, outside "+framework, &n)
	}
	add("other processes", f.OtherProcesses)
	if n := f.Unlisted(); n > 0 && n >= *f.Total/100 {
		add("whose, the text does not tell", &n)
	}
	add("free", f.Free)
	add("device", f.Total)
	return rows
}

// explainDump is what a BFC allocator has, and how its free bytes lie.
func explainDump(f *oomtext.Finding) []string {
	d := f.Dump
	row := func(name string, bytes int64, remark string) string {
		return strings.TrimRight(fmt.Sprintf("  %-34s %10s %7s  %s", name, plain.FormatSize(bytes), plain.FormatPercent(plain.Ratio(bytes, d.Limit)), remark), " ")
	}
	inside := ""
	if n := d.Internal(); n >= 0 {
		inside = plain.FormatSize(n) + " of them inside chunks, not requested"
	}
	rows := []string{row("live chunks", d.InUse, inside)}
	remark := ""
	if d.FreeChunks > 0 {
		remark = fmt.Sprintf("%s listed, the largest %s", plain.Counted(int64(d.FreeChunks), "chunk"), plain.FormatSize(d.LargestFree))
	}
	rows = append(rows, row("free chunks", d.Free(), remark))
	if d.Unmapped > 0 {
		rows = append(rows, row("not mapped, by the limit", d.Unmapped, ""))
	}
	rows = append(rows, row("limit of the allocator", d.Limit, "peak in use "+plain.FormatSize(d.PeakInUse)))
	if f.Total != nil && f.Free != nil && *f.Total != d.Limit {
		rows = append(rows, fmt.Sprintf("  %-34s %10s          %s were free at the start", "device", plain.FormatSize(*f.Total), plain.FormatSize(*f.Free)))
	}
	return rows
}

// explainWhy is the reason for the verdict, in figures of the text.
func explainWhy(f *oomtext.Finding) string {
	size := func(figure *int64) string {
		if figure == nil {
			return plain.Absent
		}
		return plain.FormatSize(*figure)
	}
	switch f.Verdict {
	case oomtext.Fragmentation:
		return fmt.Sprintf("%s are reserved and not live, more than the request, in pieces that are too small", size(f.ReservedUnallocated))
	case oomtext.OtherProcess:
		return explainOthers(f)
	case oomtext.OutsideFramework:
		return fmt.Sprintf("this process has %s outside the framework: CUDA contexts, NCCL, graphs, libraries", plain.FormatSize(f.Outside()))
	case oomtext.Limit:
		return explainLimit(f)
	case oomtext.BugSize:
		return "no device has that much: the size is wrong, a negative or garbled dimension"
	case oomtext.NotGPU:
		if f.Vendor != "" {
			return "the device is not CUDA's, but " + f.Vendor + "'s"
		}
		return "the memory of the host ran out, not the GPU's"
	case oomtext.Capacity:
		return explainCapacity(f)
	}
	switch {
	case f.Dump != nil:
		return "the allocator's limit has room, and the driver refused: the text does not tell who holds the device"
	case f.Free != nil && f.Requested != nil && *f.Free >= *f.Requested:
		return fmt.Sprintf("%s were free: the text does not tell why the request was refused", size(f.Free))
	case f.Kind == oomtext.Library:
		return "a library's own request, outside the framework; the text does not tell who holds the device"
	}
	return "the text does not tell who holds the device"
}

func explainOthers(f *oomtext.Finding) string {
	switch {
	case f.Kind == oomtext.StartupFree || f.Framework == oomtext.TensorFlow || f.Framework == oomtext.JAX:
		return fmt.Sprintf("%s of %s were taken before this process began", plain.FormatSize(*f.Total-*f.Free), plain.FormatSize(*f.Total))
	case f.ThisProcess == nil && f.OtherProcesses == nil:
		return plain.FormatSize(f.Unlisted()) + " are not PyTorch's of this process: another process's, or this one's libraries"
	case f.OtherProcesses == nil || f.Unlisted() > *f.OtherProcesses:
		return plain.FormatSize(f.Unlisted()) + " are held by processes that the text does not list"
	}
	return plain.FormatSize(*f.OtherProcesses) + " are held by other processes, more than was missing"
}

func explainLimit(f *oomtext.Finding) string {
	if f.Dump != nil {
		return "the allocator's limit is far below what the device had free"
	}
	switch f.Kind {
	case oomtext.KVBlocks:
		return "the fraction of the device that vLLM may use ends before its KV cache"
	case oomtext.KVLength:
		return "vLLM's KV cache does not hold one sequence of the greatest length"
	case oomtext.StartupFree:
		return fmt.Sprintf("vLLM may use a little more than the %s that are free", plain.FormatSize(*f.Free))
	case oomtext.WarmUp:
		return "vLLM's KV cache left too little for the sampler"
	case oomtext.StaticPool:
		return "the fraction for weights and KV cache ends with the weights"
	case oomtext.GraphCapture:
		return "weights and KV cache left too little for CUDA graphs"
	case oomtext.TokenPool:
		return "the KV cache has too few free slots for the batch"
	case oomtext.PrefillTokens:
		return "the batch of the setting does not fit"
	case oomtext.ArenaLimit:
		return "the allocator's own limit is reached"
	}
	return fmt.Sprintf("the process may have %s; the device has %s free", plain.FormatSize(*f.Allowed), plain.FormatSize(*f.Free))
}

func explainCapacity(f *oomtext.Finding) string {
	live, total := f.Allocated, f.Total
	switch {
	case f.Framework == oomtext.JAX && f.Dump == nil:
		return "XLA's plan of the program needs more than the device has"
	case f.Requested != nil && total != nil && *f.Requested > *total:
		return "the request alone is larger than the device"
	case live != nil && total != nil && *live > *total && f.Dump == nil:
		return "more is live than the device has: the driver has moved bytes to the host's memory"
	case f.Requested != nil && total != nil && *f.Requested >= *total/5:
		return fmt.Sprintf("one request of %s of the device, and too little beside what is live", plain.FormatPercent(plain.Ratio(*f.Requested, *total)))
	}
	return "what is live fills it, and what is free and cached would not hold the request"
}
