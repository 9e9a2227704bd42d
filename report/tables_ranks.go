package report

import (
	"fmt"
	"math"

	"github.com/memprof/memprof/analysis"
)

// ranksSection sets processes and their devices side by side where there are several.
func ranksSection(results []*analysis.Result) (section, bool) {
	ranks := analysis.CompareRanks(results)
	s := section{
		title: "Side by side",
		columns: []column{
			words("process"), numbers("GPU"), numbers("requested"), numbers("reserved"), numbers("internal"),
			numbers("reserve"), numbers("external"), numbers("left"), numbers("failed"),
		},
		after: note("at each device's peak instant; internal, reserve and external as shares of reserved"),
	}
	for i := range ranks.Rows {
		line := rankRow(&ranks.Rows[i])
		if i == ranks.First {
			line[7].tone = warned
		}
		s.rows = append(s.rows, line)
	}
	s.elide(24, 8)
	s.after = append(s.after, ranksNotes(ranks)...)
	return s, len(ranks.Rows) > 1
}

func rankRow(rank *analysis.Rank) []cell {
	d := rank.Device
	left := absent
	if rank.Left >= 0 {
		left = FormatSize(rank.Left)
	}
	return row(shorten(rank.Process, 15), formatCount(int64(d.Device)), FormatSize(d.Peak.T), FormatSize(d.Peak.R),
		FormatPercent(knownRatio(d.Peak.Internal(), d.Peak.R)), FormatPercent(chunkShare(d, d.Peak.Reserve)),
		FormatPercent(chunkShare(d, d.Peak.External)), left, formatCount(d.OOMCount))
}

// ranksNotes are what the rows amount to.
func ranksNotes(ranks *analysis.Ranks) []cell {
	var notes []cell
	for _, part := range []struct {
		name string
		of   analysis.Imbalance
	}{{"reserved", ranks.Reserved}, {"requested", ranks.Requested}} {
		if text, ok := imbalanceText(ranks, part.of); ok {
			notes = append(notes, cell{text: fmt.Sprintf("imbalance of %s (greatest ÷ mean): %s", part.name, text)})
		}
	}
	if ranks.First >= 0 && len(ranks.Rows) > 1 {
		first := &ranks.Rows[ranks.First]
		notes = append(notes,
			cell{text: fmt.Sprintf("out first: %s, with %s of %s left on GPU %d", shorten(first.Process, 24), FormatSize(first.Left), FormatSize(first.Device.Total), first.Device.Device), tone: strong},
			cell{text: "left: of the card, beside the most in use: what the driver told, else reserved and other libraries"})
	}
	return notes
}

// imbalanceText is like "1.25 over 4 ranks, rank3 has 12 GiB".
func imbalanceText(ranks *analysis.Ranks, of analysis.Imbalance) (string, bool) {
	value, ok := of.Ratio()
	if !ok {
		return "", false
	}
	return fmt.Sprintf("%.2f over %d, %s has %s", value, of.Ranks, shorten(ranks.Rows[of.Row].Process, 24), FormatSize(of.Most)), true
}

// jsonRanks is the comparison of all processes; its imbalances are null with fewer than
// two ranks, first_out where no card's memory is known.
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
	Used      int64     `json:"used"` // of the card, by all processes on it at the time
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
	ranks := analysis.CompareRanks(results)
	out := jsonRanks{Rows: []jsonRank{}, Reserved: newJSONImbalance(ranks, ranks.Reserved), Requested: newJSONImbalance(ranks, ranks.Requested)}
	for i := range ranks.Rows {
		row := &ranks.Rows[i]
		d := row.Device
		line := jsonRank{
			Process: row.Process, Rank: known(int64(row.Number)), Device: d.Device, Requested: d.MaxT, Reserved: d.MaxR,
			Waste: newJSONWaste(d), Used: row.Used, Left: known(row.Left), OOMs: d.OOMCount,
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

func newJSONImbalance(ranks *analysis.Ranks, of analysis.Imbalance) *jsonImbalance {
	value, ok := of.Ratio()
	if !ok {
		return nil
	}
	return &jsonImbalance{value, of.Ranks, int64(math.Round(of.Mean)), of.Most, ranks.Rows[of.Row].Process}
}
