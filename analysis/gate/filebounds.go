package gate

import (
	"fmt"

	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"

	"github.com/memprof/memprof/analysis/plain"
)

// Bounds of a file of gates, far above what one needs. The parser's time grows with the square of
// the keys of a mapping, and its memory with that of the nesting.
const (
	mostFileBytes   = 1 << 20
	mostFileDepth   = 16     // lists and mappings in one another
	mostFileEntries = 10_000 // of all lists and mappings
	mostFileMarks   = 16     // anchors, aliases and tags, which no gate needs
)

// checkFileBounds refuses a text that is too deep or has too many entries for the parser. It reads tokens
// only, in time linear in the text.
func checkFileBounds(path, text string) error {
	var b fileBounds
	for _, at := range lexer.Tokenize(text) {
		b.take(at)
		var what string
		most := 0
		switch {
		case b.depth() > mostFileDepth:
			what, most = "levels of lists and mappings", mostFileDepth
		case b.entries > mostFileEntries:
			what, most = "entries of lists and mappings", mostFileEntries
		case b.marks > mostFileMarks:
			what, most = "anchors, aliases and tags", mostFileMarks
		default:
			continue
		}
		return fmt.Errorf("%s:%d:%d: more than %s %s, the limit for a file of gates", path, at.Position.Line, at.Position.Column, plain.FormatCount(int64(most)), what)
	}
	return nil
}

// fileBounds counts over the tokens so far.
type fileBounds struct {
	columns []int // at which the lists and mappings begin that an indent makes
	flow    int   // [ and { that are open
	entries int
	marks   int
	last    *token.Token
}

func (b *fileBounds) depth() int { return len(b.columns) + b.flow }

func (b *fileBounds) take(at *token.Token) {
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

// entry counts the first token of an entry of a list or mapping. Inside brackets indentation means nothing.
func (b *fileBounds) entry(at *token.Token) {
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
