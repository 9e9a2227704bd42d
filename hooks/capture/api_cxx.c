// api_cxx.c - see api_cxx.h.
#include "api_cxx.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/real_dlsym.h"
#include "memprof.h"

// The operations of std::function's manager, by libstdc++.
enum { COPY = 2, DESTROY = 3 };

void cxx_filter_copy(struct cxx_filter *to, const struct cxx_filter *from) {
  *to = (struct cxx_filter){.manage = from->manage, .call = from->call};
  if (from->manage != NULL) from->manage(to->state, from->state, COPY);
}

void cxx_filter_end(struct cxx_filter *filter) {
  if (filter->manage != NULL) filter->manage(filter->state, filter->state, DESTROY);
  filter->manage = NULL;
}

bool cxx_filter_accepts(const struct cxx_filter *filter, void *stream) { return filter->manage == NULL || filter->call(filter->state, &stream); }

// c10::SourceLocation.
struct source_location {
  const char *function, *file;
  uint32_t line;
};

// The object is at most this large: c10::Error has some 150 bytes.
enum { ERROR_BYTES = 1024 };

// A std::string, of either ABI.
union string {
  void *align;
  char bytes[64];
};

// Members are addresses of functions that the libraries export, and of the exceptions' typeinfo.
static struct {
  void *(*allocate)(size_t bytes);
  void (*raise)(void *object, void *type, void (*destroy)(void *));
  void (*make_string)(void *self, const char *text, const void *allocator);
  void (*end_string)(void *self);
  void (*make_error)(void *self, struct source_location where, void *text);
  void (*end_error)(void *self);
  void *out_of_memory, *any_error;
} cxx;

// The names of the functions on std::string, which has two ABIs.
struct string_names {
  const char *make, *end, *error;
};
static const struct string_names string_abis[] = {
    {"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEC1EPKcRKS3_", "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEED1Ev",
     "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"},
    {"_ZNSsC1EPKcRKSaIcE", "_ZNSsD1Ev", "_ZN3c105ErrorC1ENS_14SourceLocationESs"},
};

// Copies the address of a symbol to a function pointer; ISO C has no conversion. False: there is no such symbol.
static bool find(void *library, const char *name, void *function) {
  void *address = real_dlsym(library, name);
  memcpy(function, &address, sizeof address);
  return address != NULL;
}

static bool find_string(void *library, const struct string_names *names) {
  return find(library, names->error, &cxx.make_error) && find(library, names->make, &cxx.make_string) && find(library, names->end, &cxx.end_string);
}

bool cxx_find_exception(const char *path) {
  void *library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  if (library == NULL) return false;
  cxx.out_of_memory = NULL;
  const bool strings = find_string(library, &string_abis[0]) || find_string(library, &string_abis[1]);
  const bool raises = find(library, "__cxa_allocate_exception", &cxx.allocate) && find(library, "__cxa_throw", &cxx.raise);
  find(library, "_ZN3c105ErrorD1Ev", &cxx.end_error);  // without it the text of the exception leaks
  void *out_of_memory = NULL;
  const bool typed = find(library, "_ZTIN3c1016OutOfMemoryErrorE", &out_of_memory) && find(library, "_ZTIN3c105ErrorE", &cxx.any_error);
  if (strings && raises && typed) cxx.out_of_memory = out_of_memory;
  dlclose(library);
  return cxx.out_of_memory != NULL;
}

// c10::OutOfMemoryError adds nothing to c10::Error but its type, which is what handlers are found by.
void cxx_throw(const char *text, bool out_of_memory) {
  if (cxx.out_of_memory == NULL) return;
  void *object = cxx.allocate(ERROR_BYTES);
  union string string;
  memset(object, 0, ERROR_BYTES);
  cxx.make_string(&string, text, "");  // the allocator has no members
  cxx.make_error(object, (struct source_location){"memprof_plugin_malloc", "memprof", 0}, &string);
  cxx.end_string(&string);
  cxx.raise(object, out_of_memory ? cxx.out_of_memory : cxx.any_error, cxx.end_error);
}

// Both structures come back in two registers, on x86-64 as on arm64.
struct memprof_torch_stream memprof_torch_stream(const void *guard, uint16_t device) {
  (void)guard;
  return (struct memprof_torch_stream){.device = device};
}
