package report

import (
	"io"

	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/analysis/tune"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/report/plain"
)

// TuneJSON writes the policies as one indented JSON object. Bytes and counts are integers, times integers
// of nanoseconds, shares and means numbers; what does not exist is null. Policies have the form that the
// hook reads: bytes and nanoseconds. It fails only if w does.
func TuneJSON(w io.Writer, t *Tuned) error {
	out := jsonTuned{
		Process: t.Process, Requests: t.Allocs, LeftOut: t.LeftOut, MaxSlowdown: t.MaxSlowdown, Policies: []any{},
		Costs: jsonCosts{tune.CostHandle, tune.CostCreate.Nanoseconds(), tune.CostMap.Nanoseconds(), tune.CostAccess.Nanoseconds(), tune.CostUnmap.Nanoseconds(), tune.CostRelease.Nanoseconds()},
	}
	for i := range t.Outcomes {
		out.Policies = append(out.Policies, newJSONOutcome(&t.Outcomes[i]))
	}
	for i := range t.Torch {
		out.Policies = append(out.Policies, newJSONTorch(t, &t.Torch[i]))
	}
	if setting := t.torchAdvice(); setting != "" {
		out.Setting = &setting
	}
	if best := t.Recommend(t.MaxSlowdown); best >= 0 {
		recommended := newJSONPolicy(&t.Outcomes[best].Policy)
		out.Recommended = &recommended
	}
	if t.Recorded != nil {
		recorded := newJSONPolicy(t.Recorded)
		out.Recorded = &recorded
	}
	return plain.WriteJSON(w, out)
}

type jsonTuned struct {
	Recorded    *jsonPolicy `json:"recorded"` // null where another allocator was recorded
	Process     string      `json:"process"`
	Requests    int64       `json:"requests"`
	LeftOut     int64       `json:"left_out_arenas"`
	Costs       jsonCosts   `json:"costs"`
	MaxSlowdown float64     `json:"max_slowdown"`
	Policies    []any       `json:"policies"` // of jsonOutcome, then of jsonTorch
	Recommended *jsonPolicy `json:"recommended"`
	Setting     *string     `json:"recommended_setting"` // PYTORCH_CUDA_ALLOC_CONF within 2 % of the recommended policy; null if none is
}

type jsonCosts struct {
	Handle    uint64 `json:"handle"`
	CreateNS  int64  `json:"create_ns"`
	MapNS     int64  `json:"map_ns"`
	AccessNS  int64  `json:"access_ns"`
	UnmapNS   int64  `json:"unmap_ns"`
	ReleaseNS int64  `json:"release_ns"`
}

type jsonPolicy struct {
	Preset string `json:"preset"`
	Handle uint64 `json:"handle"`
	Trim   string `json:"trim"`
}

func newJSONPolicy(p *bfc.Policy) jsonPolicy {
	return jsonPolicy{p.Preset.String(), p.Handle, p.Trim.String()}
}

// jsonTorch is a setting of PyTorch's own allocator.
type jsonTorch struct {
	Allocator    string   `json:"allocator"` // "torch"
	Setting      string   `json:"setting"`   // "native", or the text of PYTORCH_CUDA_ALLOC_CONF
	PeakReserved int64    `json:"peak_reserved"`
	Band         jsonBand `json:"peak_reserved_band"`
	Refused      int64    `json:"refused"`
	Slowdown     *float64 `json:"slowdown"`
}

// jsonBand is what the placement of segments leaves open, in bytes.
type jsonBand struct {
	Least    int64 `json:"least"`
	Greatest int64 `json:"greatest"`
}

func newJSONTorch(t *Tuned, o *recording.TorchOutcome) jsonTorch {
	setting := o.Setting
	if setting == "" {
		setting = "native"
	}
	out := jsonTorch{Allocator: "torch", Setting: setting, PeakReserved: o.Reserved, Band: jsonBand{o.Least, o.Greatest}, Refused: o.Refused}
	if t.Outcomes[0].Duration > 0 {
		out.Slowdown = plain.Finite(t.torchSlowdown(o))
	}
	return out
}

type jsonOutcome struct {
	Allocator string `json:"allocator"` // "memprof"
	Setting   string `json:"setting"`   // "": the policy says it
	jsonPolicy
	PeakReserved   int64     `json:"peak_reserved"`
	PeakProvided   int64     `json:"peak_provided"`
	PeakRequested  int64     `json:"peak_requested"`
	SteadyReserved int64     `json:"steady_reserved"`
	Refused        int64     `json:"refused"`
	Iterations     int64     `json:"iterations"`
	FirstIdle      *float64  `json:"first_idle"`
	LaterIdle      *float64  `json:"later_idle"`
	Remaps         float64   `json:"remaps_per_iteration"`
	Unmaps         float64   `json:"unmaps_per_iteration"`
	Waits          float64   `json:"waits_per_iteration"`
	Calls          jsonCalls `json:"calls_per_iteration"` // that requests wait for, one for each handle
	CostNS         int64     `json:"cost_per_iteration_ns"`
	BackgroundNS   int64     `json:"background_per_iteration_ns"`
	IterationNS    *int64    `json:"iteration_ns"`
	Slowdown       *float64  `json:"slowdown"`
	TotalCostNS    int64     `json:"total_cost_ns"`
}

type jsonCalls struct {
	Create  float64 `json:"create"`
	Map     float64 `json:"map"`
	Access  float64 `json:"set_access"`
	Unmap   float64 `json:"unmap"`
	Release float64 `json:"release"`
}

func newJSONOutcome(o *tune.Outcome) jsonOutcome {
	out := jsonOutcome{
		Allocator: "memprof", jsonPolicy: newJSONPolicy(&o.Policy), PeakReserved: o.PeakR, PeakProvided: o.PeakC, PeakRequested: o.PeakT, SteadyReserved: o.SteadyR,
		Refused: o.Refused, Iterations: o.Iterations, Remaps: o.Remaps, Unmaps: o.Unmaps, Waits: o.Waits, Calls: jsonCalls(o.Calls),
		CostNS: o.Cost.Nanoseconds(), BackgroundNS: o.Background.Nanoseconds(), TotalCostNS: o.TotalCost.Nanoseconds(),
	}
	if o.Iterations > 0 {
		out.FirstIdle = plain.Finite(o.FirstIdle)
	}
	if o.Iterations > 1 {
		out.LaterIdle = plain.Finite(o.LaterIdle)
	}
	if o.Duration > 0 {
		duration := o.Duration.Nanoseconds()
		out.IterationNS, out.Slowdown = &duration, plain.Finite(o.Slowdown())
	}
	return out
}
