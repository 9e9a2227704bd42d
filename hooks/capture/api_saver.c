// api_saver.c - the C functions of the library torch_memory_saver, which other code binds by these names.
//
// They have that library's names, arguments and results, and do with memprof's tags what its own do. Where that
// library ends the process, these return an error, which is also a line of the problems file. If it is loaded itself,
// each leads to its own function.
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "arena/pause.h"
#include "arena/saver.h"
#include "base/problem.h"
#include "base/text.h"
#include "memprof.h"

#pragma GCC visibility push(default)
void tms_set_interesting_region(bool on);
bool tms_get_interesting_region(void);
void tms_set_current_tag(const char *tag);
const char *tms_get_current_tag(void);
void tms_set_enable_cpu_backup(bool on);
bool tms_get_enable_cpu_backup(void);
void tms_set_cpu_backup_backend(const char *backend);
const char *tms_get_cpu_backup_backend(void);
void tms_set_enable_disk_backup(bool on);
bool tms_get_enable_disk_backup(void);
void tms_set_disk_backup_dir(const char *folder);
void tms_set_retain_cpu_backup(bool on);
bool tms_get_retain_cpu_backup(void);
void set_memory_margin_bytes(uint64_t bytes);
int tms_pause(const char *tag);
int tms_resume(const char *tag);
uint8_t *tms_get_cpu_backup_pointer(const uint8_t *ptr, uint64_t size);
void *tms_torch_malloc(ptrdiff_t size, int device, void *stream);
void tms_torch_free(void *ptr, ptrdiff_t size, int device, void *stream);
#pragma GCC visibility pop

// Finds that library's own function. False: it is not loaded.
static bool foreign(const char *name, void *function) {
  void *symbol = saver_foreign(name);
  memcpy(function, &symbol, sizeof symbol);
  return symbol != NULL;
}

// Changes the switch of the settings that lies `at` so many bytes.
static void change(size_t at, bool on) {
  struct saver_settings settings = *saver_get();
  memcpy((char *)&settings + at, &on, sizeof on);
  saver_set(&settings, tag_depth());
}

static void switch_to(const char *name, size_t at, bool on) {
  void (*theirs)(bool);
  if (foreign(name, &theirs)) {
    theirs(on);
  } else {
    change(at, on);
  }
}

// The value of a switch: that library's own, or `ours`.
static bool value_of(const char *name, bool ours) {
  bool (*theirs)(void);
  return foreign(name, &theirs) ? theirs() : ours;
}

#define SWITCH(name, member)                                                                                   \
  void tms_set_##name(bool on) { switch_to("tms_set_" #name, offsetof(struct saver_settings, member), on); }   \
  bool tms_get_##name(void) { return value_of("tms_get_" #name, saver_get()->member); }
SWITCH(interesting_region, interesting)
SWITCH(enable_cpu_backup, cpu_backup)
SWITCH(enable_disk_backup, disk_backup)

void memprof_saver_discard(int on) { change(offsetof(struct saver_settings, discard), on != 0); }

void tms_set_current_tag(const char *tag) {
  void (*theirs)(const char *);
  struct saver_settings settings = *saver_get();
  if (foreign("tms_set_current_tag", &theirs)) {
    theirs(tag);
  } else if (tag == NULL) {
    problem("tms_set_current_tag(NULL): the tag stays \"%s\"", settings.tag);
  } else {
    text_copy(settings.tag, sizeof settings.tag, tag, strlen(tag));
    saver_set(&settings, tag_depth());
  }
}

const char *tms_get_current_tag(void) {
  const char *(*theirs)(void);
  return foreign("tms_get_current_tag", &theirs) ? theirs() : saver_get()->tag;
}

void tms_set_cpu_backup_backend(const char *backend) {
  void (*theirs)(const char *);
  const bool plain = backend == NULL || *backend == '\0' || strcmp(backend, "pinned") == 0;
  if (foreign("tms_set_cpu_backup_backend", &theirs)) {
    theirs(backend);
  } else if (plain || strcmp(backend, "mmap") == 0) {
    change(offsetof(struct saver_settings, mmap), !plain);
  } else {
    problem("tms_set_cpu_backup_backend(\"%s\"): want pinned or mmap; it stays as it was", backend);
  }
}

