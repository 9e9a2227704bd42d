package report

import (
	"io"
	"math"

	"github.com/memprof/memprof/analysis"
)

// JSON writes the results as one JSON object, {"processes": [...], "ranks": {...}}, indented. Names are stable:
// they are added to, never changed. Bytes and counts are integers, times integers of nanoseconds
// ("_ns"), shares numbers of which 1 is all; what does not exist is null; lists are never null.
// The course over time and the spans of the address map are for the plots and are left out.
// Context names are as they were recorded, JSON-escaped. It fails only where w does.
func JSON(w io.Writer, results []*analysis.Result) error {
	out := jsonReport{Processes: []jsonProcess{}, Ranks: newJSONRanks(results)}
	for _, r := range results {
		out.Processes = append(out.Processes, newJSONProcess(r))
	}
	return WriteJSON(w, out)
}

type jsonReport struct {
	Processes []jsonProcess `json:"processes"`
	Ranks     jsonRanks     `json:"ranks"`
}

type jsonProcess struct {
	Process    string       `json:"process"`
	Events     int64        `json:"events"`
	DurationNS int64        `json:"duration_ns"`
	Recovered  bool         `json:"recovered"`
	InProgress bool         `json:"in_progress"` // there will be more events
	Devices    []jsonDevice `json:"devices"`
	Arenas     []jsonArena  `json:"arenas"`
}

type jsonDevice struct {
	Device       int32           `json:"device"`
	Allocs       int64           `json:"allocs"`
	Frees        int64           `json:"frees"`
	Peak         jsonInstant     `json:"peak"`
	Final        jsonInstant     `json:"final"`
	MaxRequested int64           `json:"max_requested"`
	MaxProvided  *int64          `json:"max_provided"`
	MaxReserved  int64           `json:"max_reserved"`
	Waste        jsonWaste       `json:"waste"`
	Iterations   []jsonIteration `json:"iterations"`
	Paper        *jsonPaper      `json:"paper"`
	Phases       []jsonPhase     `json:"phases"`
	ByPhase      []jsonByPhase   `json:"phase_iterations"`
	Held         *jsonHeld       `json:"held_at_peak"`
	GrowthCount  int64           `json:"growth_count"`
	Growths      []jsonGrowth    `json:"growths"`
	TopContexts  []jsonHolder    `json:"top_contexts"`
	TopSizes     []jsonHolder    `json:"top_sizes"`
	Leak         *jsonLeak       `json:"leak"`
	OOMs         []jsonOOM       `json:"ooms"`
	External     jsonExternal    `json:"external"`
	Books        *jsonBooks      `json:"books"`
	// KV is there only where an engine told of its memory for keys and values.
	KV []jsonRecordedKV `json:"keys_and_values,omitempty"`
	// Transitions are there only where something was paused.
	Transitions []jsonTransition `json:"transitions,omitempty"`
	Sleep       *jsonSleep       `json:"sleep,omitempty"`
	// Graphs is there only where CUDA graphs were captured.
	Graphs *jsonGraphs `json:"graphs,omitempty"`
	// Watched is there only where an allocator was watched: its chunks are null everywhere.
	Watched *jsonWatched `json:"watched,omitempty"`
}

type jsonWatched struct {
	Allocator string `json:"allocator"`
	Samples   int64  `json:"samples"`
	Odd       int64  `json:"odd"`
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
	Reserve   *int64 `json:"reserve"`
	External  *int64 `json:"external"`
	Unsplit   *int64 `json:"unsplit,omitempty"`
	Provided  *int64 `json:"provided"`
	Reserved  int64  `json:"reserved"`
	Paused    int64  `json:"paused,omitempty"`
}

// jsonTransition is a pause or a resume of one arena.
type jsonTransition struct {
	Seq        int64  `json:"seq"`
	TimeNS     int64  `json:"time_ns"`
	DurationNS int64  `json:"duration_ns"`
	Arena      int32  `json:"arena"`
	Tag        string `json:"tag"`
	Resume     bool   `json:"resume"`
	Bytes      int64  `json:"bytes"`
	Copied     int64  `json:"copied"`
	Reserved   int64  `json:"reserved"` // afterwards
	Failed     string `json:"failed"`
}

// jsonWaste holds the shares of reserved at the peak instant, and the literature's measures.
type jsonWaste struct {
	Internal      *float64 `json:"internal"`
	Pending       *float64 `json:"pending"`
	Reserve       *float64 `json:"reserve"`
	External      *float64 `json:"external"`
	Unrequested   *float64 `json:"one_minus_max_requested_over_max_reserved"`
	Unprovided    *float64 `json:"one_minus_max_provided_over_max_reserved"`
	LargestFree   *int64   `json:"largest_free"`
	Fragmentation *float64 `json:"fragmentation"`
}

