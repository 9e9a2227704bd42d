// spool.c - see spool.h.
#define _GNU_SOURCE
#include "spool/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/directory.h"
#include "base/hook.h"
#include "base/own_file.h"
#include "base/problem.h"
#include "base/text.h"
#include "base/thread.h"
#include "spool/internal.h"
#include "spool/libraries.h"
#include "spool/segment.h"

#define NOWHERE UINT64_MAX

struct spool spool;
__thread uint32_t spool_thread;

static _Atomic(uint32_t) requests;  // to the keeper, so far; it sleeps on this word
static _Atomic(uint32_t) answers;   // of the keeper, so far; writers sleep on this word
static _Atomic(uint64_t) ahead;     // index of a segment that is needed soon
static _Atomic(uint64_t) needed;    // segments [0, needed) are needed now
static _Atomic bool keeping;        // there is a keeper
static _Atomic bool leaving;        // it is to end
static _Atomic bool started;        // spool_start has run, successfully or not
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;  // held while spool_start runs
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;  // held while segments, the stop or frameworks change
static struct directory directory;
static struct own_file process_file = {.number = -1};  // open while the process page is made
static pid_t owner;                     // the process that is recorded
static uint64_t limit;                  // bytes of all segments, a full disk for tests; 0 = no limit
static _Atomic(uint64_t) next_segment;  // index of the first segment that does not exist yet
static char frameworks[sizeof((struct memprof_process *)0)->frameworks];

static uint64_t wall_clock(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint32_t spool_ask_thread(void) { return spool_thread = (uint32_t)syscall(SYS_gettid); }

bool spool_started(void) { return atomic_load_explicit(&started, memory_order_acquire); }

// Stops recording before segment `segment`, and writes that and why into the process page. The caller holds
// `changing`.
static void stop(uint64_t segment, int error, const char *what) {
  if (!atomic_load(&spool.recording)) return;
  atomic_store(&spool.recording, false);
  spool.process->stop_slot = segment * MEMPROF_SEGMENT_RECORDS;
  spool.process->stop_errno = (uint32_t)error;
  char reason[512];
  snprintf(reason, sizeof reason, "%s: %s", what, strerror(error));
  text_copy(spool.process->stop_reason, sizeof spool.process->stop_reason, reason, strlen(reason));
  __atomic_store_n(&spool.process->state, MEMPROF_STOPPED, __ATOMIC_RELEASE);
}

// Whether a file of `bytes` exceeds RLIMIT_FSIZE: the kernel would send a signal that ends the job.
static bool too_large(size_t bytes) {
  struct rlimit size;
  return getrlimit(RLIMIT_FSIZE, &size) == 0 && size.rlim_cur < bytes;
}

// The errno with which a segment fails before the file system is asked; 0: it may be made.
static int forbidden(uint64_t index) {
  if (limit != 0 && (index + 1) * SEGMENT_BYTES > limit) return ENOSPC;
  return too_large(SEGMENT_BYTES) ? EFBIG : 0;
}

// Unmaps a segment if all its records are committed. A writer that is interrupted between claim and commit
// keeps it mapped until it continues.
static void retire(struct spool_window *place) {
  const struct memprof_record *records = atomic_load(&place->records);
  if (records == NULL) return;
  for (int i = MEMPROF_SEGMENT_RECORDS - 1; i >= 0; i--) {
    if (__atomic_load_n(&records[i].commit, __ATOMIC_ACQUIRE) == 0) return;
  }
  atomic_store(&place->index, NOWHERE);
  atomic_store(&place->records, NULL);
  segment_unmap(records);
}

// Makes all segments up to `index`; if that fails, stops recording. If `early`, a failure is ignored: the
// segment before is not full yet, and when it is, the disk may have room again.
static void prepare(const struct directory *in, uint64_t index, bool early) {
  pthread_mutex_lock(&changing);
  for (uint64_t next; atomic_load(&spool.recording) && (next = atomic_load(&next_segment)) <= index;) {
    int error = forbidden(next);
    struct memprof_record *records = error == 0 ? segment_create(in, next, &error) : NULL;
    if (records == NULL) {
      if (!early) stop(next, error, "spool segment");
      break;
    }
    struct spool_window *place = &spool.window[next % SPOOL_WINDOW];
    // An old segment that is still here has a writer inside. It stays mapped for good: 4 MiB are lost, but
    // the writer's store finds its page.
    atomic_store(&place->index, NOWHERE);
    atomic_store(&place->records, records);
    atomic_store_explicit(&place->index, next, memory_order_release);
    atomic_store(&next_segment, next + 1);
  }
  pthread_mutex_unlock(&changing);
}

static void wait_while(_Atomic(uint32_t) *word, uint32_t value) { syscall(SYS_futex, word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0); }

static void count(_Atomic(uint32_t) *word) {
  atomic_fetch_add(word, 1);
  syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT32_MAX, NULL, NULL, 0);
}

