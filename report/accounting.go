package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
)

// librariesShown is the most rows for other libraries; the last of them may stand for several.
const librariesShown = 8

// accountingSections say what the used memory of the device was used for, at the peak and at the end.
// There are none if used memory was not asked for.
func accountingSections(d *analysis.DeviceResult) []layout.Section {
	b := d.Account
	if b == nil {
		return nil
	}
	s := layout.Section{Title: "Device accounting"}
	if b.Missing != "" {
		s.Before = layout.Toned(layout.Faint, layout.Note("used memory of the device is unknown: "+plain.Shorten(b.Missing, 160)))
		if b.Peak.Sum() == b.Peak.At.R && b.End.Sum() == b.End.At.R { // no term besides those of the arenas
			return []layout.Section{s}
		}
	} else {
		s.Before = layout.Note(usedLine(b))
	}
	s.Columns = []layout.Column{
		layout.Words("part"), layout.Numbers("peak"), layout.Numbers("of used"), layout.Numbers("end"), layout.Numbers("of used"), layout.Words("meaning"),
	}
	for _, term := range accountingTerms(b) {
		s.Rows = append(s.Rows, accountingRow(b, term))
	}
	s.Total = layout.Toned(layout.Strong, accountingRow(b, usedTerm(b)))
	s.After = accountingNotes(b)
	return []layout.Section{s}
}

// usedLine says what used memory counts.
func usedLine(b *accounting.Account) string {
	if b.Scope == accounting.ScopeProcess {
		return fmt.Sprintf("used: GPU %d, this process, as the driver reports it; maximum %s", b.GPU, plain.FormatSize(b.UsedPeak))
	}
	if b.Scope == accounting.ScopeCard {
		return fmt.Sprintf("used: the whole GPU, other processes included, as this process read it (cuMemGetInfo); maximum %s", plain.FormatSize(b.UsedPeak))
	}
	of := ""
	if n := len(b.Processes); n > 1 {
		names := make([]string, 0, 4)
		for _, name := range b.Processes[:min(n, 4)] {
			names = append(names, plain.Shorten(name, 16))
		}
		of = "; terms are sums of " + strings.Join(names, ", ")
		if n > 4 {
			of += fmt.Sprintf(" and %d more", n-4)
		}
	}
	return fmt.Sprintf("used: all of GPU %d, other processes included; maximum %s, before the job %s%s",
		b.GPU, plain.FormatSize(b.UsedPeak), plain.FormatSize(b.UsedBeforeJob), of)
}

// accountingTerm is one term of the device accounting.
type accountingTerm struct {
	name, meaning string
	bytes         func(*accounting.Balance) int64
	unknown       func(*accounting.Balance) bool // nil: never
	tone          layout.Tone
	ofChunks      bool // not known where bytes are not divided: those that are not requested
	optional      bool // left out where it is 0
}

// undivided says whether a term that chunks decide is not known: its bytes are among those that are not requested.
func undivided(b *accounting.Balance, bytes int64) bool { return b.At.NotRequested != 0 && bytes == 0 }

