package analysis

import (
	"strconv"
	"strings"

	"github.com/memprof/memprof/trace"
)

// maxFrames is how many frames of a stack are told, the innermost ones.
const maxFrames = 256

// requester is a context, parsed. Of a field that comes twice the first counts.
type requester struct {
	text   string // the whole text, if it has no field that is known
	module string // dotted path
	stack  int64  // node of the innermost frame; 0 for none

	category Category // of a label; noCategory for none
}

// name tells requesters apart where there is no room for a stack.
func (r *requester) name() string {
	if r.module != "" {
		return r.module
	}
	return r.text
}

// depth is the number of components of the module's path.
func (r *requester) depth() int {
	if r.module == "" {
		return 0
	}
	return 1 + strings.Count(r.module, ".")
}

// prefix is the first n components of the module's path, or the whole of a name that is none.
func (r *requester) prefix(n int) string {
	if r.module == "" {
		return r.text
	}
	end := 0
	for range n {
		next := strings.IndexByte(r.module[end:], '.')
		if next < 0 {
			return r.module
		}
		end += next + 1
	}
	return r.module[:end-1]
}

// requester parses each distinct context once.
func (a *analyzer) requester(context int32) *requester {
	if r, ok := a.requesters[context]; ok {
		return r
	}
	if a.requesters == nil {
		a.requesters = map[int32]*requester{}
	}
	r := parseRequester(a.opt.Text(context))
	a.requesters[context] = &r
	return &r
}

func parseRequester(text string) requester {
	var r requester
	var modules, stacks, categories, names bool
	for field := range strings.SplitSeq(text, "\t") {
		name, value, found := strings.Cut(field, "=")
		if !found {
			continue
		}
		switch {
		case name == "module" && !modules:
			modules, r.module = true, value
		case name == "stack" && !stacks:
			node, err := strconv.ParseInt(value, 10, 64)
			if err == nil && node > 0 {
				stacks, r.stack = true, node
			}
		case name == "category" && !categories:
			categories, r.category = true, parseCategory(value)
		case name == "name":
			names = true
		}
	}
	if !modules && !stacks && !categories && !names {
		r.text = text
	}
	return r
}

// stacks are trees of frames: nodes point to their callers.
type stacks struct {
	nodes map[int64]stackNode
	index map[stackNode]int64 // the first node with a caller and a frame
}

type stackNode struct {
	parent  int64 // a node with a smaller number; 0 for the outermost frame
	context int32 // the frame's text
}

// add takes a stack event. A node that was told before, as a part's opening rows do, stays what
// it was.
func (s *stacks) add(e *trace.Event) {
	if s.nodes == nil {
		s.nodes, s.index = map[int64]stackNode{}, map[stackNode]int64{}
	}
	if _, known := s.nodes[e.Requested]; known || e.Requested <= 0 {
		return
	}
	parent := e.Provided
	if parent < 0 || parent >= e.Requested { // would be its own caller, in the end
		parent = 0
	}
	n := stackNode{s.canonical(parent), e.Context}
	s.nodes[e.Requested] = n
	if _, known := s.index[n]; !known {
		s.index[n] = e.Requested
	}
}

// canonical is the first node with the same frames; 0 for a node that was not told.
func (s *stacks) canonical(node int64) int64 {
	n, known := s.nodes[node]
	if !known {
		return 0
	}
	return s.index[n]
}

// frames are the texts of a stack, innermost first; nil for no stack.
func (a *analyzer) frames(node int64) []string {
	var frames []string
	for len(frames) < maxFrames {
		n, known := a.stacks.nodes[node]
		if !known {
			break
		}
		frames = append(frames, a.opt.Text(n.context))
		node = n.parent
	}
	return frames
}
