package snapshot

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memprof/memprof/trace"
)

// stacks numbers lists of frames as a tree that begins at the outermost ones.
type stacks struct {
	numbers map[stackNode]int64
	nodes   []stackNode // by number less 1; a parent has a lesser number
}

type stackNode struct {
	parent int64
	text   string
}

func newStacks() *stacks { return &stacks{numbers: map[stackNode]int64{}} }

// number is that of a list of frames, innermost first; 0 of an empty one. A list is looked at
// once for each decoder.
func (s *stacks) number(d *decoder, frames value) int64 {
	if frames.kind != kindList || len(d.lists[frames.n].items) == 0 {
		return 0
	}
	if node := d.lists[frames.n].stack; node != 0 {
		return node
	}
	node := int64(0)
	for _, frame := range slices.Backward(d.lists[frames.n].items) {
		found := d.dict(frame)
		name, file := clean(d.textOf(d.field(found, "name"))), clean(d.textOf(d.field(found, "filename")))
		text := name
		if file != "" {
			text = fmt.Sprintf("%s (%s:%d)", name, file, max(d.field(found, "line").integer(), 0))
		}
		key := stackNode{node, text}
		next, known := s.numbers[key]
		if !known {
			s.nodes = append(s.nodes, key)
			next = int64(len(s.nodes))
			s.numbers[key] = next
		}
		node = next
	}
	d.lists[frames.n].stack = node
	return node
}

// stack writes the stack events that a stack needs and that were not written for the device, and
// returns the stack's number there.
func (l *layout) stack(number int64) (int64, error) {
	if number == 0 {
		return 0, nil
	}
	if own, known := l.written[number]; known {
		return own, nil
	}
	node := l.stacks.nodes[number-1]
	parent, err := l.stack(node.parent)
	if err != nil {
		return 0, err
	}
	own := int64(len(l.written) + 1)
	l.written[number] = own
	return own, l.mark(trace.Event{Kind: trace.KindStack, Requested: own, Provided: parent, Context: l.w.Intern(node.text)})
}

// clean keeps a text from being taken for several fields, or for none.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
}