// accountingTerms are the terms that add up to used.
func accountingTerms(b *accounting.Account) []accountingTerm {
	terms := []accountingTerm{
		{name: "requested", meaning: "by live allocations", bytes: func(b *accounting.Balance) int64 { return b.At.T }},
		{name: "internal", meaning: "rounding and slack", bytes: func(b *accounting.Balance) int64 { return b.At.Rounding + b.At.Slack }, ofChunks: true},
		{name: "pending", meaning: "freed, not reusable yet", bytes: func(b *accounting.Balance) int64 { return b.At.Pending }},
		{name: "stranded", meaning: "free in other arenas", bytes: func(b *accounting.Balance) int64 { return b.At.Stranded }, tone: layout.Warned, ofChunks: true, optional: true},
		{name: "reserve", meaning: "never handed out", bytes: func(b *accounting.Balance) int64 { return b.At.Reserve }, ofChunks: true},
		{name: "reusable", meaning: "largest free chunk", bytes: func(b *accounting.Balance) int64 { return b.At.Reusable }, ofChunks: true},
		{name: "external", meaning: "smaller free chunks", bytes: func(b *accounting.Balance) int64 { return b.At.External }, tone: layout.Warned, ofChunks: true},
		{name: "not requested", meaning: "internal, free", bytes: func(b *accounting.Balance) int64 { return b.At.NotRequested }, tone: layout.Warned, optional: true},
	}
	terms = slices.DeleteFunc(terms, func(t accountingTerm) bool {
		peak, end := t.bytes(&b.Peak), t.bytes(&b.End)
		unknown := t.ofChunks && (undivided(&b.Peak, peak) || undivided(&b.End, end))
		return (t.optional || unknown) && peak == 0 && end == 0
	})
	terms = append(terms, libraryTerms(b)...)
	if b.Peak.Pools != 0 || b.End.Pools != 0 || (b.Peak.Unknown | b.End.Unknown).Has(accounting.PoolsPart) {
		terms = append(terms, accountingTerm{name: "idle in pools", meaning: "kept by driver pools", bytes: func(b *accounting.Balance) int64 { return b.Pools }, unknown: lacks(accounting.PoolsPart)})
	}
	terms = append(terms, overheadTerms(b)...)
	terms = append(terms, accountingTerm{
		name: "unexplained", meaning: "used, in no other term", bytes: func(b *accounting.Balance) int64 { return b.Unexplained },
		unknown: func(b *accounting.Balance) bool { return b.UnexplainedUnknown != "" },
	})
	if b.Missing == "" && (b.Peak.UnexplainedUnknown != "" || b.End.UnexplainedUnknown != "") {
		meaning := "sum of unknown terms"
		if b.Scope != accounting.ScopeProcess {
			meaning = "and other processes"
		}
		terms = append(terms, accountingTerm{name: "rest", meaning: meaning, bytes: restOf, unknown: usedUnknown})
	}
	return terms
}

// overheadTerms are the terms of driver overhead: one, or two if a part is not known.
func overheadTerms(b *accounting.Account) []accountingTerm {
	known := func(b *accounting.Balance) int64 { return b.Overhead() }
	if !(b.Peak.Unknown | b.End.Unknown).Has(accounting.AllOverhead) {
		return []accountingTerm{{name: "driver overhead", meaning: "context, code, graphs", bytes: known}}
	}
	var terms []accountingTerm
	if b.Peak.Overhead() != 0 || b.End.Overhead() != 0 {
		terms = append(terms, accountingTerm{name: "driver overhead", meaning: "known parts", bytes: known})
	}
	return append(terms, accountingTerm{name: "more driver overhead", meaning: "see below", bytes: func(*accounting.Balance) int64 { return 0 }, unknown: lacks(accounting.AllOverhead)})
}

// lacks returns a function that reports whether one of some parts is unknown.
func lacks(parts accounting.OverheadParts) func(*accounting.Balance) bool {
	return func(b *accounting.Balance) bool { return b.Unknown.Has(parts) }
}

// restOf is the sum of the unknown parts, 0 if all are known.
func restOf(b *accounting.Balance) int64 {
	if b.UnexplainedUnknown == "" {
		return 0
	}
	return b.Rest
}

func usedUnknown(b *accounting.Balance) bool { return b.UsedUnknown != "" }

func usedTerm(b *accounting.Account) accountingTerm {
	if b.Missing != "" {
		return accountingTerm{name: "= explained", meaning: "used was not read", bytes: func(b *accounting.Balance) int64 { return b.Sum() }}
	}
	return accountingTerm{name: "= used", meaning: "as the driver reports", bytes: func(b *accounting.Balance) int64 { return b.Read.Used }, unknown: usedUnknown}
}

