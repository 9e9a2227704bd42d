package fit

import (
	"io"
	"maps"
	"slices"

	"github.com/memprof/memprof/analysis/fit"
	"github.com/memprof/memprof/analysis/plain"
)

func devices(p *fit.Measured) []int32 { return slices.Sorted(maps.Keys(p.Devices)) }

// JSON writes the answer as one indented JSON object. It fails only if w does.
func JSON(w io.Writer, r *Result) error {
	out := jsonResult{Headroom: r.Headroom, Processes: []jsonProcess{}, Cards: []jsonCard{}, Helps: Helps(r)}
	if out.Helps == nil {
		out.Helps = []string{}
	}
	if recorded := r.recorded(); r.Card != "" {
		out.Card = &jsonAsked{r.Card, r.Bytes}
	} else if recorded > 0 {
		out.Card = &jsonAsked{"recorded", recorded}
	}
	for i := range r.Processes {
		p := &r.Processes[i]
		for _, number := range devices(p) {
			d := p.Devices[number]
			line := jsonProcess{Process: p.Name, Failed: p.Failed, Device: number, Driver: d.Driver, Libraries: d.Libraries, Measured: d.Measured}
			if d.Measured {
				line.Unexplained = &d.Unexplained
			}
			if d.Total > 0 {
				line.Total = &d.Total
			}
			out.Processes = append(out.Processes, line)
		}
	}
	for i := range r.Rows {
		out.Cards = append(out.Cards, newJSONCard(r, i))
	}
	if r.Scale != nil {
		out.Scale = newJSONScale(r.Scale)
	}
	return plain.WriteJSON(w, out)
}

type jsonResult struct {
	Card      *jsonAsked    `json:"card"` // that was asked about, or the recorded one; null if not known
	Headroom  int64         `json:"headroom_bytes"`
	Processes []jsonProcess `json:"processes"`
	Cards     []jsonCard    `json:"cards"`
	Helps     []string      `json:"helps"`
	Scale     *jsonScale    `json:"scale"`
}

type jsonAsked struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

type jsonProcess struct {
	Process     string `json:"process"`
	Failed      int64  `json:"failed_requests"` // of the process, in the recording
	Device      int32  `json:"device"`
	Total       *int64 `json:"total_bytes"`
	Driver      int64  `json:"driver_overhead_bytes"`
	Unexplained *int64 `json:"unexplained_bytes"`
	Libraries   int64  `json:"other_libraries_bytes"`
	Measured    bool   `json:"measured"`
}

// jsonCard is the least card under one allocator.
type jsonCard struct {
	Allocator string       `json:"allocator"` // "torch" or "memprof"
	Setting   string       `json:"setting"`   // of torch: "native", or the text of PYTORCH_CUDA_ALLOC_CONF
	Policy    string       `json:"policy"`    // of memprof: a preset
	Process   string       `json:"process"`   // that needs most
	Least     int64        `json:"least_bytes"`
	Error     *int64       `json:"least_error_bytes"`              // with --scale
	From      *int64       `json:"least_from_bytes"`               // least that it is found to complete on; with --scale, that the recordings do not rule out
	To        *int64       `json:"least_to_bytes"`                 // likewise the greatest; null without --scale
	Without   *int64       `json:"least_without_workspaces_bytes"` // if it does without workspaces that fail; null where others fail first
	Requested *int64       `json:"requested_and_others"`           // null with --scale
	Reserved  *int64       `json:"reserved_without_a_limit"`       // null with --scale
	Fits      *bool        `json:"fits"`                           // on the card that was asked about, or the recorded one; null if not known
	Margin    *int64       `json:"margin_bytes"`                   // below 0: lacking
	Failing   *jsonFailing `json:"failing_request"`
}

type jsonFailing struct {
	Seq       int64  `json:"seq"`
	Device    int32  `json:"device"`
	Bytes     int64  `json:"bytes"`
	Outside   bool   `json:"outside_allocator"`
	Context   string `json:"context"`
	Iteration *int64 `json:"iteration"`
	Reserved  int64  `json:"reserved_bytes"`
	Others    int64  `json:"others_bytes"`
}

func newJSONCard(r *Result, at int) jsonCard {
	row := &r.Rows[at]
	out := jsonCard{Allocator: row.Allocator.Allocator, Setting: row.Setting, Policy: row.Policy, Process: row.Process, Least: row.Bytes}
	if r.Scale != nil {
		line := &r.Scale.Rows[at]
		out.Error = plain.Known(line.Error)
		if line.Greatest > 0 {
			out.From, out.To = &line.Least, &line.Greatest
		}
	} else {
		out.From = &row.Lowest
		out.Requested, out.Reserved = &row.Requested, &row.Reserved
	}
	if row.Without > 0 {
		out.Without = &row.Without
	}
	switch recorded := r.recorded(); {
	case r.Card != "":
		left := r.Bytes - row.Bytes
		out.Fits, out.Margin = &row.Fits, &left
	case recorded > 0:
		left := recorded - row.Bytes
		fits := left >= 0
		out.Fits, out.Margin = &fits, &left
	}
	if why := row.Why; why != nil {
		out.Failing = &jsonFailing{why.Seq, why.Device, why.Bytes, why.Outside, why.Context, plain.Known(why.Iteration), why.Reserved, why.Others}
	}
	return out
}

type jsonScale struct {
	Name       string       `json:"name"`
	Factor     float64      `json:"factor"`
	Sizes      []float64    `json:"sizes"`
	Size       float64      `json:"size"`
	Replayed   bool         `json:"replayed"` // the requests; otherwise the answer is on lines through those of the recordings
	Unsure     jsonUnsure   `json:"unsure"`
	Categories []jsonScaled `json:"categories"`
}

// jsonUnsure is of requests whose bytes at the size do not follow from the recordings.
type jsonUnsure struct {
	Requests   int64  `json:"requests"`
	Workspaces int64  `json:"workspaces"`        // of them: freed at once
	Least      int64  `json:"widest_from_bytes"` // of the one whose bytes are least certain
	Greatest   int64  `json:"widest_to_bytes"`
	Origin     string `json:"widest_context"`
}

// jsonScaled is a category of live memory at the peak: fixed + per_unit x size.
type jsonScaled struct {
	Category  string  `json:"category"`
	Bytes     []int64 `json:"bytes"` // by recording
	Fixed     float64 `json:"fixed_bytes"`
	PerUnit   float64 `json:"bytes_per_unit"`
	Predicted int64   `json:"predicted_bytes"`
	Error     *int64  `json:"error_bytes"`
}

func newJSONScale(s *Scale) *jsonScale {
	out := &jsonScale{Name: s.Name, Factor: s.Factor, Sizes: s.Sizes, Size: s.Size, Replayed: s.Replayed, Unsure: jsonUnsure(s.Unsure), Categories: []jsonScaled{}}
	for i := range s.Categories {
		c := &s.Categories[i]
		out.Categories = append(out.Categories, jsonScaled{c.Name, c.Bytes, c.Fixed, c.PerUnit, c.Predicted, plain.Known(c.Error)})
	}
	return out
}
