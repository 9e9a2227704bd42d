package report

import (
	"math"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
)

// peakSections show the maxima of requested, provided and reserved, each at its own time, and the
// measures of waste that papers and frameworks derive from them.
func peakSections(d *analysis.DeviceResult) []layout.Section {
	return []layout.Section{{
		Title:   "Peaks",
		Columns: []layout.Column{layout.Words("bytes"), layout.Numbers("maximum"), layout.Numbers("at the end"), layout.Words("waste (lower is better)"), layout.Numbers("value")},
		Rows: [][]layout.Cell{
			layout.Row("requested (T)", plain.FormatSize(d.MaxT), plain.FormatSize(d.Final.T), "1 − max T / max R", plain.FormatPercent(1-plain.Ratio(d.MaxT, d.MaxR))),
			layout.Row("provided (C)", plain.FormatKnown(d.MaxC), plain.FormatKnown(d.Final.C), "1 − max C / max R", plain.FormatPercent(1-plain.KnownRatio(d.MaxC, d.MaxR))),
			layout.Row("reserved (R)", plain.FormatSize(d.MaxR), plain.FormatSize(d.Final.R), "(F − L) / F at the peak", plain.FormatPercent(peakFragmentation(d))),
		},
		After: layout.Note("each maximum at its own time; F: free bytes of the arenas; L: bytes of the largest free chunk"),
	}}
}

// peakFragmentation is (F - L)/F at the peak, from 0 to 1; NaN if it is not known.
func peakFragmentation(d *analysis.DeviceResult) float64 {
	if value, ok := d.Fragmentation(); ok {
		return value
	}
	return math.NaN()
}

// chunkShare is bytes of chunks as a share of reserved at the peak; NaN where chunks are not known.
func chunkShare(d *analysis.DeviceResult, part int64) float64 {
	return plain.KnownRatio(d.Chunks.Known(part), d.Peak.R)
}

// jsonPeaks are the maxima, the instants of the peak and of the last event, and the waste at the peak.
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
		Peak: newJSONInstant(d.Chunks, d.Peak, jsonIterationNumber(d, d.Peak.Iteration)), Final: newJSONInstant(d.Chunks, d.Final, jsonIterationNumber(d, d.Final.Iteration)),
		MaxRequested: d.MaxT, MaxProvided: plain.Known(d.MaxC), MaxReserved: d.MaxR, Waste: newJSONWaste(d),
	}
}

// jsonInstant is the state of a device right after an event, in bytes. Terms of chunks are null for the
// native allocator, which has NotRequested instead: all that is neither requested nor pending.
type jsonInstant struct {
	Seq          *int64 `json:"seq"`
	TimeNS       *int64 `json:"time_ns"`
	Iteration    *int64 `json:"iteration"`
	Live         int64  `json:"live"`
	Requested    int64  `json:"requested"`
	Rounding     *int64 `json:"rounding"`
	Slack        *int64 `json:"slack"`
	Pending      int64  `json:"pending"`
	Stranded     *int64 `json:"stranded"`
	Reserve      *int64 `json:"reserve"`
	Reusable     *int64 `json:"reusable"`
	External     *int64 `json:"external"`
	NotRequested *int64 `json:"not_requested,omitempty"`
	Provided     *int64 `json:"provided"`
	Reserved     int64  `json:"reserved"`
	Paused       int64  `json:"paused,omitempty"`
}

func newJSONInstant(chunks *analysis.Chunks, i ledger.Instant, iteration *int64) jsonInstant {
	j := jsonInstant{
		Seq: plain.Known(i.Seq), TimeNS: plain.Known(i.Time), Iteration: iteration, Live: i.Live,
		Requested: i.T, Pending: i.Pending, Provided: plain.Known(i.C), Reserved: i.R, Paused: i.Paused,
	}
	known := func(bytes int64) *int64 { return plain.Known(chunks.Known(bytes)) }
	j.Rounding, j.Slack = known(i.Rounding), known(i.Slack)
	j.Stranded, j.Reserve, j.Reusable, j.External = known(i.Stranded), known(i.Reserve), known(i.Reusable), known(i.External)
	if j.Rounding == nil {
		j.NotRequested = &i.NotRequested
	}
	return j
}

// jsonIterationNumber is null for events after the last iteration's end.
func jsonIterationNumber(d *analysis.DeviceResult, index int) *int64 {
	if number, ok := d.IterationNumber(index); ok {
		return &number
	}
	return nil
}

// jsonWaste holds shares of reserved at the peak, from 0 to 1, and the measures of papers and frameworks.
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

func newJSONWaste(d *analysis.DeviceResult) jsonWaste {
	p := d.Peak
	return jsonWaste{
		Internal: plain.Finite(plain.KnownRatio(p.Internal(), p.R)), Pending: plain.Finite(plain.Ratio(p.Pending, p.R)),
		Stranded: plain.Finite(chunkShare(d, p.Stranded)), Reserve: plain.Finite(chunkShare(d, p.Reserve)),
		Reusable: plain.Finite(chunkShare(d, p.Reusable)), External: plain.Finite(chunkShare(d, p.External)),
		Unrequested: plain.Finite(1 - plain.Ratio(d.MaxT, d.MaxR)), Unprovided: plain.Finite(1 - plain.KnownRatio(d.MaxC, d.MaxR)),
		LargestFree: plain.Known(d.Chunks.Largest()), Fragmentation: plain.Finite(peakFragmentation(d)),
	}
}