const char *tms_get_cpu_backup_backend(void) {
  const char *(*theirs)(void);
  if (foreign("tms_get_cpu_backup_backend", &theirs)) return theirs();
  return saver_get()->mmap ? "mmap" : "pinned";
}

void tms_set_disk_backup_dir(const char *folder) {
  void (*theirs)(const char *);
  if (foreign("tms_set_disk_backup_dir", &theirs)) {
    theirs(folder);
  } else {
    memprof_backup_folder(folder);
  }
}

void set_memory_margin_bytes(uint64_t bytes) {
  void (*theirs)(uint64_t);
  if (foreign("set_memory_margin_bytes", &theirs)) {
    theirs(bytes);
  } else {
    memprof_tag_margin(bytes);
  }
}

// Whether resumes keep the copies: -1 as $TMS_RETAIN_CPU_BACKUP says.
static _Atomic int retain = -1;

static bool retained(void) {
  if (atomic_load(&retain) < 0) {
    int none = -1;
    atomic_compare_exchange_strong(&retain, &none, saver_switch("TMS_RETAIN_CPU_BACKUP"));
  }
  return atomic_load(&retain) == 1;
}

void tms_set_retain_cpu_backup(bool on) {
  void (*theirs)(bool);
  if (foreign("tms_set_retain_cpu_backup", &theirs)) {
    theirs(on);
  } else {
    atomic_store(&retain, on);
  }
}

bool tms_get_retain_cpu_backup(void) { return value_of("tms_get_retain_cpu_backup", retained()); }

// As in that library, a tag without memory is no error.
static int result_of(const char *call, const char *tag, int result) {
  struct memprof_tag_usage usage = {0};
  const bool about_state = result == MEMPROF_UNKNOWN_TAG || result == MEMPROF_WRONG_STATE;
  if (about_state && tag != NULL) memprof_tag_usage(tag, &usage);
  const bool empty = tag == NULL ? !memprof_tags_in_use() : usage.live == 0 && usage.mapped == 0 && usage.paused == 0;
  if (about_state && empty) return MEMPROF_OK;
  if (result != MEMPROF_OK && result != MEMPROF_LEAKED) problem("%s: %s", call, memprof_pause_message());
  return result;
}

int tms_pause(const char *tag) {
  int (*theirs)(const char *);
  if (foreign("tms_pause", &theirs)) return theirs(tag);
  const bool named = tag != NULL && *tag != '\0';
  return result_of("tms_pause", named ? tag : NULL, memprof_pause(&tag, named, 0));
}

int tms_resume(const char *tag) {
  int (*theirs)(const char *);
  if (foreign("tms_resume", &theirs)) return theirs(tag);
  const bool named = tag != NULL && *tag != '\0';
  return result_of("tms_resume", named ? tag : NULL, memprof_resume(&tag, named, MEMPROF_MAP_FREE | (retained() ? MEMPROF_KEEP_COPIES : 0)));
}

uint8_t *tms_get_cpu_backup_pointer(const uint8_t *ptr, uint64_t size) {
  uint8_t *(*theirs)(const uint8_t *, uint64_t);
  void *copy = NULL;
  if (foreign("tms_get_cpu_backup_pointer", &theirs)) return theirs(ptr, size);
  if (memprof_backup_at(ptr, size, &copy) != MEMPROF_OK) problem("tms_get_cpu_backup_pointer: %s", memprof_pause_message());
  return copy;
}

// That library's plug-in allocator. Requests that fail return NULL.
void *tms_torch_malloc(ptrdiff_t size, int device, void *stream) { return size > 0 ? memprof_malloc((size_t)size, device, stream) : NULL; }
void tms_torch_free(void *ptr, ptrdiff_t size, int device, void *stream) {
  memprof_free(ptr, size > 0 ? (size_t)size : 0, device, stream);
}
