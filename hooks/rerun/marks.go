package rerun

/*
#include <stdlib.h>
#include "hook.h"
*/
import "C"

import "unsafe"

// Context is the hook's number of a text: the origin of requests, or the label of a block. 0 is none.
type Context uint32

// Context returns the number of a text; 0 for "".
func (s *Requester) Context(text string) Context {
	if text == "" {
		return 0
	}
	cText := C.CString(text)
	defer C.free(unsafe.Pointer(cText))
	return Context(C.rerun_hook_context(cText))
}

// StackNode returns the number of the call stack whose innermost frame is called from the stack `parent`,
// which is 0 for an outermost frame.
func (s *Requester) StackNode(parent uint32, frame string) uint32 {
	text := C.CString(frame)
	defer C.free(unsafe.Pointer(text))
	return uint32(C.rerun_hook_stack_node(C.uint32_t(parent), text))
}

// Label labels the block at an address.
func (s *Requester) Label(address uintptr, context Context) {
	C.rerun_hook_label(C.uint64_t(address), C.uint32_t(context))
}

// Iteration marks the end of an iteration.
func (s *Requester) Iteration(label string) {
	C.rerun_hook_iteration(s.name(label))
}

// PhaseBegin marks the beginning of a phase.
func (s *Requester) PhaseBegin(name string) {
	C.rerun_hook_phase_begin(s.name(name))
}

// PhaseEnd marks the end of a phase.
func (s *Requester) PhaseEnd(name string) {
	C.rerun_hook_phase_end(s.name(name))
}

func (s *Requester) name(value string) *C.char {
	if text, ok := s.names[value]; ok {
		return text
	}
	text := C.CString(value)
	s.names[value] = text
	return text
}
