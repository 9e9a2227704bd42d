package bfc

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Policy is what a user chooses of the allocator. Each arena gets the part of it that ForArena
// says. The zero value is the preset classic without a headroom.
type Policy struct {
	Growth Growth
	Step   uint64 // bytes, positive with growth Step and else 0
	Split  Split
	// SmallArenas is the size in bytes below which requests have arenas of their own; 0: none has.
	SmallArenas uint64
	Trim        Trim
	Placement   Placement
	// Headroom is what a growth beyond the request leaves free of the device, in bytes.
	Headroom uint64
	// Limit is the most that a main arena maps, in bytes; 0 is the device's memory.
	Limit uint64
	// Handle is the size of a CUDA handle in bytes; 0 leaves it to ForArena.
	Handle uint64
}

// Growth says how much memory an allocator asks for when nothing fits.
type Growth int

const (
	// Double asks for regions that double from 2 MiB: the classic policy.
	Double Growth = iota
	// Needed asks for what the request lacks, and no more, and first unmaps pages that are free
	// elsewhere.
	Needed
	// None asks for the whole limit, at the first request.
	None
	// Step asks for what the request lacks, rounded up to a multiple of Options.Step.
	Step
	// Pages asks for what the request lacks once the pages that are free anywhere are used up: no more
	// are mapped than blocks have ever touched at a time, and 2 % at most.
	Pages
)

// Split says when a chunk is split: where at least that many bytes would be left over, a
// positive number; SplitClassic is the rule of the reference.
type Split uint64

const (
	// SplitClassic splits chunks of twice the request, or with an excess of 128 MiB.
	SplitClassic Split = 0
	// SplitAlways splits wherever anything is left over.
	SplitAlways Split = Granule
)

// Placement says where a request goes that something fits.
type Placement int

const (
	// PlacementBestFit takes the best fit.
	PlacementBestFit Placement = iota
	// PlacementPlanned places the blocks of an iteration that repeats itself by a plan, in which
	// all lifetimes are known; what is not in the plan, by best fit.
	PlacementPlanned
)

// Trim says when the owner of an allocator unmaps free pages.
type Trim struct {
	When TrimWhen
	// Idle is for how long nothing was requested or freed, with TrimIdle; positive there.
	Idle time.Duration
}

// TrimWhen is the occasion of a trim.
type TrimWhen int

const (
	// TrimNever keeps all that was mapped.
	TrimNever TrimWhen = iota
	// TrimIteration unmaps, at the end of an iteration, what the next will not use.
	TrimIteration
	// TrimIdle unmaps all that is free once nothing has happened for a while.
	TrimIdle
	// TrimPressure unmaps what is free while the device is short of memory.
	TrimPressure
)

// Value is one value of a dimension: a choice, by its index, and the amount that goes with it in
// bytes or nanoseconds, 0 for choices without one.
type Value struct {
	Choice int
	Amount uint64
}

// Choice is one row of a dimension's values.
type Choice struct {
	Word    string // of the value; "" for one that is an amount alone
	Amount  Amount // what follows the word behind a colon, or stands alone
	Zero    bool   // an amount of 0 is one, too
	Example string // an amount, for completion
	Note    string // for completion
	Help    string // what it does, for `memprof help policies`
	// NoTune and NoReplay say why `tune` and `replay` cannot have the value; "" where they can.
	NoTune, NoReplay string
}

// Dimension is one setting of a Policy: all that flags, help, completion, run.json, arena events
// and the hook need to know of it.
type Dimension struct {
	Name  string // of its flag; with _ for - in run.json
	Key   string // in the hook's options
	Field string // in arena events; "" where they do not have it
	Help  string // what it decides, for its flag, which adds the choices
	// Choices are its values, by Value.Choice: those of a Growth, say, are in the order of its
	// constants.
	Choices []Choice
	Default string   // in preset classic
	Tune    []string // what `tune` tries without a flag; nil: it tries no values
	Replay  bool     // whether `replay` has a flag for it
	// Served is whether it concerns what `record --serve` serves while torch has its own allocator.
	Served bool

	get func(p *Policy) Value
	set func(p *Policy, v Value)
}

