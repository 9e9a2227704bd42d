// dlsym.c - dlsym, as the hook exports it.
//
// Libraries that look up CUDA at run time (CuPy, JAX, the runtime itself) get the wrappers here. Two requests
// depend on the caller: RTLD_NEXT searches behind the caller, RTLD_DEFAULT in the caller's scope, and the C
// library finds the caller by the return address. So for these the exported function jumps to the C library's
// dlsym with the caller's own return address. The function may be called before any constructor has run, by
// an allocator that starts up, say, so nothing here allocates or waits.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>

#include "base/hook.h"
#include "base/real_dlsym.h"
#include "interpose/interpose.h"

// CUDA's, NCCL's and libibverbs' functions. Most names that a process asks for are others.
static bool may_be_wrapped(const char *name) {
  return (name[0] == 'c' && name[1] == 'u') || (name[0] == 'n' && name[1] == 'c' && name[2] == 'c' && name[3] == 'l') ||
         (name[0] == 'i' && name[1] == 'b' && name[2] == 'v' && name[3] == '_');
}

__attribute__((used, visibility("hidden"))) void *interpose_dlsym(void *library, const char *name) {
  void *found = real_dlsym(library, name);
  if (found == NULL || !may_be_wrapped(name) || !hook_on()) return found;
  void *answer = entry_exchange(name, found);
  dlerror();  // clears the error of lookups made here; the program's own has succeeded
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
      "call real_dlsym_get\n\t"
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
  real_dlsym_function *real = real_dlsym_get();
  return real == NULL ? NULL : real(library, name);
}
#endif
