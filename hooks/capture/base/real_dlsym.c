// real_dlsym.c - see real_dlsym.h.
#define _GNU_SOURCE
#include "base/real_dlsym.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <stdatomic.h>
#include <stddef.h>

#if defined(__aarch64__)
#define FIRST_VERSION "GLIBC_2.17"
#else
#define FIRST_VERSION "GLIBC_2.2.5"
#endif

// The symbol's version changed in 2.34, when libdl moved into libc. The release is read first,
// since a lookup that fails makes the C library allocate its message. It is read by hand, and
// without instrumentation: sanitizers call dlsym while they start, when neither snprintf nor a
// check of theirs can be called yet.
#define EARLY __attribute__((no_sanitize_address, no_sanitize_thread))
EARLY static real_dlsym_function *find(void) {
  const char *release = gnu_get_libc_version();  // "2.36"
  const int minor = release[2] == '\0' || release[3] == '\0' ? 0 : 10 * (release[2] - '0') + release[3] - '0';
  return (real_dlsym_function *)dlvsym(RTLD_NEXT, "dlsym", minor >= 34 ? "GLIBC_2.34" : FIRST_VERSION);
}

// Also called by name, from the assembly of interpose/dlsym.c.
EARLY __attribute__((used)) real_dlsym_function *real_dlsym_get(void) {
  static real_dlsym_function *_Atomic known;
  real_dlsym_function *real = atomic_load_explicit(&known, memory_order_relaxed);
  if (real == NULL) {
    real = find();
    atomic_store_explicit(&known, real, memory_order_relaxed);
  }
  return real;
}

void *real_dlsym(void *library, const char *name) {
  real_dlsym_function *real = real_dlsym_get();
  return real == NULL ? NULL : real(library, name);
}
