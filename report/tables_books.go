package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/memprof/memprof/analysis"
)

// Other libraries that have a row of their own; the rest share one.
const booksLibraries = 8

// booksSections is what the process, or all of them, had in use of the device and what for;
// none for a result that no books were made of.
func booksSections(d *analysis.DeviceResult) []section {
	b := d.Books
	if b == nil {
		return nil
	}
	s := section{title: "The books"}
	if b.Missing != "" {
		s.before = toned(faint, note("how much of the device was in use is unknown: "+shorten(b.Missing, 160)))
		if b.Peak.Sum() == b.Peak.At.R && b.End.Sum() == b.End.At.R { // the split tells as much
			return []section{s}
		}
	} else {
		s.before = note(booksScope(b))
	}
	s.columns = []column{
		words("part"), numbers("peak"), numbers("share"), numbers("end"), numbers("share"), words("what it is"),
	}
	for _, term := range booksTerms(b) {
		s.rows = append(s.rows, booksRow(b, term))
	}
	s.total = toned(strong, booksRow(b, booksTotal(b)))
	s.after = booksNotes(b)
	return []section{s}
}

// booksScope says whose use it is.
func booksScope(b *analysis.Books) string {
	if b.Scope == analysis.ScopeProcess {
		return fmt.Sprintf("used: what the driver says this process uses of GPU %d, at most %s", b.GPU, FormatSize(b.UsedPeak))
	}
	if b.Scope == analysis.ScopeCard {
		return fmt.Sprintf("used: the whole card as this process read it (cuMemGetInfo), other processes included, at most %s", FormatSize(b.UsedPeak))
	}
	of := ""
	if n := len(b.Processes); n > 1 {
		names := make([]string, 0, 4)
		for _, name := range b.Processes[:min(n, 4)] {
			names = append(names, shorten(name, 16))
		}
		of = "; the sum of " + strings.Join(names, ", ")
		if n > 4 {
			of += fmt.Sprintf(" and %d more", n-4)
		}
	}
	return fmt.Sprintf("used: the whole card, GPU %d, other processes included, at most %s; before the job it was %s%s",
		b.GPU, FormatSize(b.UsedPeak), FormatSize(b.Baseline), of)
}

// booksTerm is a line of the books.
type booksTerm struct {
	name, meaning string
	bytes         func(*analysis.Book) int64
	unknown       func(*analysis.Book) bool // nil: never
	tone          tone
	ofChunks      bool // not told of a watched allocator
}

// booksTerms are the lines that add up to what is used, without their sum.
func booksTerms(b *analysis.Books) []booksTerm {
	terms := []booksTerm{
		{name: "tensors", meaning: "asked for, live", bytes: func(b *analysis.Book) int64 { return b.At.T }},
		{name: "internal", meaning: "rounding and slack", bytes: func(b *analysis.Book) int64 { return b.At.Rounding + b.At.Slack }, ofChunks: true},
		{name: "pending", meaning: "freed, waiting", bytes: func(b *analysis.Book) int64 { return b.At.Pending }},
		{name: "reserve", meaning: "mapped ahead of need", bytes: func(b *analysis.Book) int64 { return b.At.Reserve }, ofChunks: true},
		{name: "external", meaning: "holes, free now", bytes: func(b *analysis.Book) int64 { return b.At.External }, tone: warned, ofChunks: true},
	}
	if b.Peak.At.Unsplit != 0 || b.End.At.Unsplit != 0 {
		terms = slices.DeleteFunc(terms, func(t booksTerm) bool { return t.ofChunks && t.bytes(&b.Peak) == 0 && t.bytes(&b.End) == 0 })
		terms = append(terms, booksTerm{name: "not told apart", meaning: "internal, reserve, external", bytes: func(b *analysis.Book) int64 { return b.At.Unsplit }, tone: warned})
	}
	terms = append(terms, libraryTerms(b)...)
	if b.Peak.Pools != 0 || b.End.Pools != 0 || (b.Peak.Unknown | b.End.Unknown).Has(analysis.PoolsPart) {
		terms = append(terms, booksTerm{name: "idle in pools", meaning: "kept by the driver", bytes: func(b *analysis.Book) int64 { return b.Pools }, unknown: lacks(analysis.PoolsPart)})
	}
	terms = append(terms, overheadTerms(b)...)
	terms = append(terms, booksTerm{
		name: "unexplained", meaning: "used, in none of these", bytes: func(b *analysis.Book) int64 { return b.Unexplained },
		unknown: func(b *analysis.Book) bool { return b.UnexplainedUnknown != "" },
	})
	if b.Missing == "" && (b.Peak.UnexplainedUnknown != "" || b.End.UnexplainedUnknown != "") {
		meaning := "unknown parts, together"
		if b.Scope != analysis.ScopeProcess {
			meaning = "with other processes"
		}
		terms = append(terms, booksTerm{name: "rest", meaning: meaning, bytes: restOf, unknown: usedUnknown})
	}
	return terms
}