type jsonIteration struct {
	Number        int64  `json:"number"`
	StartSeq      int64  `json:"start_seq"`
	EndSeq        int64  `json:"end_seq"`
	StartNS       int64  `json:"start_ns"`
	EndNS         int64  `json:"end_ns"`
	PeakRequested int64  `json:"peak_requested"`
	PeakProvided  *int64 `json:"peak_provided"`
	PeakReserved  int64  `json:"peak_reserved"`
	EndRequested  int64  `json:"end_requested"`
	EndProvided   *int64 `json:"end_provided"`
	EndPaused     int64  `json:"end_paused,omitempty"` // requested by allocations of paused tags
	Allocs        int64  `json:"allocs"`
	AllocBytes    int64  `json:"alloc_bytes"`
	More          int64  `json:"more,omitempty"` // iterations after this that it stands for, too
}

// jsonPaper holds the peaks of the first iteration (1) and the means of the later ones (2) as shares
// of reserved bytes: the greatest, which are the final ones unless R shrank; and as shares of each
// iteration's own peak R.
type jsonPaper struct {
	Reserved    int64    `json:"reserved"`
	T1          *float64 `json:"t1"`
	C1          *float64 `json:"c1"`
	T2          *float64 `json:"t2"`
	C2          *float64 `json:"c2"`
	FirstExcess *float64 `json:"first_excess"`
	SteadyIdle  *float64 `json:"steady_idle"`
	OwnT1       *float64 `json:"own_t1"`
	OwnC1       *float64 `json:"own_c1"`
	OwnT2       *float64 `json:"own_t2"`
	OwnC2       *float64 `json:"own_c2"`
}

type jsonGrowth struct {
	Seq         int64  `json:"seq"`
	TimeNS      int64  `json:"time_ns"`
	Arena       int32  `json:"arena"`
	Iteration   *int64 `json:"iteration"`
	Request     *int64 `json:"request"`
	Grown       int64  `json:"grown"`
	Reserved    int64  `json:"reserved"`
	Free        *int64 `json:"free"`
	LargestFree *int64 `json:"largest_free"`
	Stranded    *int64 `json:"stranded"`
	Verdict     string `json:"verdict"`
}

type jsonHolder struct {
	Context   string `json:"context,omitempty"`
	Size      int64  `json:"size,omitempty"`
	Blocks    int64  `json:"blocks"`
	Requested int64  `json:"requested"`
	Provided  *int64 `json:"provided"`
}

// jsonLeak has the trend by iterations in itself, and is there if any of the trends is valid.
type jsonLeak struct {
	Slope      *float64   `json:"slope"` // bytes an iteration
	Rising     bool       `json:"rising"`
	Points     int        `json:"points"`
	PerRequest *jsonTrend `json:"per_request"`
	PerSecond  *jsonTrend `json:"per_second"`
	// The blocks of the trend that By names: those made after its first point and live at its last.
	By        string        `json:"by"` // "iteration", "request" or "second"
	Blocks    int64         `json:"blocks"`
	Requested int64         `json:"requested"`
	Provided  *int64        `json:"provided"`
	Holders   []jsonHolder  `json:"holders"`
	Stacks    jsonBreakdown `json:"stacks"`
}

// jsonTrend is bytes a request or a second.
type jsonTrend struct {
	Of     string   `json:"of,omitempty"` // what a request is
	Slope  *float64 `json:"slope"`
	Rising bool     `json:"rising"`
	Points int      `json:"points"`
}

type jsonOOM struct {
	Seq         int64       `json:"seq"`
	TimeNS      int64       `json:"time_ns"`
	Arena       int32       `json:"arena"`
	Request     int64       `json:"request"`
	Free        *int64      `json:"free"`
	LargestFree *int64      `json:"largest_free"`
	Verdict     string      `json:"verdict"`
	Context     string      `json:"context"`
	At          jsonInstant `json:"at"`
	Held        *jsonHeld   `json:"held"`
}

type jsonExternal struct {
	Live  int64 `json:"live"`
	Peak  int64 `json:"peak"`
	Calls int64 `json:"calls"`
}

type jsonArena struct {
	ID          int32             `json:"id"`
	Device      int32             `json:"device"`
	Stream      int64             `json:"stream"`
	Base        int64             `json:"base"`
	Reservation int64             `json:"reservation"`
	Limit       *int64            `json:"limit"`
	Options     map[string]string `json:"options"`
}

// known is a number of which -1 says that it does not exist.
func known(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}

// finite is a share that JSON can hold; NaN and infinities, shares of nothing, are null.
func finite(share float64) *float64 {
	if math.IsNaN(share) || math.IsInf(share, 0) {
		return nil
	}
	return &share
}
