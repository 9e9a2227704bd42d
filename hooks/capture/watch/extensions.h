// extensions.h - the innermost function of a torch extension in the calling thread's C++ stack.
//
// A line of Python that calls an extension, such as flash_attn_2_cuda, says little about which of its functions allocates. An extension is
// a shared object that needs torch's libraries and is no part of torch.
//
// Unwinding takes microseconds, so callers.c does it once for each place that it can tell apart. Nothing here takes a lock that a
// constructor of a library may hold: names are read from the objects' own tables of symbols, since dladdr and dlsym wait for dlopen.
#ifndef MEMPROF_EXTENSIONS_H
#define MEMPROF_EXTENSIONS_H

#include <stdbool.h>
#include <stddef.h>

// Whether the process has loaded an extension, as of the last look.
bool extensions_loaded(void);

// Looks whether objects were loaded or unloaded since the last look. It takes a microsecond if none was.
void extensions_look(void);

// Writes "function (module.so)" for the innermost function of an extension that is inside the innermost frame of the interpreter. Passed
// over are functions without an exported symbol, and those of torch's and pybind11's headers. If that are all, the offset of the innermost
// in the module is written: "+0x1a2b0 (module.so)". False: there is no such frame.
bool extension_frame(char *text, size_t size);

#endif