// overheadTerms are the lines of driver overhead: one, or where some of it is unknown what is
// known and the rest.
func overheadTerms(b *analysis.Books) []booksTerm {
	known := func(b *analysis.Book) int64 { return b.Overhead() }
	if !(b.Peak.Unknown | b.End.Unknown).Has(analysis.AllOverhead) {
		return []booksTerm{{name: "driver overhead", meaning: "context, code, graphs", bytes: known}}
	}
	var terms []booksTerm
	if b.Peak.Overhead() != 0 || b.End.Overhead() != 0 {
		terms = append(terms, booksTerm{name: "driver overhead", meaning: "as far as it is known", bytes: known})
	}
	return append(terms, booksTerm{name: "more driver overhead", meaning: "see below", bytes: func(*analysis.Book) int64 { return 0 }, unknown: lacks(analysis.AllOverhead)})
}

// lacks says whether one of some parts is unknown.
func lacks(parts analysis.OverheadParts) func(*analysis.Book) bool {
	return func(b *analysis.Book) bool { return b.Unknown.Has(parts) }
}

// restOf is what unknown parts have together; nothing where none is unknown.
func restOf(b *analysis.Book) int64 {
	if b.UnexplainedUnknown == "" {
		return 0
	}
	return b.Rest
}

func usedUnknown(b *analysis.Book) bool { return b.UsedUnknown != "" }

func booksTotal(b *analysis.Books) booksTerm {
	if b.Missing != "" {
		return booksTerm{name: "= explained", meaning: "used memory was not read", bytes: func(b *analysis.Book) int64 { return b.Sum() }}
	}
	return booksTerm{name: "= used", meaning: "as the driver says", bytes: func(b *analysis.Book) int64 { return b.Read.Used }, unknown: usedUnknown}
}

// libraryTerms are the other libraries at the peak or the end, the greatest first.
func libraryTerms(b *analysis.Books) []booksTerm {
	most := map[string]int64{}
	for _, book := range []*analysis.Book{&b.Peak, &b.End} {
		for _, l := range book.Libraries {
			most[l.Name] = max(most[l.Name], l.Bytes)
		}
	}
	var names []string
	for name := range most {
		names = append(names, name)
	}
	slices.SortFunc(names, func(x, y string) int { return cmp.Or(cmp.Compare(most[y], most[x]), cmp.Compare(x, y)) })
	shown := names
	if len(names) > booksLibraries {
		shown = names[:booksLibraries-1]
	}
	var terms []booksTerm
	for _, name := range shown {
		title := shorten(name, 24)
		if name == "" {
			title = "a library without a name"
		}
		terms = append(terms, booksTerm{name: title, meaning: "another library", bytes: bytesOf(name)})
	}
	if rest := names[len(shown):]; len(rest) > 0 {
		terms = append(terms, booksTerm{
			name: "… " + formatCount(int64(len(rest))) + " more", meaning: "other libraries", bytes: bytesOf(rest...), tone: faint,
		})
	}
	return terms
}

