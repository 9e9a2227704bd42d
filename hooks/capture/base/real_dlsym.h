// real_dlsym.h - dlsym as it is without the hook, which exports a dlsym of its own.
#ifndef MEMPROF_REAL_DLSYM_H
#define MEMPROF_REAL_DLSYM_H

// For the hook's own lookups. Not for a job's RTLD_NEXT, which depends on who calls.
void *real_dlsym(void *library, const char *name);

// The C library's function; NULL if it has none. May be called before any constructor has run:
// it neither allocates nor waits.
typedef void *real_dlsym_function(void *library, const char *name);
real_dlsym_function *real_dlsym_get(void) __attribute__((visibility("hidden")));

#endif
