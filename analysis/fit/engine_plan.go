package fit

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/memprof/memprof/analysis/graphs"
)

// Plan is the memory of a card after an engine's start, and what follows for the engine's settings. Bytes; the parts sum to Total:
//
//	Total = Weights + Workspaces + Activations + Graphs + DriverGraphs + NCCL + Libraries + Driver + Others + Left
//
// Weights, workspaces and activations are as PyTorch's own allocator reserves them, its settings the default.
type Plan struct {
	Process     string `json:"process"`
	Device      int32  `json:"device"`
	Total       int64  `json:"total"`
	OwnUnknown  bool   `json:"total_of_nvml"` // Total has what the driver keeps of the card for itself: no process gets that
	Weights     int64  `json:"weights"`       // and all else that stays, but for the following
	Workspaces  int64  `json:"workspaces"`    // of cuBLAS
	Activations int64  `json:"activations"`   // the most that is reserved beside what stays: at the profiled batch
	Graphs      int64  `json:"graphs"`        // pools, of all sizes
	// DriverGraphs is the driver's own memory for graphs, of all sizes. DriverUnknown says why it is not known: then it is 0, and Driver has
	// what the recorded graphs took.
	DriverGraphs  int64  `json:"driver_for_graphs"`
	DriverUnknown string `json:"driver_for_graphs_unknown"`

	NCCL      int64 `json:"nccl"`
	Libraries int64 `json:"other_libraries"`
	Driver    int64 `json:"driver"` // context and code; and what is unexplained
	Others    int64 `json:"other_processes"`
	Left      int64 `json:"left_for_kv"`

	Lists     []GraphList `json:"graph_lists"`
	Predicted bool        `json:"graphs_predicted"`        // of a list that was not recorded whole
	Linear    int64       `json:"graphs_estimate_of_vllm"` // by its formula

	Margin    int64 `json:"margin"` // of Left: what graphs and the driver may differ by, and PyTorch's rounding of the cache
	KV        int64 `json:"kv"`     // to be taken: Left less Margin
	Recorded  int64 `json:"kv_recorded"`
	Fixed     int64 `json:"kv_fixed"` // of KV, whatever the tokens: states
	Token     int64 `json:"kv_token"` // bytes; 0 where no mark says it
	Tokens    int64 `json:"kv_tokens"`
	Sequences int64 `json:"max_num_seqs"` // the largest whole graph; 0 where sizes are not known

	Utilization Setting `json:"gpu_memory_utilization"` // with vLLM's estimate of graphs
	Plain       Setting `json:"gpu_memory_utilization_without_estimate"`
	Static      Setting `json:"mem_fraction_static"`

	Fails *PlanFailure `json:"first_to_fail"`
}

// Setting is a share of the card, rounded down to four digits.
type Setting struct {
	Value float64 `json:"value"`
	KV    int64   `json:"kv"` // bytes that the engine gives the cache with it
	// Capped says that the engine refuses a greater value: less is free at its start. KV is less than the plan's then.
	Capped bool `json:"capped"`
}

// GraphList are graphs of one list of sizes, in one pool.
type GraphList struct {
	Name     string  `json:"name"`
	Sizes    []int64 `json:"sizes"`    // in the order of captures; of graphs without sizes empty
	Captured int     `json:"captured"` // in the recording
	Bytes    int64   `json:"bytes"`    // in a pool of their own
	// FromThree are the bytes that the first three say of the same list; -1 where they say none, and Why.
	FromThree int64  `json:"from_first_three"`
	Why       string `json:"why"`
	Linear    int64  `json:"estimate_of_vllm"`
	Driver    int64  `json:"driver"` // of the driver's own memory, what it keeps for them
	shapes    []*graphs.Sequence
}

// PlanFailure is the request that fails first if the cache gets more than is left.
type PlanFailure struct {
	Seq   int64  `json:"seq"`
	Bytes int64  `json:"bytes"`
	Phase string `json:"phase"`
}

// PlanOptions are what a plan needs that the requests do not say.
type PlanOptions struct {
	Device     int32
	Total      int64 // bytes of the recorded card
	Given      int64 // that the driver gives of them to processes, if the recording does not say it; 0: not known
	Card       int64 // of the one that is asked about; 0: the recorded one
	Others     int64 // of other processes
	NCCL       int64
	Workspaces int64
	Lists      map[string][]int64 // sizes by the name of a list, "" for all others
}

// defaultSizes are those that vLLM captures up to a greatest one, in this order.
func defaultSizes(most int64) (sizes []int64) {
	for n := most; n > 0; {
		sizes = append(sizes, n)
		switch {
		case n > 256:
			n = max(256, (n-1)/16*16)
		case n > 8:
			n = (n - 1) / 8 * 8
		default:
			n /= 2
		}
	}
	return sizes
}

