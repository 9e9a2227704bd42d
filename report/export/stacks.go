package export

import (
	"strconv"
	"strings"

	"github.com/memprof/memprof/trace"
)

// maxFrames bounds the frames written of a stack: the innermost ones.
const maxFrames = 256

// frame is one function on a stack. A text that is not "function (file:line)" is the function as a whole.
type frame struct {
	function, file string
	line           int64
}

func parseFrame(text string) frame {
	open := strings.LastIndex(text, " (")
	place, closed := strings.CutSuffix(text, ")")
	if open < 0 || !closed {
		return frame{function: text}
	}
	place = place[open+2:]
	colon := strings.LastIndexByte(place, ':')
	if colon < 0 {
		return frame{function: text}
	}
	line, err := strconv.ParseInt(place[colon+1:], 10, 32)
	if err != nil || line < 0 {
		return frame{function: text}
	}
	return frame{text[:open], place[:colon], line}
}

// stackTree has the stacks that a process has recorded so far.
type stackTree struct {
	nodes map[int64]stackNode
	text  func(int32) string
}

type stackNode struct {
	parent  int64 // a node with a smaller number; 0 for none
	context int32
}

// add takes a stack event. A node that is already known does not change.
func (s *stackTree) add(e *trace.Event) {
	if s.nodes == nil {
		s.nodes = map[int64]stackNode{}
	}
	number, parent := e.StackNode()
	if _, known := s.nodes[number]; known || number <= 0 {
		return
	}
	if parent < 0 || parent >= number { // would form a cycle
		parent = 0
	}
	s.nodes[number] = stackNode{parent, e.Context}
}

// frames returns the frames of a node, innermost first; nil for an unknown node.
func (s *stackTree) frames(node int64) []frame {
	var frames []frame
	for len(frames) < maxFrames {
		n, known := s.nodes[node]
		if !known {
			break
		}
		frames = append(frames, parseFrame(s.text(n.context)))
		node = n.parent
	}
	return frames
}
