// code.h - whose code a handle of the driver stands for, and what has been done with it.
//
// Growth at the first use of a kernel should be told by the library that the kernel came
// from, long after it was loaded. Handles of modules, libraries, kernels and functions are
// kept with the context of their overhead events. A handle may come again for something else
// that was loaded later: then everything is done with it for the first time again.
#ifndef MEMPROF_CODE_H
#define MEMPROF_CODE_H

#include <stdbool.h>
#include <stdint.h>

// The context of code whose image lies at `image`, or was loaded from the file `path`, or
// else by a call from `caller`. `what` is "module" or "library".
uint32_t code_context(const char *what, const void *image, const char *path, const void *caller);

// Remembers a handle that was just made, with its context; that it stands for a part of what
// another one does, whenever it is told; and asks for the context: 0 if it is not known.
void code_remember(const void *handle, uint32_t context);
void code_derive(const void *handle, const void *of);
uint32_t code_of(const void *handle);

// Something that is done with a handle, on a device (-1: whichever), by a name or NULL.
struct code_use {
  const void *handle;
  int device;
  const char *name;
};

// True the first time, as long as it is not undone: it may have failed.
bool code_first(const struct code_use *use);
void code_undo(const struct code_use *use);

// A device has lost all that was loaded: everything is done for the first time again.
void code_lost(void);

#endif
