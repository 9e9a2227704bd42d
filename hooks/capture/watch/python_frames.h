// python_frames.h - reads the frames of the calling thread's Python stack without the interpreter.
//
// A thread's frames change only by what the thread runs, so it may read them at any time, with or without
// the interpreter's lock. Their layout depends on the version of CPython: python_frames.c has a table of
// offsets for 3.9 to 3.14, and trusts it after it has compared one walk with the interpreter's own
// answers.
//
// A frame is identified by its code object and its instruction. Turning the two into text takes the
// interpreter's lock, and is done once for each pair.
#ifndef MEMPROF_PYTHON_FRAMES_H
#define MEMPROF_PYTHON_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct python_frame {
  uintptr_t code, instruction;
};

// Whether frames of this process can be read: it has an interpreter of a known version, whose answers agree
// with the table. Called by a thread with Python frames. False before there is an interpreter; once it
// was checked, the answer stays the same.
bool python_frames_readable(void);

// The calling thread's frames, innermost first, at most `most`; 0 where it has none.
size_t python_frames(struct python_frame *frames, size_t most);

// Writes "function (file:line)" for a frame of the calling thread. The code object is never freed from then
// on, so its address keeps its meaning. False: the interpreter is shutting down.
bool python_frame_text(const struct python_frame *frame, char *text, size_t size);

#endif
