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
	owner       // the module, or the whole text if it has no field that is known
	stack int64 // node of the innermost frame; 0 for none

	category Category // of a label; noCategory for none
	labelled owner    // by a label: the module whose parameter it names
}

// owner is who a block is for, as far as it has a name.
type owner struct {
	name   string
	module bool // it is the dotted path of one
}

// kind is the name with the numbers in a module's path taken for the same.
func (o owner) kind() string {
	if !o.module {
		return o.name
	}
	parts := strings.Split(o.name, ".")
	for i, part := range parts {
		if part != "" && strings.Trim(part, "0123456789") == "" {
			parts[i] = "*"
		}
	}
	return strings.Join(parts, ".")
}

// depth is the number of components of the module's path.
func (o owner) depth() int {
	if !o.module {
		return 0
	}
	return 1 + strings.Count(o.name, ".")
}

// prefix is the first n components of the module's path, or the whole of a name that is none.
func (o owner) prefix(n int) string {
	if !o.module {
		return o.name
	}
	end := 0
	for range n {
		next := strings.IndexByte(o.name[end:], '.')
		if next < 0 {
			return o.name
		}
		end += next + 1
	}
	return o.name[:end-1]
}

// without is the module that is left of a dotted name without its last n components.
func without(name string, n int) owner {
	for range n {
		end := strings.LastIndexByte(name, '.')
		if end < 0 {
			return owner{}
		}
		name = name[:end]
	}
	return owner{name, name != ""}
}

// ownerOf is the owner of blocks with a context and a label: who asked for them, or if that has
// no name, as of weights that were made elsewhere, the module whose parameter it is.
func (a *analyzer) ownerOf(context, label int32) owner {
	if o := a.requester(context).owner; o.name != "" || label == 0 {
		return o
	}
	return a.requester(label).labelled
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

// RequesterOf is who asked for a block, by its alloc's context: the dotted path of a module, or
// the text of a requester that names none, or "", and the number of the innermost stack event,
// 0 for none.
func RequesterOf(context string) (name string, stack int64) {
	r := parseRequester(context)
	return r.owner.name, r.stack
}

func parseRequester(text string) requester {
	var r requester
	fields := map[string]string{}
	for field := range strings.SplitSeq(text, "\t") {
		key, value, found := strings.Cut(field, "=")
		if _, again := fields[key]; !found || again {
			continue
		}
		switch key {
		case "module", "category", "name":
			fields[key] = value
		case "stack":
			if node, err := strconv.ParseInt(value, 10, 64); err == nil && node > 0 {
				fields[key], r.stack = value, node
			}
		}
	}
	if len(fields) == 0 {
		r.owner = owner{name: text}
		return r
	}
	r.owner = owner{fields["module"], fields["module"] != ""}
	r.category = parseCategory(fields["category"])
	switch r.category {
	case Weights, Gradients:
		r.labelled = without(fields["name"], 1)
	case Optimizer: // a parameter, and what of its state
		r.labelled = without(fields["name"], 2)
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
