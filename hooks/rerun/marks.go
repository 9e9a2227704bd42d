package rerun

/*
#include <stdlib.h>
#include "hook.h"
*/
import "C"

import "unsafe"

// Context is the hook's number of a text: the origin of requests, or the label of a block. 0 is none.
type Context uint32

// Context returns the number of a text; 0 for "", and without a hook.
func (s *Requester) Context(text string) Context {
	if s.hook == nil || text == "" {
		return 0
	}
	cText := C.CString(text)
	defer C.free(unsafe.Pointer(cText))
	return Context(C.rerun_hook_context(s.hook, cText))
}

// StackNode returns the number of the call stack whose innermost frame is called from the stack `parent`,
// which is 0 for an outermost frame. Without a hook it returns 0.
func (s *Requester) StackNode(parent uint32, frame string) uint32 {
	if s.hook == nil {
		return 0
	}
	text := C.CString(frame)
	defer C.free(unsafe.Pointer(text))
	return uint32(C.rerun_hook_stack_node(s.hook, C.uint32_t(parent), text))
}

// Label labels the block at an address. Without a hook it does nothing.
func (s *Requester) Label(address uintptr, context Context) {
	if s.hook != nil {
		C.rerun_hook_label(s.hook, C.uint64_t(address), C.uint32_t(context))
	}
}

// Iteration marks the end of an iteration. Without a hook it does nothing.
func (s *Requester) Iteration(label string) {
	if s.hook != nil {
		C.rerun_hook_iteration(s.hook, s.name(label))
	}
}

// PhaseBegin marks the beginning of a phase. Without a hook it does nothing.
func (s *Requester) PhaseBegin(name string) {
	if s.hook != nil {
		C.rerun_hook_phase_begin(s.hook, s.name(name))
	}
}

// PhaseEnd marks the end of a phase. Without a hook it does nothing.
func (s *Requester) PhaseEnd(name string) {
	if s.hook != nil {
		C.rerun_hook_phase_end(s.hook, s.name(name))
	}
}

func (s *Requester) name(value string) *C.char {
	if text, ok := s.names[value]; ok {
		return text
	}
	text := C.CString(value)
	s.names[value] = text
	return text
}

// KVCache is the hook's number of a KV cache; 0 is none.
type KVCache uint64

// KVCache describes a cache. Its slots are 0 if it has as many as are reserved; a slot has tokenBytes bytes.
func (s *Requester) KVCache(device int32, slots, tokenBytes int64, fields string) KVCache {
	if s.hook == nil {
		return 0
	}
	text := C.CString(fields)
	defer C.free(unsafe.Pointer(text))
	return KVCache(C.rerun_hook_kv_cache(s.hook, C.int(device), C.uint64_t(slots), C.uint64_t(tokenBytes), text))
}

// KVReserve, KVShare, KVAppend, KVFree, KVSwapOut, KVSwapIn, KVDrop and KVEnd are the events of a cache; see
// hooks/capture/memprof.h for what each number means. Without a hook they do nothing.
func (s *Requester) KVReserve(cache KVCache, sequence, first, slots, prompt int64) {
	if s.hook != nil {
		C.rerun_hook_kv_reserve(s.hook, C.uint64_t(cache), C.int64_t(sequence), C.uint64_t(first), C.uint64_t(slots), C.uint64_t(prompt))
	}
}

// KVShare: the sequence uses blocks that others use, in place of its own at position, or with -1 behind its last.
func (s *Requester) KVShare(cache KVCache, sequence, first, slots, position int64) {
	if s.hook != nil {
		C.rerun_hook_kv_share(s.hook, C.uint64_t(cache), C.int64_t(sequence), C.uint64_t(first), C.uint64_t(slots), C.int64_t(position))
	}
}

// KVAppend: tokens fill the next slots of a sequence.
func (s *Requester) KVAppend(cache KVCache, sequence, tokens int64) {
	if s.hook != nil {
		C.rerun_hook_kv_append(s.hook, C.uint64_t(cache), C.int64_t(sequence), C.uint64_t(tokens))
	}
}

// KVFree ends a sequence. Its first `kept` slots keep their content.
func (s *Requester) KVFree(cache KVCache, sequence, kept int64) {
	if s.hook != nil {
		C.rerun_hook_kv_free(s.hook, C.uint64_t(cache), C.int64_t(sequence), C.uint64_t(kept))
	}
}

// KVSwapOut: a sequence goes to the host.
func (s *Requester) KVSwapOut(cache KVCache, sequence int64) {
	if s.hook != nil {
		C.rerun_hook_kv_swap_out(s.hook, C.uint64_t(cache), C.int64_t(sequence))
	}
}

// KVSwapIn: blocks for a sequence that comes back from the host.
func (s *Requester) KVSwapIn(cache KVCache, sequence, first, slots int64) {
	if s.hook != nil {
		C.rerun_hook_kv_swap_in(s.hook, C.uint64_t(cache), C.int64_t(sequence), C.uint64_t(first), C.uint64_t(slots))
	}
}

// KVDrop drops the content of kept blocks.
func (s *Requester) KVDrop(cache KVCache, first, slots int64) {
	if s.hook != nil {
		C.rerun_hook_kv_drop(s.hook, C.uint64_t(cache), C.uint64_t(first), C.uint64_t(slots))
	}
}

// KVEnd ends a cache and all sequences in it.
func (s *Requester) KVEnd(cache KVCache) {
	if s.hook != nil {
		C.rerun_hook_kv_end(s.hook, C.uint64_t(cache))
	}
}
