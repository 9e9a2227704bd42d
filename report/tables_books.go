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
		s.before = toned(faint, note("no reading of the device's used memory: "+shorten(b.Missing, 120)))
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
		return fmt.Sprintf("card, not process: all that the process itself read (cuMemGetInfo), by whomever it is used, at most %s; what others and the driver have on the card is unexplained", FormatSize(b.UsedPeak))
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
	return fmt.Sprintf("device, not process: all that is used of GPU %d less %s from before the job, at most %s%s",
		b.GPU, FormatSize(b.Baseline), FormatSize(b.UsedPeak), of)
}

// booksTerm is a line of the books.
type booksTerm struct {
	name, meaning string
	bytes         func(*analysis.Book) int64
	tone          tone
	needsReading  bool
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
	if b.Peak.Pools != 0 || b.End.Pools != 0 {
		terms = append(terms, booksTerm{name: "idle in pools", meaning: "kept by the driver", bytes: func(b *analysis.Book) int64 { return b.Pools }})
	}
	return append(terms,
		booksTerm{name: "context and modules", meaning: "measured as they came", bytes: func(b *analysis.Book) int64 { return b.Overhead() }},
		booksTerm{name: "unexplained", meaning: "used, in none of these", bytes: func(b *analysis.Book) int64 { return b.Unexplained }, needsReading: true})
}

func booksTotal(b *analysis.Books) booksTerm {
	if b.Missing != "" {
		return booksTerm{name: "= explained", meaning: "used memory was not read", bytes: func(b *analysis.Book) int64 { return b.Sum() }}
	}
	return booksTerm{name: "= used", meaning: "as the driver says", bytes: func(b *analysis.Book) int64 { return b.Read.Used }, needsReading: true}
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
		if !book.Read.Valid && term.needsReading {
			line = append(line, row(absent, absent)...)
			continue
		}
		bytes, percent := term.bytes(book), absent
		if book.Read.Valid {
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
		if at.book.Read.Steady {
			notes = append(notes, note(text)...)
		} else {
			notes = append(notes, toned(warned, note(text+"; changed in between, so unexplained has that too"))...)
		}
	}
	if p := &b.Peak; p.Overhead() != 0 {
		context := FormatSize(p.Context)
		if p.ContextRefuted != 0 {
			context = "not known"
		}
		notes = append(notes, note(fmt.Sprintf("context and modules at the peak: context %s, modules %s, libraries %s, graphs %s",
			context, FormatSize(p.Modules), FormatSize(p.Loads), FormatSize(p.Graphs)))...)
	}
	notes = append(notes, contextNotes(b)...)
	if p := &b.Peak; p.Managed != 0 || p.HostPinned != 0 {
		notes = append(notes, note(fmt.Sprintf("in no sum, at the peak: %s managed, %s of the host's pinned", FormatSize(p.Managed), FormatSize(p.HostPinned)))...)
	}
	return notes
}

// contextNotes say what the figure of a context is not.
func contextNotes(b *analysis.Books) []cell {
	refuted := max(b.Peak.ContextRefuted, b.End.ContextRefuted)
	switch {
	case refuted != 0:
		return toned(warned, note(fmt.Sprintf("a context was measured as %s, more than was used with it: memory of others is in that, and what is ours is unexplained", FormatSize(refuted))))
	case b.Peak.ContextIsAll || b.End.ContextIsAll:
		return toned(warned, note("a context could not be measured by itself: all that was in use when there was one stands for it"))
	case b.Peak.ContextOfDevice || b.End.ContextOfDevice:
		return note("context: what the device's use grew by while it was made; what others took or gave meanwhile is in it")
	}
	return nil
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