// bytesOf sums up what some libraries have.
func bytesOf(names ...string) func(*analysis.Book) int64 {
	return func(b *analysis.Book) (sum int64) {
		for _, l := range b.Libraries {
			if slices.Contains(names, l.Name) {
				sum += l.Bytes
			}
		}
		return sum
	}
}

// booksRow is a line at the peak and at the end. Shares are of what was used.
func booksRow(b *analysis.Books, term booksTerm) []cell {
	line := row(term.name)
	zero := true
	for _, book := range []*analysis.Book{&b.Peak, &b.End} {
		if term.unknown != nil && term.unknown(book) {
			line = append(line, row("unknown", absent)...)
			zero = false
			continue
		}
		bytes, percent := term.bytes(book), absent
		if book.UsedUnknown == "" {
			percent = FormatPercent(ratio(bytes, book.Read.Used))
		}
		line = append(line, row(FormatSize(bytes), percent)...)
		zero = zero && bytes == 0
	}
	line = append(line, row(term.meaning)...)
	switch {
	case zero:
		return toned(faint, line)
	case term.tone == faint:
		return toned(faint, line)
	case term.tone != plain:
		line[2].tone, line[4].tone = term.tone, term.tone
	}
	return line
}

// booksNotes say when the readings were taken and what is in no sum.
func booksNotes(b *analysis.Books) []cell {
	var notes []cell
	for _, at := range []struct {
		name string
		book *analysis.Book
	}{{"the peak", &b.Peak}, {"the end", &b.End}} {
		if !at.book.Read.Valid {
			continue
		}
		text := at.name + ", " + FormatDuration(at.book.At.Time) + " after the start: read " + readingDistance(at.book.Read.After)
		if at.book.UsedUnknown == "" {
			notes = append(notes, note(text)...)
		} else {
			notes = append(notes, toned(warned, note(at.name+", "+FormatDuration(at.book.At.Time)+" after the start: used is unknown: "+at.book.UsedUnknown+
				"; the nearest reading, "+readingDistance(at.book.Read.After)+", is "+FormatSize(at.book.Read.Used)))...)
		}
	}
	if p := &b.Peak; p.Overhead() != 0 || p.Unknown.Has(analysis.AllOverhead) {
		part := func(of analysis.OverheadParts, bytes int64) string {
			if p.Unknown.Has(of) {
				return "unknown"
			}
			return FormatSize(bytes)
		}
		notes = append(notes, note(fmt.Sprintf("driver overhead at the peak: context %s, modules %s, libraries %s, graphs %s",
			part(analysis.ContextPart, p.Context), part(analysis.ModulesPart, p.Modules), part(analysis.LoadsPart, p.Loads), part(analysis.GraphsPart, p.Graphs)))...)
	}
	notes = append(notes, unknownNotes(b)...)
	if p := &b.Peak; p.Managed != 0 || p.HostPinned != 0 {
		notes = append(notes, note(fmt.Sprintf("in no sum, at the peak: %s managed, %s of the host's pinned", FormatSize(p.Managed), FormatSize(p.HostPinned)))...)
	}
	return notes
}

// unknownNotes say why parts are unknown.
func unknownNotes(b *analysis.Books) []cell {
	var notes []cell
	if why := cmp.Or(b.Peak.UnknownWhy, b.End.UnknownWhy); why != "" {
		text := "unknown driver overhead: " + why
		if refuted := max(b.Peak.ContextRefuted, b.End.ContextRefuted); refuted != 0 {
			text += " (a context, as " + FormatSize(refuted) + ")"
		}
		notes = append(notes, toned(warned, note(text))...)
	}
	for _, book := range []*analysis.Book{&b.Peak, &b.End} {
		if b.Missing == "" && book.UsedUnknown == "" && book.UnexplainedUnknown != "" {
			return append(notes, note("unexplained is unknown: "+book.UnexplainedUnknown)...)
		}
	}
	return notes
}

func readingDistance(after int64) string {
	switch {
	case after == 0:
		return "then, or the same before and after"
	case after < 0:
		return FormatDuration(-after) + " before"
	}
	return FormatDuration(after) + " later"
}
