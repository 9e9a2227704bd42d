package report

import (
	"math"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/plain"
	"github.com/memprof/memprof/report/units"
)

// iterationNumber is the number of the iteration with an index, if there is one: events after the
// last mark belong to none.
func iterationNumber(d *analysis.DeviceResult, index int) (int64, bool) {
	return d.IterationNumber(index)
}

// peakSections shows the greatest values, each at its own moment, and the shares the literature
// and the frameworks derive from them.
func peakSections(d *analysis.DeviceResult) []layout.Section {
	return []layout.Section{{
		Title:   "Peaks",
		Columns: []layout.Column{layout.Words("each at its own moment"), layout.Numbers("greatest"), layout.Numbers("at the end"), layout.Words("waste measure"), layout.Numbers("share")},
		Rows: [][]layout.Cell{
			layout.Row("requested (T)", units.FormatSize(d.MaxT), units.FormatSize(d.Final.T), "1 − max T / max R", units.FormatPercent(1-units.Ratio(d.MaxT, d.MaxR))),
			layout.Row("provided (C)", units.FormatKnown(d.MaxC), units.FormatKnown(d.Final.C), "1 − max C / max R", units.FormatPercent(1-units.KnownRatio(d.MaxC, d.MaxR))),
			layout.Row("reserved (R)", units.FormatSize(d.MaxR), units.FormatSize(d.Final.R), "(F − L) / F at the peak", units.FormatPercent(peakFragmentation(d))),
		},
		After: layout.Note("F: free bytes (reserved, in no chunk that is handed out); L: the largest free chunk"),
	}}
}

// peakFragmentation is the frameworks' measure at the peak instant, NaN where it is not known.
func peakFragmentation(d *analysis.DeviceResult) float64 {
	if value, ok := d.Fragmentation(); ok {
		return value
	}
	return math.NaN()
}

func newJSONInstant(d *analysis.DeviceResult, i analysis.Instant) jsonInstant {
	j := jsonInstant{
		Seq: plain.Known(i.Seq), TimeNS: plain.Known(i.Time), Iteration: jsonIterationNumber(d, i.Iteration), Live: i.Live,
		Requested: i.T, Pending: i.Pending, Provided: plain.Known(i.C), Reserved: i.R, Paused: i.Paused,
	}
	if d.Sampled != nil {
		j.Unsplit = &i.Unsplit
		return j
	}
	j.Rounding, j.Slack = &i.Rounding, &i.Slack
	j.Stranded, j.Reserve, j.Reusable, j.External = &i.Stranded, &i.Reserve, &i.Reusable, &i.External
	return j
}

func jsonIterationNumber(d *analysis.DeviceResult, index int) *int64 {
	if number, ok := iterationNumber(d, index); ok {
		return &number
	}
	return nil
}

func newJSONWaste(d *analysis.DeviceResult) jsonWaste {
	p := d.Peak
	return jsonWaste{
		Internal: plain.Finite(units.KnownRatio(p.Internal(), p.R)), Pending: plain.Finite(units.Ratio(p.Pending, p.R)),
		Stranded: plain.Finite(chunkShare(d, p.Stranded)), Reserve: plain.Finite(chunkShare(d, p.Reserve)),
		Reusable: plain.Finite(chunkShare(d, p.Reusable)), External: plain.Finite(chunkShare(d, p.External)),
		Unrequested: plain.Finite(1 - units.Ratio(d.MaxT, d.MaxR)), Unprovided: plain.Finite(1 - units.KnownRatio(d.MaxC, d.MaxR)),
		LargestFree: plain.Known(d.LargestFree), Fragmentation: plain.Finite(peakFragmentation(d)),
	}
}

// chunkShare is the share of a term that a watched allocator does not tell.
func chunkShare(d *analysis.DeviceResult, part int64) float64 {
	if d.Sampled != nil {
		return math.NaN()
	}
	return units.Ratio(part, d.Peak.R)
}

type jsonInstant struct {
	Seq       *int64 `json:"seq"`
	TimeNS    *int64 `json:"time_ns"`
	Iteration *int64 `json:"iteration"`
	Live      int64  `json:"live"`
	Requested int64  `json:"requested"`
	Rounding  *int64 `json:"rounding"`
	Slack     *int64 `json:"slack"`
	Pending   int64  `json:"pending"`
	Stranded  *int64 `json:"stranded"`
	Reserve   *int64 `json:"reserve"`
	Reusable  *int64 `json:"reusable"`
	External  *int64 `json:"external"`
	Unsplit   *int64 `json:"unsplit,omitempty"`
	Provided  *int64 `json:"provided"`
	Reserved  int64  `json:"reserved"`
	Paused    int64  `json:"paused,omitempty"`
}

// jsonWaste holds the shares of reserved at the peak instant, and the literature's measures.
type jsonWaste struct {
	Internal      *float64 `json:"internal"`
	Pending       *float64 `json:"pending"`
	Stranded      *float64 `json:"stranded"`
	Reserve       *float64 `json:"reserve"`
	Reusable      *float64 `json:"reusable"`
	External      *float64 `json:"external"`
	Unrequested   *float64 `json:"one_minus_max_requested_over_max_reserved"`
	Unprovided    *float64 `json:"one_minus_max_provided_over_max_reserved"`
	LargestFree   *int64   `json:"largest_free"`
	Fragmentation *float64 `json:"fragmentation"`
}

// jsonPeaks are the greatest values, and the instants of the peak and of the end.
type jsonPeaks struct {
	Peak         jsonInstant `json:"peak"`
	Final        jsonInstant `json:"final"`
	MaxRequested int64       `json:"max_requested"`
	MaxProvided  *int64      `json:"max_provided"`
	MaxReserved  int64       `json:"max_reserved"`
	Waste        jsonWaste   `json:"waste"`
}

func newJSONPeaks(d *analysis.DeviceResult) jsonPeaks {
	return jsonPeaks{
		Peak: newJSONInstant(d, d.Peak), Final: newJSONInstant(d, d.Final),
		MaxRequested: d.MaxT, MaxProvided: plain.Known(d.MaxC), MaxReserved: d.MaxR, Waste: newJSONWaste(d),
	}
}
