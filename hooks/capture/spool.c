// spool.c - see spool.h.
#define _GNU_SOURCE
#include "spool.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "problem.h"
#include "spool_internal.h"

enum { SEGMENT_BYTES = MEMPROF_SEGMENT_RECORDS * MEMPROF_RECORD_BYTES, WINDOW = 4 };

// The segments in use: segment i is in window[i % WINDOW]. A segment is unmapped when it
// is full to the last commit, so that the hook's own memory stays flat.
struct window {
  _Atomic(uint64_t) index;  // NOWHERE when empty
  _Atomic(struct memprof_record *) records;
  _Atomic(uint32_t) filled;  // committed records
};
#define NOWHERE UINT64_MAX

static struct window window[WINDOW];
static _Atomic bool recording;
static _Atomic bool started;
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;  // segments, stop, frameworks
static int directory = -1;
static struct memprof_process *process;  // the mapped process page
static uint64_t limit;                   // bytes of segments in all; a full disk for tests
static uint64_t next_segment;            // the first that does not exist yet
static char frameworks[sizeof((struct memprof_process *)0)->frameworks];

static uint64_t now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static __thread uint32_t thread_id;

static uint32_t this_thread(void) {
  if (thread_id == 0) thread_id = (uint32_t)syscall(SYS_gettid);
  return thread_id;
}

bool spool_wanted(void) {
  const char *path = getenv("MEMPROF_SPOOL");
  return path != NULL && *path != '\0';
}

bool spool_started(void) { return atomic_load_explicit(&started, memory_order_acquire); }

// Recording ends before segment `segment`. Called with `changing` held.
static void stop(uint64_t segment, int error, const char *what) {
  if (!atomic_load(&recording)) return;
  atomic_store(&recording, false);
  process->stop_slot = segment * MEMPROF_SEGMENT_RECORDS;
  process->stop_errno = (uint32_t)error;
  snprintf(process->stop_reason, sizeof process->stop_reason, "%s: %s", what, strerror(error));
  __atomic_store_n(&process->state, MEMPROF_STOPPED, __ATOMIC_RELEASE);
  problem("recording ended after %llu events and strings: %s: %s", (unsigned long long)process->stop_slot, what, strerror(error));
}

// Blocks for the whole file are had before it is mapped: a store into a hole on a full
// disk would be a SIGBUS in the job.
static int preallocate(int file) {
  const int error = posix_fallocate(file, 0, SEGMENT_BYTES);
  if (error != EOPNOTSUPP && error != EINVAL) return error;
  static const char zeros[65536];
  for (off_t at = 0; at < SEGMENT_BYTES; at += (off_t)sizeof zeros) {
    if (pwrite(file, zeros, sizeof zeros, at) != (ssize_t)sizeof zeros) return errno ? errno : ENOSPC;
  }
  return 0;
}