// Dimensions are all settings of a policy, in the order of texts. hooks/capture/bfc/policy.c has
// the same table.
var Dimensions = []*Dimension{
	{
		Name: "growth", Key: "growth", Field: "growth", Default: "double", Tune: []string{"double", "needed", "step:33554432", "pages"}, Replay: true, Served: true,
		Help: "how the main arena grows when no free chunk fits",
		Choices: []Choice{
			Double: {Word: "double", Help: "by regions that double, from 2 MiB"},
			Needed: {Word: "needed", Help: "by what the request lacks; free pages elsewhere are unmapped first"},
			None: {Word: "none", Note: "takes --limit at once", Help: "takes --limit at the first request",
				NoTune: "takes the whole limit, whatever the job does: there is nothing to tune"},
			Step:  {Word: "step", Amount: Bytes, Example: "32MiB", Note: "or another size", Help: "by what the request lacks, rounded up to SIZE"},
			Pages: {Word: "pages", Help: "by pages that are free anywhere first; maps no more than have been in use at a time, and 2 % at most"},
		},
		get: func(p *Policy) Value { return Value{int(p.Growth), p.Step} },
		set: func(p *Policy, v Value) { p.Growth, p.Step = Growth(v.Choice), v.Amount },
	},
	{
		Name: "split", Key: "split", Field: "split", Default: "classic", Tune: []string{"classic", "always"}, Replay: true, Served: true,
		Help: "when a chunk larger than the request is split",
		Choices: []Choice{
			{Word: "classic", Help: "at twice the request, or 128 MiB more than it"},
			{Word: "always", Help: "whenever anything is left over"},
			{Amount: Bytes, Example: "1MiB", Note: "or another size, from which on chunks are split", Help: "when at least SIZE is left over"},
		},
		get: func(p *Policy) Value {
			switch p.Split {
			case SplitClassic:
				return Value{}
			case SplitAlways:
				return Value{Choice: 1}
			}
			return Value{2, uint64(p.Split)}
		},
		set: func(p *Policy, v Value) { p.Split = []Split{SplitClassic, SplitAlways, Split(v.Amount)}[v.Choice] },
	},
	{
		Name: "small-arenas", Key: "small", Field: "below", Default: "0", Tune: []string{"0", "1048576"}, Served: true,
		Help:    "serve requests below this size from arenas of their own; 0: none",
		Choices: []Choice{{Amount: Bytes, Zero: true, Example: "1MiB", Note: "or another size; 0 for none"}},
		get:     func(p *Policy) Value { return Value{Amount: p.SmallArenas} },
		set:     func(p *Policy, v Value) { p.SmallArenas = v.Amount },
	},
	{
		Name: "trim", Key: "trim", Field: "trim", Default: "never", Tune: []string{"never", "iteration"}, Replay: true,
		Help: "when free memory is unmapped",
		Choices: []Choice{
			TrimNever:     {Word: "never", Help: "not at all, unless a request would fail"},
			TrimIteration: {Word: "iteration", Help: "at the end of an iteration, what the next will not use"},
			TrimIdle: {Word: "idle", Amount: Nanoseconds, Example: "500ms", Note: "or another time", NoReplay: "operations have no times",
				Help: "all of it, when nothing was allocated or freed for DURATION"},
			TrimPressure: {Word: "pressure", Note: "while others leave less than --headroom", Help: "while less than --headroom is free on the device",
				NoTune: "depends on what other processes need, which a recording does not have", NoReplay: "operations have no other users of the device"},
		},
		get: func(p *Policy) Value { return Value{int(p.Trim.When), uint64(p.Trim.Idle)} },
		set: func(p *Policy, v Value) { p.Trim = Trim{TrimWhen(v.Choice), time.Duration(v.Amount)} },
	},
	{
		Name: "placement", Key: "placement", Field: "placement", Default: "best-fit", Tune: []string{"best-fit", "planned"}, Replay: true,
		Help: "where an allocation goes",
		Choices: []Choice{
			PlacementBestFit: {Word: "best-fit", Help: "into the smallest free chunk that fits"},
			PlacementPlanned: {Word: "planned", Help: "where an iteration repeats the one before, at a place computed from the lifetimes of all its allocations (as in compact, or with --trim iteration)"},
		},
		get: func(p *Policy) Value { return Value{Choice: int(p.Placement)} },
		set: func(p *Policy, v Value) { p.Placement = Placement(v.Choice) },
	},
	{
		Name: "headroom", Key: "headroom", Field: "headroom", Default: "2147483648", Served: true,
		Help:    "free memory that a growth beyond the request leaves to others",
		Choices: []Choice{{Amount: Bytes, Zero: true, Example: "2GiB", Note: "or another size"}},
		get:     func(p *Policy) Value { return Value{Amount: p.Headroom} },
		set:     func(p *Policy, v Value) { p.Headroom = v.Amount },
	},
	{
		Name: "limit", Key: "limit", Default: "0", Served: true,
		Help:    "most memory the main arena may reserve; 0: the device's",
		Choices: []Choice{{Amount: Bytes, Zero: true, Example: "40GiB", Note: "or another size"}},
		get:     func(p *Policy) Value { return Value{Amount: p.Limit} },
		set:     func(p *Policy, v Value) { p.Limit = v.Amount },
	},
	{
		Name: "handle", Key: "handle", Default: "0", Tune: []string{"0"}, Served: true,
		Help:    "bytes per CUDA handle, the smallest unit that can be unmapped; 0: up to 32MiB, less where little is free, or the device's page with --growth needed or a trim, or 4MiB with --growth pages",
		Choices: []Choice{{Amount: Bytes, Zero: true, Example: "32MiB", Note: "or another size"}},
		get:     func(p *Policy) Value { return Value{Amount: p.Handle} },
		set:     func(p *Policy, v Value) { p.Handle = v.Amount },
	},
}