// libraryTerms are the other libraries at the peak or the end, those with most bytes first.
func libraryTerms(b *accounting.Account) []accountingTerm {
	most := map[string]int64{}
	for _, balance := range []*accounting.Balance{&b.Peak, &b.End} {
		for _, l := range balance.Libraries {
			most[l.Name] = max(most[l.Name], l.Bytes)
		}
	}
	var names []string
	for name := range most {
		names = append(names, name)
	}
	slices.SortFunc(names, func(x, y string) int { return cmp.Or(cmp.Compare(most[y], most[x]), cmp.Compare(x, y)) })
	shown := names
	if len(names) > librariesShown {
		shown = names[:librariesShown-1]
	}
	var terms []accountingTerm
	for _, name := range shown {
		title := plain.Shorten(name, 24)
		if name == "" {
			title = "unnamed library"
		}
		terms = append(terms, accountingTerm{name: title, meaning: "other library", bytes: bytesOf(name)})
	}
	if rest := names[len(shown):]; len(rest) > 0 {
		terms = append(terms, accountingTerm{
			name: "… " + plain.FormatCount(int64(len(rest))) + " more", meaning: "other libraries", bytes: bytesOf(rest...), tone: layout.Faint,
		})
	}
	return terms
}

// bytesOf sums the bytes of some libraries.
func bytesOf(names ...string) func(*accounting.Balance) int64 {
	return func(b *accounting.Balance) (sum int64) {
		for _, l := range b.Libraries {
			if slices.Contains(names, l.Name) {
				sum += l.Bytes
			}
		}
		return sum
	}
}

// accountingRow is a term at the peak and at the end, with its shares of used.
func accountingRow(b *accounting.Account, term accountingTerm) []layout.Cell {
	line := layout.Row(term.name)
	zero := true
	for _, balance := range []*accounting.Balance{&b.Peak, &b.End} {
		if term.unknown != nil && term.unknown(balance) {
			line = append(line, layout.Row("unknown", plain.Absent)...)
			zero = false
			continue
		}
		bytes, percent := term.bytes(balance), plain.Absent
		if balance.UsedUnknown == "" {
			percent = plain.FormatPercent(plain.Ratio(bytes, balance.Read.Used))
		}
		line = append(line, layout.Row(plain.FormatSize(bytes), percent)...)
		zero = zero && bytes == 0
	}
	line = append(line, layout.Row(term.meaning)...)
	switch {
	case zero:
		return layout.Toned(layout.Faint, line)
	case term.tone == layout.Faint:
		return layout.Toned(layout.Faint, line)
	case term.tone != layout.Plain:
		line[2].Tone, line[4].Tone = term.tone, term.tone
	}
	return line
}

// accountingNotes say when used was read, what driver overhead consists of, and which bytes are in no term.
func accountingNotes(b *accounting.Account) []layout.Cell {
	var notes []layout.Cell
	for _, at := range []struct {
		name    string
		balance *accounting.Balance
	}{{"the peak", &b.Peak}, {"the end", &b.End}} {
		if !at.balance.Read.Valid {
			continue
		}
		text := at.name + ", " + plain.FormatDuration(at.balance.At.Time) + " after the start: used was read " + readingDistance(at.balance.Read.After)
		if at.balance.UsedUnknown == "" {
			notes = append(notes, layout.Note(text)...)
		} else {
			notes = append(notes, layout.Toned(layout.Warned, layout.Note(at.name+", "+plain.FormatDuration(at.balance.At.Time)+" after the start: used is unknown: "+at.balance.UsedUnknown+
				"; the nearest reading, "+readingDistance(at.balance.Read.After)+", is "+plain.FormatSize(at.balance.Read.Used)))...)
		}
	}
	if p := &b.Peak; p.Overhead() != 0 || p.Unknown.Has(accounting.AllOverhead) {
		part := func(of accounting.OverheadParts, bytes int64) string {
			if p.Unknown.Has(of) {
				return "unknown"
			}
			return plain.FormatSize(bytes)
		}
		notes = append(notes, layout.Note(fmt.Sprintf("driver overhead at the peak: context %s, modules %s, libraries %s, graphs %s",
			part(accounting.ContextPart, p.Context), part(accounting.ModulesPart, p.Modules), part(accounting.LoadsPart, p.Loads), part(accounting.GraphsPart, p.Graphs)))...)
	}
	notes = append(notes, unknownNotes(b)...)
	if p := &b.Peak; p.Managed != 0 || p.HostPinned != 0 {
		notes = append(notes, layout.Note(fmt.Sprintf("in no term, at the peak: managed memory %s, pinned host memory %s", plain.FormatSize(p.Managed), plain.FormatSize(p.HostPinned)))...)
	}
	return notes
}

