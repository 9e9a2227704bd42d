package attribution

import (
	"strings"

	"github.com/memprof/memprof/trace"
)

// parsed is what a context says.
type parsed struct {
	origin Origin // the module, or the whole text if it has no field that is known
	stack  int64  // node of the innermost frame; 0 for none

	category Category // of a label; NoCategory for none
	labelled Origin   // by a label: the module whose parameter it names
}

// Origin is the name of what requested a block; Name is "" where nothing has one.
type Origin struct {
	Name   string
	Module bool // Name is the dotted path of a module
}

// Kind is the name with each number in a module's path replaced by "*".
func (o Origin) Kind() string {
	if !o.Module {
		return o.Name
	}
	parts := strings.Split(o.Name, ".")
	for i, part := range parts {
		if part != "" && strings.Trim(part, "0123456789") == "" {
			parts[i] = "*"
		}
	}
	return strings.Join(parts, ".")
}

// depth is the number of components of the module's path.
func (o Origin) depth() int {
	if !o.Module {
		return 0
	}
	return 1 + strings.Count(o.Name, ".")
}

// prefix is the first n components of the module's path, or the whole of a name that is none.
func (o Origin) prefix(n int) string {
	if !o.Module {
		return o.Name
	}
	end := 0
	for range n {
		next := strings.IndexByte(o.Name[end:], '.')
		if next < 0 {
			return o.Name
		}
		end += next + 1
	}
	return o.Name[:end-1]
}

// without is the module that is left of a dotted name without its last n components.
func without(name string, n int) Origin {
	for range n {
		end := strings.LastIndexByte(name, '.')
		if end < 0 {
			return Origin{}
		}
		name = name[:end]
	}
	return Origin{name, name != ""}
}

// OriginOf is the origin of blocks with a context and a label: that of the context, or if that has
// no name (weights that were made outside of modules), the module whose parameter the label names.
func (t *Tracker) OriginOf(context, label int32) Origin {
	if o := t.parsed(context).origin; o.Name != "" || label == 0 {
		return o
	}
	return t.parsed(label).labelled
}

// LabelCategory is the category that a label names, NoCategory for none.
func (t *Tracker) LabelCategory(label int32) Category { return t.parsed(label).category }

// parsed returns what a context says; it parses each one once. Contexts are numbers of a dictionary, from 0 on.
func (t *Tracker) parsed(context int32) *parsed {
	if int(context) >= len(t.contexts) || t.contexts[context] == nil {
		t.parse(context)
	}
	return t.contexts[context]
}

func (t *Tracker) parse(context int32) {
	if missing := int(context) + 1 - len(t.contexts); missing > 0 {
		t.contexts = append(t.contexts, make([]*parsed, missing)...)
	}
	r := parseContext(t.opt.Text(context))
	t.contexts[context] = &r
}

// ParseOrigin returns the origin in the context of an alloc: name is the dotted path of a module, or the whole
// text if it has no field that is known; stack is the number of the innermost stack event, 0 for
// none.
func ParseOrigin(context string) (name string, stack int64) {
	r := parseContext(context)
	return r.origin.Name, r.stack
}

func parseContext(text string) parsed {
	var r parsed
	fields := trace.ParseContext(trace.KindAlloc, text)
	if label := fields.Name(); label != "" {
		r.origin = Origin{Name: label}
		return r
	}
	module := fields.Get("module")
	r.origin, r.stack = Origin{module, module != ""}, fields.Count("stack", 0)
	r.category = parseCategory(fields.Get("category"))
	switch r.category {
	case Weights, Gradients:
		r.labelled = without(fields.Get("name"), 1)
	case Optimizer: // a parameter, and what of its state
		r.labelled = without(fields.Get("name"), 2)
	}
	return r
}

// ModuleOf is the dotted path of the module in the context of an alloc, "" for none, and the number of its stack.
func ModuleOf(context string) (module string, stack int64) {
	r := parseContext(context)
	if r.origin.Module {
		module = r.origin.Name
	}
	return module, r.stack
}
