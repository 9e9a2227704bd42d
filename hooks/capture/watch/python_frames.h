// python_frames.h - the frames of the calling thread's Python stack, without its interpreter.
//
// A thread's frames change only by what that thread runs, so it may read them at any time,
// with the interpreter's lock or without. What a frame looks like depends on the version of
// CPython: the few offsets are in a table, for 3.9 to 3.14, and are compared once with what
// the interpreter itself says before they are trusted.
//
// A frame is known by its code object and the instruction it stands at. Turning the two
// into text takes the interpreter's lock and is done once for each.
#ifndef MEMPROF_PYTHON_FRAMES_H
#define MEMPROF_PYTHON_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct python_frame {
  uintptr_t code, instruction;
};

// Whether frames of this process can be read: there is an interpreter, of a version that is
// known, and it agrees. Asked of a thread with Python frames. The answer stays the same once
// it is known; until then, before there is an interpreter, it is false.
bool python_frames_readable(void);

// The calling thread's frames, innermost first, at most `most`; 0 where it has none.
size_t python_frames(struct python_frame *frames, size_t most);

// "function (file:line)" of a frame of the calling thread. Keeps the code object for good,
// so that its address never means another. False: the interpreter is going down.
bool python_frame_text(const struct python_frame *frame, char *text, size_t size);

#endif
