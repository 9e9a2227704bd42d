package main

import (
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/report/units"
)

// Bounds of a file of gates, far above what one needs. The parser's time grows with the square of
// the keys of a mapping, and its memory with that of the nesting.
const (
	mostGateBytes   = 1 << 20
	mostGateDepth   = 16     // lists and mappings in one another
	mostGateEntries = 10_000 // of all lists and mappings
	mostGateMarks   = 16     // anchors, aliases and tags, which no gate needs
)

// checkGateBounds fails where a text is nested too deeply, or has too many entries, to be given to
// the parser. It looks at tokens alone, in time linear in the text.
func checkGateBounds(path, text string) error {
	var b gateBounds
	for _, at := range lexer.Tokenize(text) {
		b.take(at)
		var what string
		most := 0
		switch {
		case b.depth() > mostGateDepth:
			what, most = "levels of lists and mappings", mostGateDepth
		case b.entries > mostGateEntries:
			what, most = "entries of lists and mappings", mostGateEntries
		case b.marks > mostGateMarks:
			what, most = "anchors, aliases and tags", mostGateMarks
		default:
			continue
		}
		return exit.Usagef("%s:%d:%d: more than %s %s, the most that a file of gates may have", path, at.Position.Line, at.Position.Column, units.FormatCount(int64(most)), what)
	}
	return nil
}

// gateBounds is what the tokens so far come to.
type gateBounds struct {
	columns []int // at which the lists and mappings begin that an indent makes
	flow    int   // [ and { that are open
	entries int
	marks   int
	last    *token.Token
}

func (b *gateBounds) depth() int { return len(b.columns) + b.flow }

func (b *gateBounds) take(at *token.Token) {
	switch at.Type {
	case token.SequenceStartType, token.MappingStartType:
		b.flow++
	case token.SequenceEndType, token.MappingEndType:
		b.flow = max(0, b.flow-1)
	case token.CollectEntryType:
		b.entries++
	case token.SequenceEntryType, token.MappingKeyType:
		b.entry(at)
	case token.MappingValueType:
		if b.last != nil && b.last.Position.Line == at.Position.Line {
			b.entry(b.last) // the key, which is before its colon
		} else {
			b.entry(at)
		}
	case token.AnchorType, token.AliasType, token.TagType:
		b.marks++
	case token.DocumentHeaderType, token.DocumentEndType:
		b.columns, b.flow = nil, 0
	}
	b.last = at
}

// entry takes what begins an entry of a list or mapping. Between brackets indents mean nothing.
func (b *gateBounds) entry(at *token.Token) {
	b.entries++
	if b.flow > 0 {
		return
	}
	column := at.Position.Column
	for len(b.columns) > 0 && b.columns[len(b.columns)-1] >= column {
		b.columns = b.columns[:len(b.columns)-1]
	}
	b.columns = append(b.columns, column)
}