// Creates and maps a segment; NULL with *error set.
static struct memprof_record *create_segment(uint64_t index, int *error) {
  if (limit != 0 && (index + 1) * SEGMENT_BYTES > limit) {
    *error = ENOSPC;
    return NULL;
  }
  char name[32];
  snprintf(name, sizeof name, "%06llu.seg", (unsigned long long)index);
  const int file = openat(directory, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) {
    *error = errno;
    return NULL;
  }
  *error = preallocate(file);
  void *records = MAP_FAILED;
  if (*error == 0) {
    records = mmap(NULL, SEGMENT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (records == MAP_FAILED) *error = errno;
  }
  close(file);
  if (*error == 0) return records;
  unlinkat(directory, name, 0);
  return NULL;
}

// Lets go of a segment of which every record is committed. A straggler's segment stays
// mapped for good, which is 4 MiB and cannot happen twice in a lifetime.
static void retire(struct window *place) {
  struct memprof_record *records = atomic_load(&place->records);
  if (records != NULL && atomic_load(&place->filled) == MEMPROF_SEGMENT_RECORDS) munmap(records, SEGMENT_BYTES);
  atomic_store(&place->records, NULL);
}

// Makes sure that segment `index` exists, or recording has ended.
static void prepare(uint64_t index) {
  pthread_mutex_lock(&changing);
  while (atomic_load(&recording) && next_segment <= index) {
    int error;
    struct memprof_record *records = create_segment(next_segment, &error);
    if (records == NULL) {
      stop(next_segment, error, "spool segment");
      break;
    }
    struct window *place = &window[next_segment % WINDOW];
    atomic_store(&place->index, NOWHERE);
    retire(place);
    atomic_store(&place->filled, 0);
    atomic_store(&place->records, records);
    atomic_store_explicit(&place->index, next_segment, memory_order_release);
    next_segment++;
  }
  pthread_mutex_unlock(&changing);
}

struct memprof_record *spool_claim(struct spool_slot *slot) {
  if (!atomic_load_explicit(&recording, memory_order_acquire)) return NULL;
  const uint64_t claimed = __atomic_fetch_add(&process->claimed, 1, __ATOMIC_RELAXED);
  const uint64_t segment = claimed / MEMPROF_SEGMENT_RECORDS;
  const uint64_t at = claimed % MEMPROF_SEGMENT_RECORDS;
  struct window *place = &window[segment % WINDOW];
  if (atomic_load_explicit(&place->index, memory_order_acquire) != segment) {
    prepare(segment);
    if (atomic_load_explicit(&place->index, memory_order_acquire) != segment) return NULL;
  }
  slot->filled = &place->filled;
  slot->half = at == MEMPROF_SEGMENT_RECORDS / 2;
  slot->segment = segment;
  return &atomic_load_explicit(&place->records, memory_order_relaxed)[at];
}

void spool_commit(struct memprof_record *record, enum memprof_kind kind, const struct spool_slot *slot) {
  __atomic_store_n(&record->commit, MEMPROF_COMMITTED | (uint32_t)kind, __ATOMIC_RELEASE);
  atomic_fetch_add_explicit(slot->filled, 1, memory_order_release);
  // Ahead of need, so that nobody waits for the file system at the change of segments.
  if (slot->half) prepare(slot->segment + 1);
}

void spool_write(const struct spool_event *event) {
  struct spool_slot slot;
  struct memprof_record *record = spool_claim(&slot);
  if (record == NULL) return;
  record->device = event->device < 0 ? MEMPROF_NO_DEVICE : (uint16_t)event->device;
  record->time_ns = now(CLOCK_MONOTONIC);
  record->addr = event->addr;
  record->requested = event->requested;
  record->provided = event->provided;
  record->stream = event->stream;
  record->arena = event->arena;
  record->context = event->context;
  record->thread = this_thread();
  spool_commit(record, event->kind, &slot);
}

static int32_t number_from(const char *name) {
  const char *text = getenv(name);
  if (text == NULL || *text < '0' || *text > '9') return -1;
  const long value = strtol(text, NULL, 10);
  return value > INT32_MAX ? -1 : (int32_t)value;
}

static void read_command(char *out, size_t size) {
  const int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  const ssize_t n = read(file, out, size - 1);
  close(file);
  for (ssize_t i = 0; i < n - 1; i++) {
    if (out[i] == '\0') out[i] = ' ';
  }
}

// The lock tells readers that this process lives. It belongs to the process, not to the
// descriptor: forked children have none, and closing *any* descriptor of the file would
// drop it, so this one stays open.
static bool hold_lock(int file) {
  struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  return fcntl(file, F_SETLK, &whole) == 0;
}

static struct memprof_process *create_process(uint64_t start) {
  const int file = openat(directory, "process", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return NULL;
  if (posix_fallocate(file, 0, sizeof *process) != 0 && ftruncate(file, sizeof *process) != 0) return NULL;
  if (!hold_lock(file)) return NULL;
  struct memprof_process *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (page == MAP_FAILED) return NULL;
  page->version = MEMPROF_SPOOL_VERSION;
  page->pid = (uint32_t)getpid();
  page->start_monotonic_ns = start;
  page->start_realtime_ns = now(CLOCK_REALTIME);
  page->record_bytes = MEMPROF_RECORD_BYTES;
  page->segment_records = MEMPROF_SEGMENT_RECORDS;
  page->rank = number_from("RANK");
  page->local_rank = number_from("LOCAL_RANK");
  page->world_size = number_from("WORLD_SIZE");
  read_command(page->command, sizeof page->command);
  memcpy(page->frameworks, frameworks, sizeof page->frameworks);
  // Last: a page without it is one that was never finished.
  atomic_thread_fence(memory_order_release);
  memcpy(page->magic, "MEMPROFP", sizeof page->magic);
  return page;
}

static bool create_directory(void) {
  const char *spool = getenv("MEMPROF_SPOOL");
  const uint64_t start = now(CLOCK_MONOTONIC);
  char path[4096];
  const int length = snprintf(path, sizeof path, "%s/p%d.%llu", spool, (int)getpid(), (unsigned long long)start);
  if (length >= (int)sizeof path || mkdir(path, 0700) != 0) {
    problem("cannot record: %s: %s", path, strerror(length >= (int)sizeof path ? ENAMETOOLONG : errno));
    return false;
  }
  directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return false;
  problem_open(directory);
  process = create_process(start);
  if (process == NULL) problem("cannot record: %s/process: %s", path, strerror(errno));
  return process != NULL;
}

static void start_once(void) {
  const char *bytes = getenv("MEMPROF_SPOOL_LIMIT");
  if (bytes != NULL) limit = strtoull(bytes, NULL, 10);
  for (int i = 0; i < WINDOW; i++) atomic_store(&window[i].index, NOWHERE);
  pthread_mutex_lock(&changing);
  atomic_store(&recording, create_directory());
  pthread_mutex_unlock(&changing);
  prepare(0);
  spool_write_strings();
  atomic_store_explicit(&started, true, memory_order_release);
}

bool spool_start(void) {
  if (!spool_started()) {
    if (!spool_wanted()) return false;
    const int saved = errno;
    pthread_mutex_lock(&starting);
    if (!spool_started()) start_once();
    pthread_mutex_unlock(&starting);
    errno = saved;
  }
  return atomic_load_explicit(&recording, memory_order_acquire);
}

void spool_note_framework(const char *text) {
  pthread_mutex_lock(&changing);
  const size_t used = strlen(frameworks);
  if (strstr(frameworks, text) == NULL) {
    snprintf(frameworks + used, sizeof frameworks - used, "%s%s", used == 0 ? "" : "; ", text);
    if (process != NULL) memcpy(process->frameworks, frameworks, sizeof frameworks);
  }
  pthread_mutex_unlock(&changing);
}

void spool_close(void) {
  if (!atomic_load(&recording)) return;
  __atomic_store_n(&process->state, MEMPROF_CLOSED, __ATOMIC_RELEASE);
}

void spool_forget(void) {
  const bool had_started = spool_started();
  atomic_store(&recording, false);
  pthread_mutex_init(&starting, NULL);
  pthread_mutex_init(&changing, NULL);
  spool_forget_strings();
  thread_id = 0;
  if (had_started) process = NULL;
}
