package export

import (
	"slices"
	"strconv"
	"strings"

	"github.com/memprof/memprof/trace"
)

// maxFrames is how many frames of a stack are written, the innermost ones.
const maxFrames = 256

// frame is one function on a stack. Of a text that is no "function (file:line)" all is the name.
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

// stackTree is the stacks that a process has told so far.
type stackTree struct {
	nodes map[int64]stackNode
	text  func(int32) string
}

type stackNode struct {
	parent  int64 // a node with a smaller number; 0 for none
	context int32
}

// add takes a stack event. A node that was told before stays what it was.
func (s *stackTree) add(e *trace.Event) {
	if s.nodes == nil {
		s.nodes = map[int64]stackNode{}
	}
	number, parent := e.StackNode()
	if _, known := s.nodes[number]; known || number <= 0 {
		return
	}
	if parent < 0 || parent >= number { // would be its own caller, in the end
		parent = 0
	}
	s.nodes[number] = stackNode{parent, e.Context}
}

// frames are those of a node, innermost first; none for a node that was not told.
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

// outermostFirst is the other order.
func outermostFirst(frames []frame) []frame {
	slices.Reverse(frames)
	return frames
}
