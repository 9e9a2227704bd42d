// code.h - which library a handle of loaded code came from, and what was done with it.
//
// The driver may take memory at the first use of a kernel, long after its library was loaded; the event
// names the library. So handles of modules, libraries, kernels and functions are kept with the context of
// their overhead events. The driver may return the same handle for code that is loaded later: then each
// use counts as the first again.
#ifndef MEMPROF_CODE_H
#define MEMPROF_CODE_H

#include <stdbool.h>
#include <stdint.h>

// The string id of "what=<what>\tname=<library>" for code: the library is the file `path`, or that in which
// the image lies, or else that of the caller. `what` is "module" or "library".
uint32_t code_context(const char *what, const void *image, const char *path, const void *caller);

// A handle was just made by a load; notes its context.
void code_remember(const void *handle, uint32_t context);

// A handle is a part of the code of another one, and has its context. May be called repeatedly.
void code_derive(const void *handle, const void *of);

// The context of a handle; 0: not known.
uint32_t code_of(const void *handle);

// A use of a handle: on a device (-1: any), and of a part of it by a name (NULL: none).
struct code_use {
  const void *handle;
  int device;
  const char *name;
};

// Whether this is the first such use; from then on it is not. code_undo makes it the first again, if it
// failed.
bool code_first(const struct code_use *use);
void code_undo(const struct code_use *use);

// A device was reset and has lost all loaded code: every use is the first again.
void code_lost(void);

#endif
