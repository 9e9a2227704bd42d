package report

import (
	"io"

	"github.com/memprof/memprof/analysis/oomtext"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
)

// StartupJSON writes what an engine's log says of its start as one indented JSON object. It fails only if w does.
func StartupJSON(w io.Writer, s *oomtext.Startup) error {
	return plain.WriteJSON(w, struct {
		*oomtext.Startup
		Rest   *int64 `json:"rest"`
		Unused *int64 `json:"kv_tokens_unused"`
	}{s, s.Rest(), s.Unused()})
}

// StartupSection is the memory of one GPU, as far as the log tells of it.
func StartupSection(s *oomtext.Startup) layout.Section {
	section := layout.Section{
		Title:   "Memory of one GPU when " + s.Engine + " started",
		Columns: []layout.Column{layout.Words("part"), layout.Numbers("bytes"), layout.Words("")},
		After:   layout.Row("as the log says, rounded by it; of several ranks, the first that tells"),
	}
	tokens := ""
	if s.Tokens != nil {
		tokens = plain.Counted(*s.Tokens, "token")
	}
	setAside := ""
	if s.Estimated != nil {
		setAside = plain.FormatSize(*s.Estimated) + " set aside"
		if room := s.Unused(); room != nil && *room > 0 {
			setAside += ": room for " + plain.Counted(*room, "token") + " more"
		}
	}
	for _, part := range []struct {
		name  string
		bytes *int64
		note  string
	}{
		{"weights", s.Weights, ""}, {"activations", s.Activations, "peak of the profiled batch"}, {"outside PyTorch", s.Outside, ""},
		{"KV cache", s.KV, tokens}, {"CUDA graphs", s.Graphs, setAside}, {"the rest", s.Rest(), "free, or in no part"}, {"free", s.Free, "when it had started"},
	} {
		if part.bytes != nil {
			section.Rows = append(section.Rows, layout.Row(part.name, plain.FormatSize(*part.bytes), part.note))
		} else if part.note != "" && (part.name == "KV cache" || part.name == "CUDA graphs") {
			section.Rows = append(section.Rows, layout.Row(part.name, plain.Absent, part.note))
		}
	}
	if s.Total != nil {
		section.Total = layout.Row("= GPU", plain.FormatSize(*s.Total), "")
	}
	return section
}