// Preset is a policy with a name.
type Preset struct {
	Name, Help string
	Values     map[string]string // by the name of the dimension, where they are not the default
}

// Presets are all of them. The first is what a user gets who asks for none.
var Presets = []Preset{
	{Name: "classic", Help: "the BFC allocator of TensorFlow and of the BFC paper; the default"},
	{Name: "compact", Help: "maps no more pages than were in use at a time, and 2 % at most", Values: map[string]string{
		"growth": "pages", "split": "always", "placement": "planned",
	}},
}

// PresetNamed is the policy of a preset.
func PresetNamed(name string) (Policy, error) {
	at := slices.IndexFunc(Presets, func(p Preset) bool { return p.Name == name })
	if at < 0 {
		names := PresetNames()
		last := len(names) - 1
		return Policy{}, fmt.Errorf("unknown preset %q: use %s or %s", name, strings.Join(names[:last], ", "), names[last])
	}
	var p Policy
	for _, d := range Dimensions {
		text, said := Presets[at].Values[d.Name]
		if !said {
			text = d.Default
		}
		d.mustSet(&p, text)
	}
	return p, nil
}

// PresetNames are the names of all presets.
func PresetNames() []string {
	var names []string
	for _, p := range Presets {
		names = append(names, p.Name)
	}
	return names
}

// Classic is the policy of preset classic.
func Classic() Policy {
	p, err := PresetNamed(Presets[0].Name)
	if err != nil {
		panic(err)
	}
	return p
}

// DimensionNamed is the dimension of a name, or nil.
func DimensionNamed(name string) *Dimension {
	for _, d := range Dimensions {
		if d.Name == name {
			return d
		}
	}
	return nil
}

// Setting is the dimension's name in run.json.
func (d *Dimension) Setting() string { return strings.ReplaceAll(d.Name, "-", "_") }

// Differs says whether two policies differ in the dimension.
func (d *Dimension) Differs(p, q *Policy) bool { return d.get(p) != d.get(q) }

// Value is the dimension's value in a policy.
func (d *Dimension) Value(p *Policy) Value { return d.get(p) }

// Copy gives a policy the value that another has.
func (d *Dimension) Copy(to, from *Policy) { d.set(to, d.get(from)) }
