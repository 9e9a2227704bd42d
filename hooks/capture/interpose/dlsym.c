// dlsym.c - dlsym, seen on its way.
//
// Libraries that look CUDA up at run time (CuPy, JAX, the runtime itself) get our wrappers
// from here. Two kinds of request depend on who asks: RTLD_NEXT searches behind the caller,
// RTLD_DEFAULT in the caller's scope, and the C library tells the caller by the return
// address. They must reach it with the caller's own, so the exported function is a jump. It
// may be called before any constructor has run, by an allocator that is starting up, say:
// nothing here allocates or waits.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/hook.h"
#include "interpose/internal.h"
#include "interpose/interpose.h"

typedef void *lookup(void *library, const char *name);

#if defined(__aarch64__)
#define FIRST_VERSION "GLIBC_2.17"
#else
#define FIRST_VERSION "GLIBC_2.2.5"
#endif

// The symbol's version changed in 2.34, when libdl moved into libc. It is told beforehand: a
// lookup that fails makes the C library allocate its message. By hand and uninstrumented:
// sanitizers come here while they start, when they are not ready for a call themselves.
#define EARLY __attribute__((no_sanitize_address, no_sanitize_thread))
EARLY static lookup *find_real(void) {
  const char *release = gnu_get_libc_version();  // "2.36"
  const int minor = release[2] == '\0' || release[3] == '\0' ? 0 : 10 * (release[2] - '0') + release[3] - '0';
  return (lookup *)dlvsym(RTLD_NEXT, "dlsym", minor >= 34 ? "GLIBC_2.34" : FIRST_VERSION);
}

EARLY __attribute__((used, visibility("hidden"))) lookup *interpose_real_dlsym(void) {
  static lookup *_Atomic known;
  lookup *real = atomic_load_explicit(&known, memory_order_relaxed);
  if (real == NULL) {
    real = find_real();
    atomic_store_explicit(&known, real, memory_order_relaxed);
  }
  return real;
}

void *real_dlsym(void *library, const char *name) {
  lookup *real = interpose_real_dlsym();
  return real == NULL ? NULL : real(library, name);
}

__attribute__((used, visibility("hidden"))) void *interpose_dlsym(void *library, const char *name) {
  void *found = real_dlsym(library, name);
  if (found == NULL || name[0] != 'c' || name[1] != 'u' || !hook_on()) return found;
  void *answer = entry_exchange(name, found);
  dlerror();  // of lookups on the way; the program's own has succeeded
  return answer;
}

#if defined(__x86_64__)
// rdi + 1 is 0 for RTLD_NEXT and 1 for RTLD_DEFAULT.
EXPORT __attribute__((naked)) void *dlsym(void *library __attribute__((unused)), const char *name __attribute__((unused))) {
  __asm__(
      "lea 1(%rdi), %rax\n\t"
      "cmp $1, %rax\n\t"
      "ja interpose_dlsym\n\t"
      "push %rdi\n\t"
      "push %rsi\n\t"
      "sub $8, %rsp\n\t"
      "call interpose_real_dlsym\n\t"
      "add $8, %rsp\n\t"
      "pop %rsi\n\t"
      "pop %rdi\n\t"
      "test %rax, %rax\n\t"
      "je 1f\n\t"
      "jmp *%rax\n"
      "1:\n\t"
      "ret");
}
#else
// Compiled as a jump wherever the compiler makes sibling calls.
EXPORT void *dlsym(void *library, const char *name) {
  if (library != RTLD_NEXT && library != RTLD_DEFAULT) return interpose_dlsym(library, name);
  lookup *real = interpose_real_dlsym();
  return real == NULL ? NULL : real(library, name);
}
#endif
