package snapshot

import (
	"fmt"
	"strings"

	"github.com/memprof/memprof/trace"
)

// stacks numbers lists of frames as a tree that begins at the outermost ones.
type stacks struct {
	nodes  stackTree
	texts  []string // of frames, by number less 1
	frames map[string]int32
	last   []int64 // the nodes of the last list, the outermost first
}

func newStacks() *stacks { return &stacks{nodes: newStackTree(), frames: map[string]int32{}} }

// number is that of a list of frames, innermost first; 0 of an empty one. The decoder forgets the
// frames of a list that has a number: there are as many lists as requests.
func (s *stacks) number(d *decoder, frames value) (int64, error) {
	if frames.kind != kindList {
		return 0, nil
	}
	word := *d.lists.at(frames.n)
	if word&listOpen == 0 {
		return int64(word), nil
	}
	items := d.open[word&^listOpen]
	node, last := int64(0), s.last
	s.last = s.last[:0]
	shared := true // with the last list, from the outermost frame on
	for at := range items {
		frame, err := s.frame(d, items[len(items)-1-at])
		if err != nil {
			return 0, err
		}
		key := stackNode{node, frame}
		if shared = shared && at < len(last) && s.nodes.of(last[at]) == key; shared {
			node = last[at]
			s.last = append(s.last, node)
			continue
		}
		next, slot := s.nodes.find(key)
		if next == 0 {
			if err := d.keep(64); err != nil {
				return 0, err
			}
			next = s.nodes.add(key, slot)
		}
		node = next
		s.last = append(s.last, node)
	}
	d.budget += 16 * int64(len(items))
	d.closeList(frames.n, node)
	return node, nil
}

// frame is the number of a frame's text.
func (s *stacks) frame(d *decoder, v value) (int32, error) {
	found := d.dict(v)
	if found != nil && found.frame != 0 {
		return found.frame, nil
	}
	text, file := clean(d.textOf(found.valueOf(keyName))), clean(d.textOf(found.valueOf(keyFile)))
	if file != "" {
		text = fmt.Sprintf("%s (%s:%d)", text, file, max(found.valueOf(keyLine).integer(), 0))
	}
	number, known := s.frames[text]
	if !known {
		if err := d.keep(2*int64(len(text)) + 64); err != nil {
			return 0, err
		}
		s.texts = append(s.texts, text)
		number = int32(len(s.texts))
		s.frames[text] = number
	}
	if found != nil {
		found.frame = number
	}
	return number, nil
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
	node := l.stacks.nodes.of(number)
	parent, err := l.stack(node.parent)
	if err != nil {
		return 0, err
	}
	own := int64(len(l.written) + 1)
	l.written[number] = own
	return own, l.mark(trace.Event{Kind: trace.KindStack, Requested: own, Provided: parent, Context: l.w.Intern(l.stacks.texts[node.frame-1])})
}

// longestName bounds the bytes of a name that are kept.
const longestName = 4096

// clean keeps a text from being taken for several fields, or for none, and cuts it.
func clean(text string) string {
	text = text[:min(len(text), longestName)]
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
}
