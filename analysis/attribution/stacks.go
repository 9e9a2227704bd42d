package attribution

import (
	"slices"
	"strings"

	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/trace"
)

// MaxFrames is how many frames of a stack are listed, the innermost ones.
const MaxFrames = 256

// stacks are trees of frames: nodes point to their callers.
type stacks struct {
	nodes map[int64]stackNode
	index map[stackNode]int64 // the first node with a caller and a frame

	shorter map[int64]int64 // what is shown of a stack; see shown
	classes map[int32]frameClass
	made    int64 // the last number of a node that no event has
}

type stackNode struct {
	parent  int64 // a node with a smaller number; 0 for the outermost frame
	context int32 // the frame's text
}

// add takes a stack event. A node that came before stays what it was: the opening rows of a part
// repeat nodes.
func (s *stacks) add(e *trace.Event) {
	if s.nodes == nil {
		s.nodes, s.index = map[int64]stackNode{}, map[stackNode]int64{}
	}
	number, parent := e.StackNode()
	if _, known := s.nodes[number]; known || number <= 0 {
		return
	}
	if parent < 0 || parent >= number { // a caller has a smaller number; others could form a ring
		parent = 0
	}
	n := stackNode{s.canonical(parent), e.Context}
	s.nodes[number] = n
	if _, known := s.index[n]; !known {
		s.index[n] = number
	}
}

// canonical is the first node with the same frames; 0 for a node that no event has.
func (s *stacks) canonical(node int64) int64 {
	n, known := s.nodes[node]
	if !known {
		return 0
	}
	return s.index[n]
}

// Frames are the texts of a stack, innermost first, at most MaxFrames; nil for node 0.
func (t *Tracker) Frames(node int64) []string {
	var frames []string
	for len(frames) < MaxFrames {
		n, known := t.stacks.nodes[node]
		if !known {
			break
		}
		frames = append(frames, t.opt.Text(n.context))
		node = n.parent
	}
	return frames
}

// StackOf is the stack of a context, without the frames that are not shown: the first node with the same frames; 0 for none.
func (t *Tracker) StackOf(context int32) int64 { return t.stackOf(t.parsed(context).stack) }

func (t *Tracker) stackOf(node int64) int64 {
	if node = t.stacks.canonical(node); t.opt.AllFrames {
		return node
	}
	return t.stacks.shown(node, t.opt.Text)
}

// Caller is the frame of a node and the node of its caller, 0 for the outermost frame.
func (t *Tracker) Caller(node int64) (frame string, caller int64) {
	n := t.stacks.nodes[node]
	return t.opt.Text(n.context), n.parent
}

// LineOf is the line that allocated two thirds of the requested bytes of blocks, itself or through what it called: the innermost such line, as
// UserLine has it. "" where no line did.
func (t *Tracker) LineOf(blocks []ledger.Block) string {
	sums := map[int64]int64{}
	total := int64(0)
	for i := range blocks {
		sums[t.StackOf(blocks[i].Context)] += blocks[i].Requested
		total += blocks[i].Requested
	}
	var stacks [][]string // outermost first
	var bytes []int64
	for node, sum := range sums {
		frames := t.Frames(node)
		slices.Reverse(frames)
		stacks, bytes = append(stacks, frames), append(bytes, sum)
	}
	var path []string
	for depth := range MaxFrames {
		next, most := map[string]int64{}, ""
		for i, frames := range stacks {
			if depth < len(frames) && slices.Equal(frames[:depth], path) {
				if next[frames[depth]] += bytes[i]; next[frames[depth]] > next[most] {
					most = frames[depth]
				}
			}
		}
		if 3*next[most] < 2*total || most == "" {
			break
		}
		path = append(path, most)
	}
	slices.Reverse(path)
	return UserLine(path)
}

// UserLine is "file:line" of the innermost of some frames that is of the job's own code, else of a package, else "".
func UserLine(frames []string) string {
	line := ""
	for _, frame := range frames {
		open := strings.LastIndex(frame, " (")
		if open < 0 || strings.HasPrefix(frame[open:], " (<") {
			continue
		}
		place := strings.TrimSuffix(frame[open+2:], ")")
		if isModule(place) {
			continue // it has no line; that which calls it does
		}
		switch classOf(frame) {
		case userCode:
			return place
		case installed:
			if line == "" {
				line = place
			}
		}
	}
	return line
}