void spool_note_libraries(void) {
  if (atomic_load(&spool.recording)) __atomic_fetch_or(&spool.process->libraries, libraries_loaded(), __ATOMIC_RELAXED);
}

// The keeper: a thread with its own table of descriptors, which makes segments before they are needed and
// unmaps full ones. So no thread of the job waits for a file or for page faults. If the thread cannot be
// made, writers make segments themselves.
static void *keep(void *nothing) {
  struct directory mine;
  directory_apart(&mine, &directory);
  for (uint32_t seen = 0;;) {
    const uint32_t now = atomic_load(&requests);
    if (now == seen) {
      wait_while(&requests, seen);
      continue;
    }
    if (atomic_load(&leaving)) break;
    seen = now;
    const uint64_t until = atomic_load(&needed), early = atomic_load(&ahead);
    if (until > 0) prepare(&mine, until - 1, false);
    count(&answers);
    if (early > 0) prepare(&mine, early, true);
    spool_note_libraries();
    for (uint64_t i = early < SPOOL_WINDOW ? 0 : early - SPOOL_WINDOW + 1; i + 2 < early; i++) {
      if (atomic_load(&spool.window[i % SPOOL_WINDOW].index) == i) retire(&spool.window[i % SPOOL_WINDOW]);
    }
  }
  atomic_store(&keeping, false);
  count(&answers);
  return nothing;
}

static void raise_to(_Atomic(uint64_t) *number, uint64_t value) {
  uint64_t known = atomic_load(number);
  while (known < value && !atomic_compare_exchange_weak(number, &known, value)) {
  }
}

// Waits until segment `index` exists or recording has stopped.
static void have(uint64_t index) {
  if (!atomic_load(&keeping)) {
    prepare(&directory, index, false);
    return;
  }
  raise_to(&needed, index + 1);
  count(&requests);
  for (;;) {
    const uint32_t seen = atomic_load(&answers);
    if (!atomic_load(&spool.recording) || atomic_load(&next_segment) > index) return;
    wait_while(&answers, seen);
  }
}

bool spool_turn(uint64_t segment, bool first) {
  struct spool_window *place = &spool.window[segment % SPOOL_WINDOW];
  if (atomic_load_explicit(&place->index, memory_order_acquire) != segment) {
    have(segment);
    if (atomic_load_explicit(&place->index, memory_order_acquire) != segment) return false;
  }
  if (first) {  // the next one, while this one is filled
    raise_to(&ahead, segment + 1);
    count(&requests);
  }
  return true;
}

void spool_write(const struct spool_event *event) {
  if (!atomic_load_explicit(&spool.recording, memory_order_relaxed)) return;  // before the clock is read
  const uint64_t now = clock_now();
  clock_note(now);
  spool_put(event, now);
}

void spool_write_at(const struct spool_event *event, uint64_t time_ns) { spool_put(event, time_ns); }

static int32_t number_from(const char *name) {
  const char *text = getenv(name);
  if (text == NULL || *text < '0' || *text > '9') return -1;
  const long value = strtol(text, NULL, 10);
  return value > INT32_MAX ? -1 : (int32_t)value;
}

static void read_command(char *out, size_t size) {
  char given[2 * sizeof spool.process->command];
  const int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  ssize_t n = read(file, given, sizeof given);
  close(file);
  while (n > 0 && given[n - 1] == '\0') n--;
  for (ssize_t i = 0; i < n; i++) {
    if (given[i] == '\0') given[i] = ' ';
  }
  if (n > 0) text_copy(out, size, given, (size_t)n);
}

// Locks the process file, so that readers know that this process lives. The lock belongs to the open file,
// not to the process or a descriptor, and the mapping keeps the file open. So the job may close any
// descriptor, and forked children, which have no mapping, do not hold the lock. Kernels without such
// locks (gVisor) have flock.
static bool hold_lock(int file) {
  struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  return fcntl(file, F_OFD_SETLK, &whole) == 0 || (errno == EINVAL && flock(file, LOCK_EX) == 0);
}

