// python_frames.h - reads the frames of the calling thread's Python stack without the interpreter.
//
// A thread's frames change only by what the thread runs, so it may read them at any time, with or without
// the interpreter's lock. Their layout depends on the version of CPython: python_frames.c has a table of
// offsets for 3.9 to 3.14, and trusts it after it has compared one walk with the interpreter's own
// answers.
//
// A frame is identified by its code object and its instruction. Its text is read from the code object's memory, which stays as it is
// while the frame is there: no lock of the interpreter's, no allocation. What has been read may be kept once the code object is never freed
// any more (pinned), since its address then keeps its meaning. Pinning takes the interpreter's lock. A thread that may not wait for that
// has it done by another thread, which looks for the frame in the thread's stack first: a code object that nobody runs any more may be
// gone.
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
// was checked, the answer stays the same. Checking waits for the interpreter's lock: without `wait` the answer is false until it was done.
bool python_frames_readable(bool wait);

// The calling thread's frames, innermost first, at most `most`; 0 where it has none.
size_t python_frames(struct python_frame *frames, size_t most);

// Writes "function (file:line)" for a frame that the calling thread has. False: the interpreter is shutting down.
bool python_frame_text(const struct python_frame *frame, char *text, size_t size);

// Whether the code object of a frame of the calling thread is never freed any more. `wait`: pins it now, waiting for the interpreter's
// lock. Otherwise it is pinned soon, or when the frame is met again. No more than 65,536 are pinned.
bool python_frame_pin(const struct python_frame *frame, bool wait);

#endif
