package report

import (
	"fmt"
	"math"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/compare"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
)

// ranksSection compares the devices of several processes. There is none for one device.
func ranksSection(results []*analysis.Result) (layout.Section, bool) {
	ranks := compare.CompareRanks(results)
	s := layout.Section{
		Title: "Ranks",
		Columns: []layout.Column{
			layout.Words("process"), layout.Numbers("GPU"), layout.Numbers("requested"), layout.Numbers("reserved"), layout.Numbers("internal"),
			layout.Numbers("reserve"), layout.Numbers("external"), layout.Numbers("left"), layout.Numbers("failed"),
		},
		After: layout.Note("at the peak of each device; internal, reserve and external are shares of reserved; failed: requests"),
	}
	for i := range ranks.Rows {
		line := rankRow(&ranks.Rows[i])
		if i == ranks.First {
			line[7].Tone = layout.Warned
		}
		s.Rows = append(s.Rows, line)
	}
	s.Elide(24, 8)
	s.After = append(s.After, ranksNotes(ranks)...)
	return s, len(ranks.Rows) > 1
}

func rankRow(rank *compare.Rank) []layout.Cell {
	d := rank.Device
	left := plain.Absent
	if rank.Left >= 0 {
		left = plain.FormatSize(rank.Left)
	}
	return layout.Row(plain.Shorten(rank.Process, 15), plain.FormatCount(int64(d.Device)), plain.FormatSize(d.Peak.T), plain.FormatSize(d.Peak.R),
		plain.FormatPercent(plain.KnownRatio(d.Peak.Internal(), d.Peak.R)), plain.FormatPercent(chunkShare(d, d.Peak.Reserve)),
		plain.FormatPercent(chunkShare(d, d.Peak.External)), left, plain.FormatCount(d.OOMCount))
}

// ranksNotes give the imbalance and the device that runs out of memory first.
func ranksNotes(ranks *compare.Ranks) []layout.Cell {
	var notes []layout.Cell
	for _, part := range []struct {
		name string
		of   compare.Imbalance
	}{{"reserved", ranks.Reserved}, {"requested", ranks.Requested}} {
		if text, ok := imbalanceText(ranks, part.of); ok {
			notes = append(notes, layout.Cell{Text: fmt.Sprintf("imbalance of %s (max / mean, lower is better): %s", part.name, text)})
		}
	}
	if ranks.First >= 0 && len(ranks.Rows) > 1 {
		first := &ranks.Rows[ranks.First]
		notes = append(notes,
			layout.Cell{Text: fmt.Sprintf("first to run out: %s, with %s of %s left on GPU %d", plain.Shorten(first.Process, 24), plain.FormatSize(first.Left), plain.FormatSize(first.Device.Total), first.Device.Device), Tone: layout.Strong},
			layout.Cell{Text: "left: GPU memory minus the most used, as the driver reports it, else reserved and other libraries"})
	}
	return notes
}

// imbalanceText is like "1.25 over 4, rank3 has 12 GiB".
func imbalanceText(ranks *compare.Ranks, of compare.Imbalance) (string, bool) {
	value, ok := of.Ratio()
	if !ok {
		return "", false
	}
	return fmt.Sprintf("%.2f over %d, %s has %s", value, of.Ranks, plain.Shorten(ranks.Rows[of.Row].Process, 24), plain.FormatSize(of.Most)), true
}

// jsonRanks compares all processes. Imbalances are null for fewer than two ranks, first_out if the memory
// of no GPU is known.
type jsonRanks struct {
	Rows      []jsonRank     `json:"rows"`
	Reserved  *jsonImbalance `json:"imbalance_reserved"`
	Requested *jsonImbalance `json:"imbalance_requested"`
	FirstOut  *jsonFirstOut  `json:"first_out"`
}

type jsonRank struct {
	Process   string    `json:"process"`
	Rank      *int64    `json:"rank"`
	Device    int32     `json:"device"`
	Requested int64     `json:"max_requested"`
	Reserved  int64     `json:"max_reserved"`
	Waste     jsonWaste `json:"waste"`
	Used      int64     `json:"used"` // on the GPU at the time, by all processes
	Total     *int64    `json:"total"`
	Left      *int64    `json:"left"`
	OOMs      int64     `json:"ooms"`
}

type jsonImbalance struct {
	Ratio   float64 `json:"ratio"`
	Ranks   int     `json:"ranks"`
	Mean    int64   `json:"mean"`
	Most    int64   `json:"most"`
	Process string  `json:"process"`
}

type jsonFirstOut struct {
	Process string `json:"process"`
	Device  int32  `json:"device"`
	Left    int64  `json:"left"`
}

func newJSONRanks(results []*analysis.Result) jsonRanks {
	ranks := compare.CompareRanks(results)
	out := jsonRanks{Rows: []jsonRank{}, Reserved: newJSONImbalance(ranks, ranks.Reserved), Requested: newJSONImbalance(ranks, ranks.Requested)}
	for i := range ranks.Rows {
		row := &ranks.Rows[i]
		d := row.Device
		line := jsonRank{
			Process: row.Process, Rank: plain.Known(int64(row.Number)), Device: d.Device, Requested: d.MaxT, Reserved: d.MaxR,
			Waste: newJSONWaste(d), Used: row.Used, Left: plain.Known(row.Left), OOMs: d.OOMCount,
		}
		if d.Total > 0 {
			line.Total = &d.Total
		}
		out.Rows = append(out.Rows, line)
	}
	if ranks.First >= 0 {
		first := &ranks.Rows[ranks.First]
		out.FirstOut = &jsonFirstOut{first.Process, first.Device.Device, first.Left}
	}
	return out
}

func newJSONImbalance(ranks *compare.Ranks, of compare.Imbalance) *jsonImbalance {
	value, ok := of.Ratio()
	if !ok {
		return nil
	}
	return &jsonImbalance{value, of.Ranks, int64(math.Round(of.Mean)), of.Most, ranks.Rows[of.Row].Process}
}