static struct memprof_process *create_process(uint64_t start) {
  if (too_large(sizeof *spool.process)) {
    errno = EFBIG;
    return NULL;
  }
  if (!directory_create(&directory, "process", sizeof *spool.process, &process_file)) return NULL;
  struct memprof_process *page = hold_lock(process_file.number) ? own_file_map(&process_file, sizeof *page) : NULL;
  own_file_close(&process_file);
  if (page == NULL) return NULL;
  page->version = MEMPROF_SPOOL_VERSION;
  page->pid = (uint32_t)getpid();
  page->start_monotonic_ns = start;
  page->start_realtime_ns = wall_clock();
  page->record_bytes = MEMPROF_RECORD_BYTES;
  page->segment_records = MEMPROF_SEGMENT_RECORDS;
  page->rank = number_from("RANK");
  page->local_rank = number_from("LOCAL_RANK");
  page->world_size = number_from("WORLD_SIZE");
  page->local_world_size = number_from("LOCAL_WORLD_SIZE");
  read_command(page->command, sizeof page->command);
  memcpy(page->frameworks, frameworks, sizeof page->frameworks);
  // Last: a page without it is one that was never finished.
  uint64_t magic;
  memcpy(&magic, "MEMPROFP", sizeof magic);
  __atomic_store_n((uint64_t *)(void *)page->magic, magic, __ATOMIC_RELEASE);
  return page;
}

static bool create_directory(void) {
  const char *in = hook_spool();
  if (strcmp(in, "-") == 0) return false;  // asked for: memory is served, nothing is recorded
  const uint64_t start = clock_now();
  char path[4200];
  snprintf(path, sizeof path, "%s/p%d.%llu", in, (int)getpid(), (unsigned long long)start);
  if (!directory_make(&directory, path)) {
    problem("cannot record: %s: %s", path, strerror(errno));
    return false;
  }
  problem_start(&directory);
  spool.process = create_process(start);
  if (spool.process == NULL) problem("cannot record: %s/process: %s", path, strerror(errno));
  return spool.process != NULL;
}

static void start_once(void) {
  const char *bytes = getenv("MEMPROF_SPOOL_LIMIT");
  owner = getpid();
  if (bytes != NULL) limit = strtoull(bytes, NULL, 10);
  for (int i = 0; i < SPOOL_WINDOW; i++) atomic_store(&spool.window[i].index, NOWHERE);
  pthread_mutex_lock(&changing);
  atomic_store(&spool.recording, create_directory());
  pthread_mutex_unlock(&changing);
  if (atomic_load(&spool.recording)) atomic_store(&keeping, thread_start(keep, 0) == 0);
  have(0);
  spool_note_libraries();
  spool_write_strings();
  atomic_store_explicit(&started, true, memory_order_release);
}

bool spool_start(void) {
  if (!spool_started()) {
    if (hook_spool()[0] == '\0') return false;
    const int saved = errno;
    pthread_mutex_lock(&starting);
    if (!spool_started()) start_once();
    pthread_mutex_unlock(&starting);
    errno = saved;
  }
  return atomic_load_explicit(&spool.recording, memory_order_acquire);
}

void spool_note_framework(const char *text) {
  pthread_mutex_lock(&changing);
  const size_t used = strlen(frameworks);
  if (strstr(frameworks, text) == NULL) {
    char given[2 * sizeof frameworks];
    snprintf(given, sizeof given, "%s%s", used == 0 ? "" : "; ", text);
    text_copy(frameworks + used, sizeof frameworks - used, given, strlen(given));
    if (spool.process != NULL) memcpy(spool.process->frameworks, frameworks, sizeof frameworks);
  }
  pthread_mutex_unlock(&changing);
}

bool spool_owned(void) { return atomic_load(&spool.recording) && owner == getpid(); }

static void spool_close(void) {
  if (owner != getpid()) return;  // a child that was made without fork's handlers
  spool_note_libraries();
  if (!atomic_load(&spool.recording)) return;
  __atomic_store_n(&spool.process->state, MEMPROF_CLOSED, __ATOMIC_RELEASE);
}

static void start_recording(void) { spool_start(); }

// The keeper ends first, which may be making a segment. The lock of the process file ends with the mapping.
static void stop_recording(void) {
  atomic_store(&spool.recording, false);
  atomic_store(&leaving, true);
  count(&requests);
  for (uint32_t seen; seen = atomic_load(&answers), atomic_load(&keeping);) wait_while(&answers, seen);
  atomic_store(&leaving, false);
  for (int i = 0; i < SPOOL_WINDOW; i++) {
    const struct memprof_record *records = atomic_exchange(&spool.window[i].records, NULL);
    if (records != NULL) segment_unmap(records);
  }
  if (spool.process != NULL) munmap(spool.process, sizeof *spool.process);
  spool.process = NULL;
  atomic_store(&ahead, 0);
  atomic_store(&needed, 0);
  atomic_store(&next_segment, 0);
  atomic_store(&started, false);
}

static void forget(void) {
  atomic_store(&spool.recording, false);
  pthread_mutex_init(&starting, NULL);
  pthread_mutex_init(&changing, NULL);
  spool_thread = 0;
  spool.process = NULL;  // the child does not have the page
  own_file_close(&process_file);
  atomic_store(&keeping, false);
}

HOOK_PART(.order = HOOK_SPOOL, .start = start_recording, .end = spool_close, .forget = forget, .stop = stop_recording);
