package snapshot

import (
	"fmt"
	"strings"

	"github.com/memprof/memprof/analysis/snapshot/pickle"
)

// stacks numbers lists of frames as a tree that begins at the outermost ones.
type stacks struct {
	nodes  stackTree
	texts  []string // of frames, by number less 1
	frames map[string]int32
	last   []int64 // the nodes of the last list, the outermost first
	own    []role  // of the frames by themselves, by number less 1
	roles  []role  // of the first nodes, by number less 1
}

func newStacks() *stacks { return &stacks{nodes: newStackTree(), frames: map[string]int32{}} }

// number is that of a list of frames, innermost first; 0 of an empty one. The decoder forgets the
// frames of a list that has a number: there are as many lists as requests.
func (s *stacks) number(d *pickle.Decoder, frames pickle.Value) (int64, error) {
	if frames.Kind != pickle.KindList {
		return 0, nil
	}
	items, number, open := d.List(frames)
	if !open {
		return number, nil
	}
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
			if err := d.Keep(64); err != nil {
				return 0, err
			}
			next = s.nodes.add(key, slot)
		}
		node = next
		s.last = append(s.last, node)
	}
	d.Replace(frames, node)
	return node, nil
}

// frame is the number of a frame's text.
func (s *stacks) frame(d *pickle.Decoder, v pickle.Value) (int32, error) {
	found := d.Dict(v)
	if found != nil && found.Note != 0 {
		return found.Note, nil
	}
	text, file := clean(d.Text(found.Value(keyName))), clean(d.Text(found.Value(keyFile)))
	if file != "" {
		text = fmt.Sprintf("%s (%s:%d)", text, file, max(found.Value(keyLine).Integer(), 0))
	}
	number, known := s.frames[text]
	if !known {
		if err := d.Keep(2*int64(len(text)) + 64); err != nil {
			return 0, err
		}
		s.texts, s.own = append(s.texts, text), append(s.own, roleOf(text))
		number = int32(len(s.texts))
		s.frames[text] = number
	}
	if found != nil {
		found.Note = number
	}
	return number, nil
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