// few is how many graphs of a list are enough to know all.
const few = 3

// PlanEngine plans the memory of one device of a process that started an engine.
func PlanEngine(j *Job, o PlanOptions) (*Plan, error) {
	r, err := readStart(j, o.Device)
	if err != nil {
		return nil, err
	}
	s, err := Look(j)
	if err != nil {
		return nil, err
	}
	d := s.device(o.Device)
	p := &Plan{Process: j.Name, Device: o.Device, Total: o.Total, Others: o.Others, Workspaces: o.Workspaces, NCCL: min(o.NCCL, d.Libraries)}
	p.Libraries, p.Driver = d.Libraries-p.NCCL, d.Driver
	switch {
	case o.Card > 0:
		p.Total = o.Card
	case r.total == 0 && o.Given == 0:
		p.OwnUnknown = !j.Simulated && !j.DryRun
	default: // a part of the card is the driver's own
		if given := cmp.Or(r.total, o.Given); p.Total == 0 || given < p.Total {
			p.Total = given
		}
	}
	if err := graphsOf(p, r, o.Lists); err != nil {
		return nil, err
	}
	most, err := r.replay()
	if err != nil {
		return nil, err
	}
	var stays, kvOthers int64
	kvBlocks, last := int64(0), int(r.ops[r.last].block)
	for i := range r.blocks {
		b := &r.blocks[i]
		switch {
		case b.kv:
			p.Recorded += b.bytes
			if kvBlocks == 0 {
				kvOthers = b.others
			}
			kvBlocks++
		case r.stays(i, last):
			stays += b.bytes
		}
	}
	p.Workspaces = min(p.Workspaces, stays)
	p.Weights = stays - p.Workspaces
	p.Activations = max(0, most.reserved-stays)
	p.Margin = max(1, kvBlocks) * segmentUnit
	p.graphDriver(&r.driver)
	p.Left = p.Total - p.Weights - p.Workspaces - p.Activations - p.Graphs - p.DriverGraphs - p.NCCL - p.Libraries - p.Driver - p.Others
	if p.Predicted {
		p.Margin += p.Graphs / 50
	}
	p.KV = max(0, p.Left-p.Margin)
	if len(r.marks) > 0 && r.marks[0].token > 0 {
		m := r.marks[0]
		p.Token, p.Fixed = m.token, max(0, p.Recorded-m.slots*m.token)
		p.Tokens = max(0, p.KV-p.Fixed) / m.token / m.block * m.block
	}
	p.settings(r.first, max(kvOthers, r.first), stays, most.allocated-stays)
	p.Fails = &PlanFailure{most.seq, most.bytes, most.phase}
	return p, nil
}

// segmentUnit is what PyTorch rounds large segments up to, one a block of the cache at most.
const segmentUnit = 2 << 20

// settings turns the plan into shares of the card. first and cached are what others than the allocator use when the engine begins and
// when it makes the cache, live the allocations that stay, batch those of the profiled batch beside them.
//
//	vLLM     cache = share * card - (live + batch + growth of others) - its estimate of graphs; the share of the card must be free at the start
//	SGLang   cache = what is free after loading - (1 - share) * what was free before
func (p *Plan) settings(first, cached, live, batch int64) {
	used := live + max(0, batch) + cached - first
	free := p.Total - first - p.Others
	vllm := func(estimate int64) Setting {
		share := tenThousandths(p.KV+used+estimate, p.Total)
		most := tenThousandths(free, p.Total)
		s := Setting{Value: min(share, most), Capped: share > most}
		s.KV = max(0, int64(s.Value*float64(p.Total))-used-estimate)
		return s
	}
	p.Utilization, p.Plain = vllm(p.Linear), vllm(0)
	taken := live + cached - first
	p.Static = Setting{Value: tenThousandths(p.KV+taken, free)}
	p.Static.KV = max(0, int64(p.Static.Value*float64(free))-taken)
}

// tenThousandths is a share, rounded down, from 0 to 1.
func tenThousandths(part, whole int64) float64 {
	if whole <= 0 {
		return 0
	}
	return math.Floor(min(1, max(0, float64(part)/float64(whole)))*10000) / 10000
}

