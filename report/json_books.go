package report

import "github.com/memprof/memprof/analysis"

// jsonBooks are analysis.Books. Where no reading was taken, missing says why. What is unknown
// is null, and used_unknown, overhead_unknown and unexplained_unknown say why.
type jsonBooks struct {
	Scope     string    `json:"scope"`
	Processes []string  `json:"processes"`
	GPU       *int64    `json:"gpu"`
	Baseline  int64     `json:"baseline"`
	UsedPeak  *int64    `json:"used_peak"`
	Missing   *string   `json:"missing"`
	Peak      *jsonBook `json:"peak"`
	End       *jsonBook `json:"end"`
}

type jsonBook struct {
	TimeNS            *int64        `json:"time_ns"`
	Tensors           int64         `json:"tensors"`
	Internal          *int64        `json:"internal"`
	Pending           int64         `json:"pending"`
	Reserve           *int64        `json:"reserve"`
	External          *int64        `json:"external"`
	Unsplit           int64         `json:"unsplit,omitempty"` // internal, reserve and external of a watched allocator
	Libraries         []jsonLibrary `json:"libraries"`
	OtherLibraries    int64         `json:"other_libraries"`
	Context           *int64        `json:"context"`
	Modules           *int64        `json:"modules"`
	Loads             *int64        `json:"loads"`
	Graphs            *int64        `json:"graphs"`
	ContextAndModules *int64        `json:"context_and_modules"`
	OverheadUnknown   *string       `json:"overhead_unknown"`
	ContextOfDevice   bool          `json:"context_of_device"` // measured by the whole card's use
	ContextIsAll      bool          `json:"context_is_all"`    // all in use then stood for the context
	ContextRefuted    int64         `json:"context_refuted"`   // measured, more than was used, and in no part
	Pools             *int64        `json:"pools"`
	Managed           int64         `json:"managed"`     // in no sum
	HostPinned        int64         `json:"host_pinned"` // in no sum
	Explained         int64         `json:"explained"`   // the known parts together
	Used              *int64        `json:"used"`
	UsedUnknown       *string       `json:"used_unknown"`
	Rest              *int64        `json:"rest"` // used beyond the known parts
	Unexplained       *int64        `json:"unexplained"`
	UnexplainedShare  *float64      `json:"unexplained_share"`
	UnexplainedWhy    *string       `json:"unexplained_unknown"`
	Read              *int64        `json:"read"`          // the reading, also one of another state
	ReadAfterNS       *int64        `json:"read_after_ns"` // negative: read before
	Steady            *bool         `json:"steady"`
}

type jsonLibrary struct {
	Library string `json:"library"`
	Bytes   int64  `json:"bytes"`
}

func newJSONBooks(b *analysis.Books) *jsonBooks {
	if b == nil {
		return nil
	}
	j := &jsonBooks{
		Scope: string(b.Scope), Processes: append([]string{}, b.Processes...), GPU: known(int64(b.GPU)), Baseline: b.Baseline,
		UsedPeak: known(b.UsedPeak), Peak: newJSONBook(&b.Peak), End: newJSONBook(&b.End),
	}
	if b.Missing != "" {
		missing := b.Missing
		j.Missing = &missing
	}
	return j
}

func newJSONBook(b *analysis.Book) *jsonBook {
	told := func(bytes int64) *int64 {
		if b.At.Unsplit != 0 && bytes == 0 { // all of it is a watched allocator's
			return nil
		}
		return &bytes
	}
	j := &jsonBook{
		TimeNS: known(b.At.Time), Tensors: b.At.T, Internal: told(b.At.Rounding + b.At.Slack), Pending: b.At.Pending, Reserve: told(b.At.Reserve), External: told(b.At.External),
		Unsplit:   b.At.Unsplit,
		Libraries: []jsonLibrary{}, OtherLibraries: b.Other(),
		Context: partOf(b, analysis.ContextPart, b.Context), Modules: partOf(b, analysis.ModulesPart, b.Modules),
		Loads: partOf(b, analysis.LoadsPart, b.Loads), Graphs: partOf(b, analysis.GraphsPart, b.Graphs),
		ContextAndModules: partOf(b, analysis.AllOverhead, b.Overhead()), OverheadUnknown: reason(b.UnknownWhy), Pools: partOf(b, analysis.PoolsPart, b.Pools),
		ContextOfDevice: b.ContextOfDevice, ContextIsAll: b.ContextIsAll, ContextRefuted: b.ContextRefuted,
		Managed: b.Managed, HostPinned: b.HostPinned, Explained: b.Sum(),
	}
	for _, l := range b.Libraries {
		j.Libraries = append(j.Libraries, jsonLibrary{l.Name, l.Bytes})
	}
	if r := b.Read; r.Valid {
		j.Read, j.ReadAfterNS, j.Steady = &r.Used, &r.After, &r.Steady
		if b.UsedUnknown == "" {
			rest := b.Rest
			j.Used, j.Rest = &r.Used, &rest
		}
		if b.UnexplainedUnknown == "" {
			unexplained := b.Unexplained
			j.Unexplained, j.UnexplainedShare = &unexplained, finite(ratio(b.Unexplained, r.Used))
		}
	}
	j.UsedUnknown, j.UnexplainedWhy = reason(b.UsedUnknown), reason(b.UnexplainedUnknown)
	return j
}

// partOf is nil where one of some parts is unknown.
func partOf(b *analysis.Book, parts analysis.OverheadParts, bytes int64) *int64 {
	if b.Unknown.Has(parts) {
		return nil
	}
	return &bytes
}

// reason is nil where there is none.
func reason(why string) *string {
	if why == "" {
		return nil
	}
	return &why
}
