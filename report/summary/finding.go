package summary

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
)

// MostFindings is the greatest number of findings on a device.
const MostFindings = 6

// Finding is a change that needs less memory, by a replay of the recording with it.
type Finding struct {
	ID             string  `json:"id"`
	Bytes          int64   `json:"bytes"` // requested at the peak, that it is about
	SavesReserved  int64   `json:"saves_reserved"`
	SavesLeastCard int64   `json:"saves_least_card"`
	Command        *string `json:"command"` // null if the change is one of the job's code
	Text           string  `json:"text"`
}

// findingsOf are the savings of a device, the greatest first. For an imported snapshot of
// PyTorch's allocator, another allocator is no finding.
func findingsOf(r *analysis.Result, d *analysis.DeviceResult) []Finding {
	out, imported := []Finding{}, r.Job != nil && r.Job.Imported != nil
	for i := range d.Savings {
		v := &d.Savings[i]
		if len(out) == MostFindings || imported && v.Allocator == "memprof" {
			continue
		}
		f := Finding{ID: v.ID, Bytes: v.Bytes, SavesReserved: v.Reserved, SavesLeastCard: v.LeastCard, Text: v.Text}
		if v.Setting != "" || v.Variable != "" {
			before := v.Variable
			if v.Setting != "" {
				before = words(r, v.Allocator, v.Setting)
			}
			command := strings.TrimSpace(before + " " + jobCommand(r))
			f.Command = &command
		}
		out = append(out, f)
	}
	return out
}

// FindingSection lists the findings.
func (s *Screen) FindingSection(width int) layout.Section {
	out := layout.Section{
		Title: "Findings", Open: true,
		Columns: []layout.Column{layout.Numbers("#"), layout.Words("change"), layout.Numbers("least card"), layout.Numbers("reserved")},
	}
	room := 0
	if width > 0 {
		room = max(width, 80) - len("1") - len("9.99 GiB less") - len("9.99 GiB less") - 3*2
	}
	if len(s.Findings) == 0 {
		return layout.Section{Title: out.Title, Before: layout.Note("none: no change that was replayed needs a smaller card")}
	}
	for i := range s.Findings {
		f := &s.Findings[i]
		for k, line := range broken(f.Text, room) {
			row := layout.Row("", line, "", "")
			if k == 0 {
				row = layout.Row(strconv.Itoa(i+1), line, less(f.SavesLeastCard), less(f.SavesReserved))
			}
			row[1].Link = f.evidence()
			out.Rows = append(out.Rows, row)
		}
	}
	return out
}

// categoriesOfChanges are the categories that changes of a job's code are about, by their IDs; the others are about activations.
var categoriesOfChanges = map[string]attribution.Category{
	"use-cache": attribution.KVCache, "kv-cache": attribution.KVCache, "chunked-loss": attribution.Loss, "zero-grad": attribution.Gradients, "foreach": attribution.Temporaries,
	"fused": attribution.Temporaries, "workspace": attribution.Workspace,
}

// evidence is where a page shows what the change is about: what allocators take, or live allocations of a category.
func (f *Finding) evidence() string {
	if f.ID == "allocator" {
		return "what-it-takes-to-hold-that"
	}
	return "allocations/" + cmp.Or(categoriesOfChanges[f.ID], attribution.Activations).String()
}

// less is a number of bytes that is saved.
func less(bytes int64) string {
	switch {
	case bytes > 0:
		return plain.FormatSize(bytes) + " less"
	case bytes < 0:
		return plain.FormatSize(-bytes) + " more"
	}
	return "the same"
}
