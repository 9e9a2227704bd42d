package report

import "github.com/memprof/memprof/analysis"

// jsonBooks are analysis.Books. Where no reading was taken, missing says why; used,
// unexplained and what belongs to them are null then.
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
	Context           int64         `json:"context"`
	Modules           int64         `json:"modules"`
	Loads             int64         `json:"loads"`
	Graphs            int64         `json:"graphs"`
	ContextAndModules int64         `json:"context_and_modules"`
	ContextOfDevice   bool          `json:"context_of_device"` // by the device's use, what others took meanwhile included
	ContextIsAll      bool          `json:"context_is_all"`    // all in use then stands for the context
	ContextRefuted    int64         `json:"context_refuted"`   // measured, more than was used, and in no term
	Pools             int64         `json:"pools"`
	Managed           int64         `json:"managed"`     // in no sum
	HostPinned        int64         `json:"host_pinned"` // in no sum
	Explained         int64         `json:"explained"`
	Used              *int64        `json:"used"`
	Unexplained       *int64        `json:"unexplained"`
	UnexplainedShare  *float64      `json:"unexplained_share"`
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
		Context: b.Context, Modules: b.Modules, Loads: b.Loads, Graphs: b.Graphs, ContextAndModules: b.Overhead(), Pools: b.Pools,
		ContextOfDevice: b.ContextOfDevice, ContextIsAll: b.ContextIsAll, ContextRefuted: b.ContextRefuted,
		Managed: b.Managed, HostPinned: b.HostPinned, Explained: b.Sum(),
	}
	for _, l := range b.Libraries {
		j.Libraries = append(j.Libraries, jsonLibrary{l.Name, l.Bytes})
	}
	if r := b.Read; r.Valid {
		unexplained := b.Unexplained
		j.Used, j.ReadAfterNS, j.Steady, j.Unexplained = &r.Used, &r.After, &r.Steady, &unexplained
		j.UnexplainedShare = finite(ratio(b.Unexplained, r.Used))
	}
	return j
}