// unknownNotes say why terms are not known.
func unknownNotes(b *accounting.Account) []layout.Cell {
	var notes []layout.Cell
	if why := cmp.Or(b.Peak.UnknownWhy, b.End.UnknownWhy); why != "" {
		text := "driver overhead is unknown: " + why
		if refuted := max(b.Peak.ContextRefuted, b.End.ContextRefuted); refuted != 0 {
			text = "driver overhead is unknown: the CUDA context measured " + plain.FormatSize(refuted) + ", more than was in use: other processes are included, so it is left out"
		}
		notes = append(notes, layout.Toned(layout.Warned, layout.Note(text))...)
	}
	for _, balance := range []*accounting.Balance{&b.Peak, &b.End} {
		if b.Missing == "" && balance.UsedUnknown == "" && balance.UnexplainedUnknown != "" {
			return append(notes, layout.Note("unexplained is unknown: "+balance.UnexplainedUnknown)...)
		}
	}
	return notes
}

// readingDistance says how long before or after an instant a reading was taken, in nanoseconds.
func readingDistance(after int64) string {
	switch {
	case after == 0:
		return "at that time, or equally before and after"
	case after < 0:
		return plain.FormatDuration(-after) + " before"
	}
	return plain.FormatDuration(after) + " later"
}

// jsonDeviceAccounting is the device accounting. If no reading was taken, missing says why. What is not known is
// null, and used_unknown, overhead_unknown and unexplained_unknown say why.
type jsonDeviceAccounting struct {
	Scope         string            `json:"scope"`
	Processes     []string          `json:"processes"`
	GPU           *int64            `json:"gpu"`
	UsedBeforeJob int64             `json:"used_before_job"`
	UsedPeak      *int64            `json:"used_peak"`
	Missing       *string           `json:"missing"`
	Peak          *jsonAccountingAt `json:"peak"`
	End           *jsonAccountingAt `json:"end"`
}

type jsonAccountingAt struct {
	TimeNS           *int64                  `json:"time_ns"`
	Requested        int64                   `json:"requested"`
	Internal         *int64                  `json:"internal"`
	Pending          int64                   `json:"pending"`
	Stranded         *int64                  `json:"stranded"`
	Reserve          *int64                  `json:"reserve"`
	Reusable         *int64                  `json:"reusable"`
	External         *int64                  `json:"external"`
	NotRequested     int64                   `json:"not_requested,omitempty"` // all that is neither requested nor pending, of the native allocator
	Libraries        []accounting.LibraryUse `json:"libraries"`
	OtherLibraries   int64                   `json:"other_libraries"`
	Context          *int64                  `json:"context"`
	Modules          *int64                  `json:"modules"`
	Loads            *int64                  `json:"loads"`
	Graphs           *int64                  `json:"graphs"`
	DriverOverhead   *int64                  `json:"driver_overhead"`
	OverheadUnknown  *string                 `json:"overhead_unknown"`
	ContextOfDevice  bool                    `json:"context_of_device"` // measured by the whole card's use
	ContextIsAll     bool                    `json:"context_is_all"`    // all used memory was taken for the context
	ContextRefuted   int64                   `json:"context_refuted"`   // measured, but more than was used: in no term
	Pools            *int64                  `json:"pools"`
	Managed          int64                   `json:"managed"`     // in no sum
	HostPinned       int64                   `json:"host_pinned"` // in no sum
	Explained        int64                   `json:"explained"`   // sum of the known terms
	Used             *int64                  `json:"used"`
	UsedUnknown      *string                 `json:"used_unknown"`
	Rest             *int64                  `json:"rest"` // used minus the known terms
	Unexplained      *int64                  `json:"unexplained"`
	UnexplainedShare *float64                `json:"unexplained_share"`
	UnexplainedWhy   *string                 `json:"unexplained_unknown"`
	Read             *int64                  `json:"read"`          // the nearest reading, also if memory changed between
	ReadAfterNS      *int64                  `json:"read_after_ns"` // negative: read before
	Steady           *bool                   `json:"steady"`
}

