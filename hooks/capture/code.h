// code.h - whose code a handle of the driver stands for.
//
// Growth at the first use of a kernel should be told by the library that the kernel came
// from, long after it was loaded. Handles of modules, libraries, kernels and functions are
// kept with the context of their overhead events.
#ifndef MEMPROF_CODE_H
#define MEMPROF_CODE_H

#include <stdbool.h>
#include <stdint.h>

// The context of code whose image lies at `image`, or was loaded from the file `path`, or
// else by a call from `caller`. `what` is "module" or "library".
uint32_t code_context(const char *what, const void *image, const char *path, const void *caller);

// Remembers a handle's context; that of another handle; and asks: 0 if it is not known.
void code_remember(const void *handle, uint32_t context);
uint32_t code_of(const void *handle);

// True once for each handle: its first use.
bool code_first_use(const void *handle);

// True once for each handle, device and name, if there is one, since the handle was remembered:
// what the driver is asked for of the handle may be loaded then, and is loaded afterwards.
bool code_first_ask(const void *handle, int device, const char *name);

#endif
