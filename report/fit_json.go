package report

import (
	"io"
	"maps"
	"slices"

	"github.com/memprof/memprof/analysis/fit"
	"github.com/memprof/memprof/analysis/plain"
)

func fitDevices(p *fit.Measured) []int32 { return slices.Sorted(maps.Keys(p.Devices)) }

// FitJSON writes the answer as one indented JSON object. It fails only if w does.
func FitJSON(w io.Writer, r *Fit) error {
	c := r.Compared
	out := jsonFit{
		Card: r.asked(), Processes: []jsonFitProcess{}, Rows: []jsonFitRow{}, Helps: FitHelps(r),
		Compared: jsonFitCompared{c.Process, c.Requests, c.Requested, r.requested(), c.Iterations, nil, c.LeftOut},
	}
	if ns := c.Duration.Nanoseconds(); ns > 0 {
		out.Compared.Duration = &ns
	}
	if out.Helps == nil {
		out.Helps = []string{}
	}
	for i := range r.Processes {
		p := &r.Processes[i]
		for _, fitNumber := range fitDevices(p) {
			d := p.Devices[fitNumber]
			line := jsonFitProcess{Process: p.Name, Failed: p.Failed, Device: fitNumber, Driver: d.Driver, Libraries: d.Libraries, Measured: d.Measured, Assumed: d.Assumed}
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
		out.Rows = append(out.Rows, newJSONFitRow(r, i))
	}
	return plain.WriteJSON(w, out)
}

type jsonFit struct {
	Card      *jsonFitAsked    `json:"card"` // that was asked about, or the recorded one; null if not known
	Processes []jsonFitProcess `json:"processes"`
	Compared  jsonFitCompared  `json:"compared"` // the process whose requests were replayed for what the rows reserve and cost
	Rows      []jsonFitRow     `json:"rows"`
	Helps     []string         `json:"helps"`
}

type jsonFitCompared struct {
	Process    string     `json:"process"`
	Requests   int64      `json:"requests"`
	Requested  int64      `json:"peak_requested"`
	Band       plain.Band `json:"peak_requested_band"` // what a dry run that does not know all sizes leaves open
	Iterations int64      `json:"iterations"`
	Duration   *int64     `json:"iteration_ns"`
	LeftOut    int64      `json:"left_out_arenas"`
}

// asked is the card that fits is about; nil if none is known.
func (r *Fit) asked() *jsonFitAsked {
	if r.Card != "" {
		return &jsonFitAsked{r.Card, r.Bytes}
	}
	if recorded := r.recorded(); recorded > 0 {
		return &jsonFitAsked{"recorded", recorded}
	}
	return nil
}

type jsonFitAsked struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

type jsonFitProcess struct {
	Process     string `json:"process"`
	Failed      int64  `json:"failed_requests"` // of the process, in the recording
	Device      int32  `json:"device"`
	Total       *int64 `json:"total_bytes"`
	Driver      int64  `json:"driver_overhead_bytes"`
	Unexplained *int64 `json:"unexplained_bytes"`
	Libraries   int64  `json:"other_libraries_bytes"`
	Measured    bool   `json:"measured"`
	Assumed     bool   `json:"assumed"` // driver overhead is, of the card's name
}

// jsonFitRow is a job under one allocator.
type jsonFitRow struct {
	Allocator   string          `json:"allocator"` // "torch" or "memprof"
	Setting     string          `json:"setting"`   // of torch: "native", or the text of PYTORCH_CUDA_ALLOC_CONF
	Preset      string          `json:"preset"`    // of memprof, and so are handle and trim
	Handle      uint64          `json:"handle"`    // 0: the preset's
	Trim        string          `json:"trim"`
	Peak        int64           `json:"peak_reserved"` // of the process that was compared, on the recorded device
	Band        plain.Band      `json:"peak_reserved_band"`
	Refused     int64           `json:"refused"`
	Process     string          `json:"process"` // that needs the largest card
	Least       int64           `json:"least_card"`
	LeastBand   plain.Band      `json:"least_card_band"`               // what a dry run that does not know all sizes leaves open
	From        int64           `json:"least_card_from"`               // least that it is found to complete on
	Without     *int64          `json:"least_card_without_workspaces"` // if it does without workspaces that fail; null where others fail first
	Requested   int64           `json:"requested_and_others"`
	Slowdown    *float64        `json:"slowdown"` // share of an iteration; null where its time is not known
	Calls       float64         `json:"calls"`    // of the driver that requests wait for, in a steady iteration
	Recorded    bool            `json:"recorded"`
	Recommended bool            `json:"recommended"`
	Fits        *bool           `json:"fits"`         // on the card that was asked about, or the recorded one; null if not known, or within the band
	Within      bool            `json:"within_band"`  // sizes that a dry run does not know decide whether it fits
	Margin      *int64          `json:"margin_bytes"` // below 0: lacking
	Failing     *jsonFitFailing `json:"failing_request"`
	Command     string          `json:"command"` // "": nothing to type
}

type jsonFitFailing struct {
	Seq       int64  `json:"seq"`
	Device    int32  `json:"device"`
	Bytes     int64  `json:"bytes"`
	Outside   bool   `json:"outside_allocator"`
	Context   string `json:"context"`
	Iteration *int64 `json:"iteration"`
	Reserved  int64  `json:"reserved_bytes"`
	Others    int64  `json:"others_bytes"`
}

func newJSONFitRow(r *Fit, at int) jsonFitRow {
	row, replayed := &r.Rows[at], &r.Compared.Rows[at]
	out := jsonFitRow{
		Allocator: row.Allocator.Allocator, Setting: row.Setting, Peak: r.reserved(at), Band: r.band(at), Refused: replayed.Refused,
		Process: row.Process, Least: row.Bytes, LeastBand: row.Bands.Card, From: row.Lowest, Requested: row.Requested, Calls: replayed.Calls, Recorded: replayed.Recorded,
		Recommended: at == r.Compared.Recommend(r.Rows), Command: r.command(&row.Allocator),
	}
	if row.Allocator.Allocator == "memprof" {
		out.Preset, out.Handle, out.Trim = row.Policy.Preset.String(), row.Policy.Handle, row.Policy.Trim.String()
	}
	if row.Without > 0 {
		out.Without = &row.Without
	}
	if share := r.Compared.Slowdown(at); share >= 0 {
		out.Slowdown = plain.Finite(share)
	}
	if card := r.asked(); card != nil {
		left := card.Bytes - row.Bytes
		fits := left >= 0
		if r.Card != "" {
			fits = row.Fits
		}
		if out.Margin = &left; !row.Within {
			out.Fits = &fits
		}
		out.Within = row.Within
	}
	if why := row.Why; why != nil {
		out.Failing = &jsonFitFailing{why.Seq, why.Device, why.Bytes, why.Outside, why.Context, plain.Known(why.Iteration), why.Reserved, why.Others}
	}
	return out
}