func newJSONDeviceAccounting(b *accounting.Account) *jsonDeviceAccounting {
	if b == nil {
		return nil
	}
	return &jsonDeviceAccounting{
		Scope: string(b.Scope), Processes: append([]string{}, b.Processes...), GPU: plain.Known(int64(b.GPU)), UsedBeforeJob: b.UsedBeforeJob,
		UsedPeak: plain.Known(b.UsedPeak), Missing: plain.NotEmpty(b.Missing), Peak: newJSONAccountingAt(&b.Peak), End: newJSONAccountingAt(&b.End),
	}
}

func newJSONAccountingAt(b *accounting.Balance) *jsonAccountingAt {
	known := func(bytes int64) *int64 {
		if undivided(b, bytes) {
			return nil
		}
		return &bytes
	}
	j := &jsonAccountingAt{
		TimeNS: plain.Known(b.At.Time), Requested: b.At.T, Internal: known(b.At.Rounding + b.At.Slack), Pending: b.At.Pending, Stranded: known(b.At.Stranded), Reserve: known(b.At.Reserve), Reusable: known(b.At.Reusable), External: known(b.At.External),
		NotRequested: b.At.NotRequested,
		Libraries:    append([]accounting.LibraryUse{}, b.Libraries...), OtherLibraries: b.Other(),
		Context: partOf(b, accounting.ContextPart, b.Context), Modules: partOf(b, accounting.ModulesPart, b.Modules),
		Loads: partOf(b, accounting.LoadsPart, b.Loads), Graphs: partOf(b, accounting.GraphsPart, b.Graphs),
		DriverOverhead: partOf(b, accounting.AllOverhead, b.Overhead()), OverheadUnknown: plain.NotEmpty(b.UnknownWhy), Pools: partOf(b, accounting.PoolsPart, b.Pools),
		ContextOfDevice: b.ContextOfDevice, ContextIsAll: b.ContextIsAll, ContextRefuted: b.ContextRefuted,
		Managed: b.Managed, HostPinned: b.HostPinned, Explained: b.Sum(),
	}
	if r := b.Read; r.Valid {
		j.Read, j.ReadAfterNS, j.Steady = &r.Used, &r.After, &r.Steady
		if b.UsedUnknown == "" {
			rest := b.Rest
			j.Used, j.Rest = &r.Used, &rest
		}
		if b.UnexplainedUnknown == "" {
			unexplained := b.Unexplained
			j.Unexplained, j.UnexplainedShare = &unexplained, plain.Finite(plain.Ratio(b.Unexplained, r.Used))
		}
	}
	j.UsedUnknown, j.UnexplainedWhy = plain.NotEmpty(b.UsedUnknown), plain.NotEmpty(b.UnexplainedUnknown)
	return j
}

// partOf is nil if one of some parts is unknown.
func partOf(b *accounting.Balance, parts accounting.OverheadParts, bytes int64) *int64 {
	if b.Unknown.Has(parts) {
		return nil
	}
	return &bytes
}
