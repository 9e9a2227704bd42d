// extensions.c - see extensions.h.
#define _GNU_SOURCE
#include "watch/extensions.h"

#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hook.h"

#define WEAK __attribute__((weak))
WEAK extern int Py_IsInitialized(void);

enum { MOST = 256, LONGEST = 256, DEEPEST = 128 };

// An object's tables, as the loader has mapped them.
struct object {
  uintptr_t base, from, to;  // from, to: of its code
  const ElfW(Sym) * symbols;
  size_t count;
  const char *strings, *path;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct object extensions[MOST];
static size_t count;
static struct object interpreter;          // that Py_IsInitialized is in
static unsigned long long loaded, unloaded;  // the loader's counts at the last look
static _Atomic(bool) any;

// libgcc's unwinder and libstdc++'s demangler. Every process of torch has both, but not yet when it loads the hook.
typedef int (*frame_function)(void *context, void *argument);
typedef char *(*demangle_function)(const char *, char *, size_t *, int *);
static struct {
  int (*backtrace)(frame_function, void *);
  uintptr_t (*ip)(void *);
  demangle_function demangle;
} cxx;

static const char *name_of(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash == NULL ? path : slash + 1;
}

static bool begins(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

// The number of symbols by DT_GNU_HASH: the last one is at the end of the chain of the last bucket that is not empty.
static size_t count_by_gnu_hash(const uint32_t *table) {
  const uint32_t buckets = table[0], first = table[1], words = table[2];
  const uint32_t *bucket = (const uint32_t *)(const void *)((const ElfW(Addr) *)(const void *)(table + 4) + words), *chain = bucket + buckets;
  uint32_t last = 0;
  for (uint32_t i = 0; i < buckets; i++) last = bucket[i] > last ? bucket[i] : last;
  if (last < first) return first;
  while ((chain[last - first] & 1) == 0) last++;
  return last + 1;
}

// glibc has relocated the pointers of the dynamic section, musl has not.
static const void *at(const struct dl_phdr_info *info, uintptr_t pointer) {
  return (const void *)(pointer < info->dlpi_addr ? pointer + info->dlpi_addr : pointer);
}

static const ElfW(Dyn) * read_tables(const struct dl_phdr_info *info, struct object *object) {
  const ElfW(Dyn) *dynamic = NULL;
  *object = (struct object){.base = info->dlpi_addr, .path = info->dlpi_name};
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[i];
    if (part->p_type == PT_DYNAMIC) dynamic = (const void *)(info->dlpi_addr + part->p_vaddr);
    if (part->p_type != PT_LOAD || (part->p_flags & PF_X) == 0) continue;
    if (object->from == 0) object->from = info->dlpi_addr + part->p_vaddr;
    object->to = info->dlpi_addr + part->p_vaddr + part->p_memsz;
  }
  for (const ElfW(Dyn) *entry = dynamic; entry != NULL && entry->d_tag != DT_NULL; entry++) {
    const void *table = at(info, (uintptr_t)entry->d_un.d_ptr);
    if (entry->d_tag == DT_SYMTAB) object->symbols = table;
    if (entry->d_tag == DT_STRTAB) object->strings = table;
    if (entry->d_tag == DT_GNU_HASH) object->count = count_by_gnu_hash(table);
    if (entry->d_tag == DT_HASH && object->count == 0) object->count = ((const uint32_t *)table)[1];
  }
  if (object->symbols == NULL || object->strings == NULL) object->count = 0;
  return dynamic;
}

static bool has_code(const ElfW(Sym) * symbol) {
  const unsigned type = ELF64_ST_TYPE(symbol->st_info);
  return (type == STT_FUNC || type == STT_GNU_IFUNC) && symbol->st_shndx != SHN_UNDEF;
}

static void *symbol_named(const struct object *object, const char *name) {
  for (size_t i = 0; i < object->count; i++) {
    const ElfW(Sym) *symbol = &object->symbols[i];
    if (has_code(symbol) && strcmp(object->strings + symbol->st_name, name) == 0) return (void *)(object->base + symbol->st_value);
  }
  return NULL;
}

// Whether an object needs torch's libraries and is neither torch's nor what connects torch with the hook.
static bool extends_torch(const struct object *object, const ElfW(Dyn) * dynamic) {
  const char *name = name_of(object->path);
  if (begins(name, "libtorch") || begins(name, "libc10") || begins(name, "libshm") || begins(name, "libcaffe2")) return false;
  static const char *const of_torch[] = {"/torch/_C", "/torch/lib/", "torchinductor_"};
  for (size_t i = 0; i < sizeof of_torch / sizeof *of_torch; i++) {
    if (strstr(object->path, of_torch[i]) != NULL) return false;
  }
  bool needs = false;
  for (const ElfW(Dyn) *entry = dynamic; entry != NULL && entry->d_tag != DT_NULL; entry++) {
    const char *needed = entry->d_tag == DT_NEEDED ? object->strings + entry->d_un.d_val : "";
    needs |= begins(needed, "libc10") || begins(needed, "libtorch");
  }
  return needs && symbol_named(object, "memprof_torch_install") == NULL;
}

static int see(struct dl_phdr_info *info, size_t size, void *first_seen) {
  bool *first = first_seen;
  if (*first) {
    const bool counted = size >= offsetof(struct dl_phdr_info, dlpi_subs) + sizeof info->dlpi_subs;
    if (counted && info->dlpi_adds == loaded && info->dlpi_subs == unloaded) return 1;
    if (counted) loaded = info->dlpi_adds, unloaded = info->dlpi_subs;
    *first = false;
    count = 0;
  }
  struct object object;
  const ElfW(Dyn) *dynamic = read_tables(info, &object);
  const uintptr_t python = (uintptr_t)Py_IsInitialized;
  if (python >= object.from && python < object.to) interpreter = object;
  if (begins(name_of(object.path), "libgcc_s.so")) {
    cxx.backtrace = (int (*)(frame_function, void *))symbol_named(&object, "_Unwind_Backtrace");
    cxx.ip = (uintptr_t(*)(void *))symbol_named(&object, "_Unwind_GetIP");
  }
  if (begins(name_of(object.path), "libstdc++.so")) cxx.demangle = (demangle_function)symbol_named(&object, "__cxa_demangle");
  if (count < MOST && object.strings != NULL && extends_torch(&object, dynamic)) extensions[count++] = object;
  return 0;
}

static void look(void) {
  bool first = true;
  dl_iterate_phdr(see, &first);
  atomic_store_explicit(&any, count > 0 && cxx.backtrace != NULL && cxx.ip != NULL, memory_order_relaxed);
}

bool extensions_loaded(void) { return atomic_load_explicit(&any, memory_order_relaxed); }

void extensions_look(void) {
  pthread_mutex_lock(&lock);
  look();
  pthread_mutex_unlock(&lock);
}

// Ends a demangled name before its arguments, which are in the last pair of brackets, and begins it behind the type that a template returns.
static char *without_types(char *name) {
  int open = 0;
  for (char *at = strrchr(name, ')'); at != NULL && at > name; at--) {
    open += *at == ')' ? 1 : *at == '(' ? -1 : 0;
    if (open > 0) continue;
    *at = '\0';
    break;
  }
  char *begin = name;
  open = 0;
  for (char *at = name; *at != '\0'; at++) {
    open += *at == '<' || *at == '(' ? 1 : *at == '>' || *at == ')' ? -1 : 0;
    if (*at == ' ' && open == 0) begin = at + 1;
  }
  return begin;
}

// Writes the name of the function at `ip`. False: it has no exported symbol, or is of a header that the extension includes.
static bool write_name(const struct object *object, uintptr_t ip, char *text, size_t size) {
  static const char *const included[] = {"at::", "c10::", "torch::", "std::", "pybind11::"};
  const ElfW(Sym) *symbol = NULL;
  for (size_t i = 0; i < object->count && symbol == NULL; i++) {
    const uintptr_t value = object->base + object->symbols[i].st_value;
    if (has_code(&object->symbols[i]) && ip >= value && ip < value + object->symbols[i].st_size) symbol = &object->symbols[i];
  }
  if (symbol == NULL) return false;
  int status = -1;
  char *plain = cxx.demangle == NULL ? NULL : cxx.demangle(object->strings + symbol->st_name, NULL, NULL, &status);
  snprintf(text, size, "%s", plain != NULL && status == 0 ? without_types(plain) : object->strings + symbol->st_name);
  free(plain);
  for (size_t i = 0; i < sizeof included / sizeof *included; i++) {
    if (begins(text, included[i])) return false;
  }
  return true;
}

struct found {
  const struct object *extension;
  char function[LONGEST];
  int depth;
};

static int each_frame(void *context, void *argument) {
  enum { ON = 0, END = 5 };  // _URC_NO_REASON, _URC_END_OF_STACK
  struct found *found = argument;
  const uintptr_t ip = cxx.ip(context) - 1;  // of the call, not of what follows it
  if ((ip >= interpreter.from && ip < interpreter.to) || found->depth++ == DEEPEST) return END;
  for (size_t i = 0; i < count; i++) {
    const struct object *object = &extensions[i];
    char name[LONGEST];
    if (ip < object->from || ip >= object->to) continue;
    const bool named = write_name(object, ip, name, sizeof name);
    if (!named && found->extension != NULL) return ON;
    found->extension = object;
    if (named) memcpy(found->function, name, sizeof name);
    if (!named) snprintf(found->function, sizeof found->function, "+0x%llx", (unsigned long long)(ip - object->base));
    return named ? END : ON;
  }
  return ON;
}

bool extension_frame(char *text, size_t size) {
  struct found found = {.extension = NULL};
  pthread_mutex_lock(&lock);
  look();
  if (extensions_loaded()) cxx.backtrace(each_frame, &found);
  if (found.extension != NULL) {
    const char *file = name_of(found.extension->path);
    snprintf(text, size, "%s (%.*s.so)", found.function, (int)strcspn(file, "."), file);
  }
  pthread_mutex_unlock(&lock);
  return found.extension != NULL;
}

static void forget(void) { pthread_mutex_init(&lock, NULL); }

HOOK_PART(.forget = forget);