// graphsOf sets what the graphs take, of all sizes of their lists.
func graphsOf(p *Plan, r *startReader, wanted map[string][]int64) error {
	var pools []string
	for _, s := range r.shapes {
		if !slices.Contains(pools, s.pool) {
			pools = append(pools, s.pool)
		}
	}
	var grown []graphs.Grown
	for _, pool := range pools {
		var all []*graphs.Sequence
		for _, name := range r.families(pool) {
			l, g, err := listOf(r, pool, name, wanted, &p.Predicted)
			if err != nil {
				return err
			}
			p.Lists, grown = append(p.Lists, l), append(grown, g)
			all = append(all, l.shapes...)
			if len(l.Sizes) > 0 {
				p.Sequences = slices.Max(l.Sizes)
			}
		}
		bytes, err := shared(all)
		if err != nil {
			return err
		}
		p.Graphs += bytes
	}
	p.Linear = graphs.Linear(grown)
	return nil
}

// mostPool is more than the graphs of a pool request: no card has so much, and the model of an allocator no more addresses. In bytes.
const mostPool = 1 << 44

// shared is what graphs take in one pool of PyTorch's.
func shared(shapes []*graphs.Sequence) (int64, error) {
	sum := int64(0)
	for _, s := range shapes {
		if sum += s.Requested(); sum > mostPool {
			return 0, fmt.Errorf("%d graphs request more than any card has", len(shapes))
		}
	}
	return graphs.Shared(graphs.Torch, shapes), nil
}

func (r *startReader) families(pool string) (names []string) {
	for _, s := range r.shapes {
		if s.pool == pool && !slices.Contains(names, s.family) {
			names = append(names, s.family)
		}
	}
	return names
}

// listOf is a list of graphs: as recorded, or of other sizes where they are wanted, or no more than three were captured.
func listOf(r *startReader, pool, name string, wanted map[string][]int64, predicted *bool) (l GraphList, g graphs.Grown, err error) {
	l = GraphList{Name: name, FromThree: -1, Sizes: []int64{}}
	var recorded []graphs.Sized
	for _, s := range r.shapes {
		if s.pool == pool && s.family == name {
			recorded = append(recorded, s.Sized)
			l.shapes = append(l.shapes, s.Sequence)
			if s.Size > 0 {
				l.Sizes = append(l.Sizes, s.Size)
			}
		}
	}
	l.Captured = len(recorded)
	sizes, asked := wanted[name]
	if !asked {
		sizes, asked = wanted[""]
	}
	sizes = slices.Sorted(slices.Values(sizes))
	if n := len(l.Sizes); n < 2 || l.Sizes[0] > l.Sizes[n-1] { // as vLLM and SGLang do
		slices.Reverse(sizes)
	}
	if len(l.Sizes) < l.Captured && asked { // graphs without a size have those of the list, in its order
		for i := range recorded {
			if recorded[i].Size = 0; i < len(sizes) {
				recorded[i].Size = sizes[i]
			}
		}
		l.Sizes = sizes
	}
	if !asked && l.Captured <= few && len(l.Sizes) > 0 && l.Sizes[0] == slices.Max(l.Sizes) {
		sizes, asked = defaultSizes(l.Sizes[0]), true
	}
	l.predict(recorded, sizes, asked, predicted)
	if l.Bytes, err = shared(l.shapes); err != nil {
		return l, g, err
	}
	g = graphs.Grown{First: graphs.Shared(graphs.Torch, l.shapes[:1]), Graphs: int64(len(l.shapes))}
	if len(l.shapes) > 1 {
		g.Second = graphs.Shared(graphs.Torch, l.shapes[:2]) - g.First
	}
	l.Linear = graphs.Linear([]graphs.Grown{g})
	return l, g, nil
}

// predict replaces the shapes by those of the sizes asked for, as the first three say them, and compares with what was recorded.
func (l *GraphList) predict(recorded []graphs.Sized, sizes []int64, asked bool, predicted *bool) {
	if len(l.Sizes) == 0 {
		l.Why = "the graphs have no sizes: memprof.phase(\"decode 64\") around a capture, or --engine=SIZES, says them"
		return
	}
	law, err := graphs.Learn(recorded[:min(few, len(recorded))])
	if err != nil {
		l.Why = err.Error()
		return
	}
	if !asked {
		sizes = l.Sizes
	}
	said, err := law.Shapes(sizes)
	if err != nil {
		l.Why = err.Error()
		return
	}
	if l.FromThree, err = shared(said); err != nil {
		l.FromThree, l.Why = -1, err.Error()
		return
	}
	if asked && !slices.Equal(sizes, sizesOf(recorded)) {
		l.Sizes, l.shapes, *predicted = sizes, said, true
	}
}

func sizesOf(shapes []graphs.Sized) (sizes []int64) {
	for _, s := range shapes {
		sizes = append(sizes, s.Size)
	}
	return sizes
}
