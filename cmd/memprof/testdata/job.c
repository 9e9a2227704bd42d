// job.c - a job for the tests: what it does stands on its command line.
//
//   alloc NAME SIZE   through the hook, as the torch shim does; exit 10 when refused
//   free NAME
//   library SIZE      cudaMalloc, as a library does; exit 11 when refused
//   iteration         an iteration mark
//   begin/end PHASE   opens and closes a phase
//   in CONTEXT        what allocates from here on; %t in it is a tab
//   holds NAME TEXT   labels a block; likewise
//   frame PARENT TEXT a call stack: the next number, from 1
//   cache SLOTS TEXT  a KV cache, of 1,024 bytes a token, that the next words are about
//   kv WHAT           reserve:SEQUENCE:FIRST:SLOTS:PROMPT, share:SEQUENCE:FIRST:SLOTS,
//                     append:SEQUENCE:TOKENS, free:SEQUENCE:KEPT
//   tag/kept TAG      a region opens, without or with a backup; tag '' closes the innermost
//   pause/resume TAG  prints why not when refused
//   shape NAME        a capture begins, whose allocations are of that shape of a graph memory;
//                     shape '' ends it
//   graph POOL        a capture begins, whose allocations go to an ordinary pool; graph '' ends it
//   reset NAME        the graph of a shape, or pool, is no more
//   note POOL         a checkpoint of the blocks that were allocated in it and live
//   back POOL         all blocks of the pool are freed, and those of its checkpoint live again
//   churn SEED COUNT  COUNT random allocations and frees, at most 64 live
//   log FILE          from here on, a line for each allocation that has returned
//   touch FILE        creates FILE
//   sleep MS          waits
//   wait FILE         waits until FILE is gone
//   raise SIGNAL      kills the job with a signal, by number
//   forbid CALL       from here on mkdir, clone or fallocate is refused (seccomp)
//   catch             from here on SIGTERM, SIGINT and SIGUSR1 are printed, not obeyed
//   load FILE         loads a library
//   close             closes all descriptors but the standard ones
//   cover FILE        writes "job" into FILE and has it under all numbers up to 1023
//   daemon FILE       goes on as a daemon does, in another session, and removes FILE at its end
//   print TEXT        on stdout
//   exit CODE
//
// Sizes take K, M, G (binary). An unknown word is exit 9.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../../../hooks/capture/memprof.h"
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

enum { NAMES = 64 };

static struct {
  char name[32];
  void *block;
  uint64_t pool;  // that it was allocated in
  size_t size, provided;
} blocks[NAMES], noted[NAMES];

static int log_file = -1;
// The hook's functions, of the types that its header gives them.
#define HOOK(name) static __typeof__(memprof_##name) *hook_##name
HOOK(malloc);
HOOK(free);
HOOK(iteration);
HOOK(phase_begin);
HOOK(phase_end);
HOOK(set_context);
HOOK(label);
HOOK(stack_node);
HOOK(region_begin);
HOOK(region_end);
HOOK(pause);
HOOK(resume);
HOOK(pause_message);
HOOK(malloc_in_pool);
HOOK(pool_begin);
HOOK(pool_end);
HOOK(release_pool);
HOOK(graph_memory_open);
HOOK(graph_shape);
HOOK(capture_name);
HOOK(checkpoint);
HOOK(restore);
HOOK(owns);
static int (*cuda_malloc)(void **, size_t);
static int (*begin_capture)(void *, int), (*end_capture)(void *, void **);

static char shapes[NAMES][32];  // the pool of shapes[i] is {0, i + 1}
static uint64_t shape;          // the pool of the capture under way, 0 for none
static void *capture_stream;

static void find(void *library, const char *name, void *function) {
  void *symbol = dlsym(library, name);
  memcpy(function, &symbol, sizeof symbol);
}

static void find_graphs(void *runtime) {
  int (*create)(void **) = NULL;
  find(runtime, "cudaStreamCreate", &create);
  find(RTLD_DEFAULT, "cudaStreamBeginCapture", &begin_capture);
  find(RTLD_DEFAULT, "cudaStreamEndCapture", &end_capture);
  find(RTLD_DEFAULT, "memprof_malloc_in_pool", &hook_malloc_in_pool);
  find(RTLD_DEFAULT, "memprof_pool_begin", &hook_pool_begin);
  find(RTLD_DEFAULT, "memprof_pool_end", &hook_pool_end);
  find(RTLD_DEFAULT, "memprof_release_pool", &hook_release_pool);
  find(RTLD_DEFAULT, "memprof_graph_memory_open", &hook_graph_memory_open);
  find(RTLD_DEFAULT, "memprof_graph_shape", &hook_graph_shape);
  find(RTLD_DEFAULT, "memprof_capture_name", &hook_capture_name);
  if (!create || create(&capture_stream) != 0 || !begin_capture || !end_capture || !hook_graph_shape) exit(8);
}

// Opens what is needed at the first use of the GPU: a job may well use none.
static void start(void) {
  static int started;
  if (started) return;
  started = 1;
  void *runtime = dlopen("libcudart.so.12", RTLD_NOW);
  int (*set_device)(int) = NULL;
  if (runtime) {
    find(RTLD_DEFAULT, "cudaMalloc", &cuda_malloc); // as a program linked with it: the hook is before it
    find(runtime, "cudaSetDevice", &set_device);
  }
  find(RTLD_DEFAULT, "memprof_malloc", &hook_malloc);
  find(RTLD_DEFAULT, "memprof_free", &hook_free);
  find(RTLD_DEFAULT, "memprof_iteration", &hook_iteration);
  find(RTLD_DEFAULT, "memprof_phase_begin", &hook_phase_begin);
  find(RTLD_DEFAULT, "memprof_phase_end", &hook_phase_end);
  find(RTLD_DEFAULT, "memprof_set_context", &hook_set_context);
  find(RTLD_DEFAULT, "memprof_label", &hook_label);
  find(RTLD_DEFAULT, "memprof_stack_node", &hook_stack_node);
  find(RTLD_DEFAULT, "memprof_region_begin", &hook_region_begin);
  find(RTLD_DEFAULT, "memprof_region_end", &hook_region_end);
  find(RTLD_DEFAULT, "memprof_pause", &hook_pause);
  find(RTLD_DEFAULT, "memprof_resume", &hook_resume);
  find(RTLD_DEFAULT, "memprof_pause_message", &hook_pause_message);
  if (!cuda_malloc || !set_device || !hook_malloc || !hook_free || !hook_iteration || set_device(0) != 0) {
    fprintf(stderr, "job: no CUDA or no hook\n");
    exit(8);
  }
}

static size_t size_of(const char *text) {
  char *end;
  size_t size = strtoull(text, &end, 10);
  if (*end == 'K') size <<= 10;
  if (*end == 'M') size <<= 20;
  if (*end == 'G') size <<= 30;
  return size;
}

static void *allocate(size_t size) {
  start();
  void *block = shape ? hook_malloc_in_pool(size, 0, capture_stream, 0, shape) : hook_malloc(size, 0, NULL);
  if (!block) exit(10);
  if (log_file >= 0) {
    char line[64];
    int length = snprintf(line, sizeof line, "%llu %zu\n", (unsigned long long)(uintptr_t)block, size);
    if (write(log_file, line, (size_t)length) != length) exit(7);
  }
  return block;
}

// The text with a tab for each %t, in place.
static const char *tabbed(char *text) {
  for (char *at; (at = strstr(text, "%t")) != NULL;) {
    *at = '\t';
    memmove(at + 1, at + 2, strlen(at + 2) + 1);
  }
  return text;
}

// The words about tags.
static int tag(const char *word, const char *name) {
  const int kept = strcmp(word, "kept") == 0, pause = strcmp(word, "pause") == 0;
  if (!kept && !pause && strcmp(word, "tag") != 0 && strcmp(word, "resume") != 0) return 0;
  start();
  if ((pause || strcmp(word, "resume") == 0) && (pause ? hook_pause : hook_resume)(&name, 1, 0) != 0) puts(hook_pause_message());
  if (kept || (strcmp(word, "tag") == 0 && *name)) hook_region_begin(name, kept);
  if (strcmp(word, "tag") == 0 && !*name) hook_region_end();
  return 1;
}

// The words about KV caches.
static int keys_values(const char *word, char **arguments) {
  static uint64_t cache;
  uint64_t (*make)(int, uint64_t, uint64_t, const char *);
  void (*reserve)(uint64_t, int64_t, uint64_t, uint64_t, uint64_t);
  void (*share)(uint64_t, int64_t, uint64_t, uint64_t, int64_t);
  void (*append)(uint64_t, int64_t, uint64_t), (*give_up)(uint64_t, int64_t, uint64_t);
  void (*out)(uint64_t, int64_t), (*in)(uint64_t, int64_t, uint64_t, uint64_t);
  if (strcmp(word, "cache") != 0 && strcmp(word, "kv") != 0) return 0;
  start();
  if (strcmp(word, "cache") == 0) {
    find(RTLD_DEFAULT, "memprof_kv_cache", &make);
    cache = make(0, strtoull(arguments[0], NULL, 10), 1024, tabbed(arguments[1]));
    return 2;
  }
  long long n[4] = {0};
  char what[16] = "";
  sscanf(arguments[0], "%15[a-z]:%lld:%lld:%lld:%lld", what, &n[0], &n[1], &n[2], &n[3]);
  find(RTLD_DEFAULT, "memprof_kv_reserve", &reserve);
  find(RTLD_DEFAULT, "memprof_kv_share", &share);
  find(RTLD_DEFAULT, "memprof_kv_append", &append);
  find(RTLD_DEFAULT, "memprof_kv_free", &give_up);
  find(RTLD_DEFAULT, "memprof_kv_swap_out", &out);
  find(RTLD_DEFAULT, "memprof_kv_swap_in", &in);
  if (strcmp(what, "reserve") == 0) reserve(cache, n[0], (uint64_t)n[1], (uint64_t)n[2], (uint64_t)n[3]);
  if (strcmp(what, "share") == 0) share(cache, n[0], (uint64_t)n[1], (uint64_t)n[2], -1);
  if (strcmp(what, "append") == 0) append(cache, n[0], (uint64_t)n[1]);
  if (strcmp(what, "out") == 0) out(cache, n[0]);
  if (strcmp(what, "in") == 0) in(cache, n[0], (uint64_t)n[1], (uint64_t)n[2]);
  if (strcmp(what, "free") == 0) give_up(cache, n[0], (uint64_t)n[1]);
  return 1;
}

static uint64_t shape_of(const char *name) {
  for (uint64_t i = 0; i < NAMES; i++) {
    if (strcmp(shapes[i], name) == 0 || !*shapes[i]) return i + 1;
  }
  exit(7);
}

// The words about graphs, as torch and memprof.GraphMemory do it.
static int graphs(const char *word, const char *name) {
  static uint32_t memory;
  static void *graph;
  const int shaped = strcmp(word, "shape") == 0;
  if (!shaped && strcmp(word, "graph") != 0 && strcmp(word, "reset") != 0) return 0;
  start();
  if (!hook_graph_shape) find_graphs(dlopen("libcudart.so.12", RTLD_NOW));
  if (shaped && !memory) memory = hook_graph_memory_open(0, 0);
  if (strcmp(word, "reset") == 0) {
    hook_release_pool(0, 0, shape_of(name));
  } else if (*name) {
    shape = shape_of(name);
    snprintf(shapes[shape - 1], sizeof shapes[0], "%s", name);
    if (shaped && hook_graph_shape(0, memory, name, 0, shape) != 0) exit(12);
    if (shaped) hook_capture_name(name, 0, shape, 0);
    hook_pool_begin(0, 0, shape);
    if (begin_capture(capture_stream, 0) != 0) exit(12);
  } else {
    if (end_capture(capture_stream, &graph) != 0) exit(12);
    hook_pool_end(0, 0, shape);
    if (shaped) hook_release_pool(0, 0, shape);  // the shape's own hold; the graph has one, too
    hook_capture_name(NULL, 0, 0, 0);
    shape = 0;
  }
  return 1;
}

static void freed(void *self, void *block) {
  (void)self;
  for (int i = 0; i < NAMES; i++) {
    if (blocks[i].block == block) blocks[i].block = NULL;
  }
}

// The words about checkpoints, as graph trees make them.
static int checkpoints(const char *word, const char *name) {
  const int note = strcmp(word, "note") == 0;
  if (!note && strcmp(word, "back") != 0) return 0;
  find(RTLD_DEFAULT, "memprof_checkpoint", &hook_checkpoint);
  find(RTLD_DEFAULT, "memprof_restore", &hook_restore);
  find(RTLD_DEFAULT, "memprof_owns", &hook_owns);
  const uint64_t pool = shape_of(name);
  struct memprof_restored list[NAMES];
  size_t count = 0, bytes = 0;
  if (note) memcpy(noted, blocks, sizeof noted);
  for (int i = 0; i < NAMES; i++) {
    if (!noted[i].block || noted[i].pool != pool) continue;
    if (note && !hook_owns(noted[i].block, &noted[i].provided)) exit(12);
    list[count++] = (struct memprof_restored){capture_stream, (uintptr_t)noted[i].block, noted[i].provided, noted[i].size};
    bytes += noted[i].size;
  }
  if (note) hook_checkpoint(0, 0, pool, count, bytes);
  if (note) return 1;
  if (!hook_restore(0, 0, pool, list, count, NULL, freed)) exit(12);
  for (int i = 0; i < NAMES; i++) {
    if (noted[i].block && noted[i].pool == pool) blocks[i] = noted[i];
  }
  return 1;
}

// The words that mark what the job does; 0 for another word.
static int mark(const char *word, char **arguments, int left) {
  if (strcmp(word, "begin") == 0) {
    start();
    hook_phase_begin(arguments[0]);
  } else if (strcmp(word, "end") == 0) {
    start();
    hook_phase_end(arguments[0]);
  } else if (strcmp(word, "in") == 0) {
    start();
    hook_set_context(tabbed(arguments[0]));
  } else if (strcmp(word, "frame") == 0 && left >= 2) {
    start();
    hook_stack_node((uint32_t)atoi(arguments[0]), arguments[1]);
    return 2;
  } else {
    return tag(word, arguments[0]) || graphs(word, arguments[0]) || checkpoints(word, arguments[0]) ? 1 : keys_values(word, arguments);
  }
  return 1;
}

static int slot_of(const char *name) {
  int empty = -1;
  for (int i = 0; i < NAMES; i++) {
    if (blocks[i].block && strcmp(blocks[i].name, name) == 0) return i;
    if (!blocks[i].block && empty < 0) empty = i;
  }
  if (empty < 0) exit(7);
  return empty;
}

static void churn(uint64_t seed, long count) {
  void *live[NAMES] = {0};
  for (long i = 0; i < count; i++) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    int slot = (int)(seed >> 58);
    if (live[slot]) {
      hook_free(live[slot], 0, 0, NULL);
      live[slot] = NULL;
    } else {
      live[slot] = allocate(1 + (seed >> 40) % (1u << 20));
    }
  }
  for (int slot = 0; slot < NAMES; slot++) {
    if (live[slot]) hook_free(live[slot], 0, 0, NULL);
  }
}

static void pause_ms(long ms) {
  struct timespec span = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
  nanosleep(&span, NULL);
}

// Waits until a file is gone; ten minutes at most, so that a test that is killed leaves no process behind.
static void wait_for(const char *file) {
  for (int i = 0; access(file, F_OK) == 0; i++) {
    if (i == 120000) exit(13);
    pause_ms(5);
  }
}

static void say_signal(int signal) {
  char line[32];
  int length = snprintf(line, sizeof line, "signal %d\n", signal);
  if (write(1, line, (size_t)length) < 0) _exit(7);
}

static void catch_signals(void) {
  struct sigaction action = {.sa_handler = say_signal};
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGUSR1, &action, NULL);
}

static void forbid_one(unsigned number) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) exit(12);
}

static void forbid(const char *call) {
  if (strcmp(call, "clone") == 0) {
    forbid_one(SYS_clone);
    forbid_one(SYS_clone3);
  } else if (strcmp(call, "fallocate") == 0) {
    forbid_one(SYS_fallocate);
  } else if (strcmp(call, "mkdir") == 0) {
#ifdef SYS_mkdir
    forbid_one(SYS_mkdir);
#endif
    forbid_one(SYS_mkdirat);
  } else {
    exit(9);
  }
}

static void cover(const char *name) {
  const int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || write(file, "job\n", 4) != 4) exit(7);
  for (int i = 3; i < 1024; i++) {
    if (i != file) dup2(file, i);
  }
  // What works with descriptors of its own needs some.
  syscall(SYS_close_range, 1000, ~0u, 0);
}

static const char *until;

static void end_daemon(void) { unlink(until); }

static void become_daemon(const char *name) {
  until = name;
  if (fork() != 0) _exit(0);
  setsid();
  if (fork() != 0) _exit(0);
  syscall(SYS_close_range, 0, ~0u, 0);
  open("/dev/null", O_RDWR);
  dup2(0, 1);
  dup2(0, 2);
  atexit(end_daemon);
}

int main(int argc, char **argv) {
  for (int i = 1, used; i < argc; i++) {
    const char *word = argv[i];
    if (strcmp(word, "catch") == 0) {
      catch_signals();
    } else if (strcmp(word, "close") == 0) {
      syscall(SYS_close_range, 3, ~0u, 0);
    } else if (strcmp(word, "load") == 0) {
      if (!dlopen(argv[++i], RTLD_NOW)) return 12;
    } else if (strcmp(word, "cover") == 0 && i + 1 < argc) {
      cover(argv[++i]);
    } else if (strcmp(word, "daemon") == 0 && i + 1 < argc) {
      become_daemon(argv[++i]);
    } else if (strcmp(word, "iteration") == 0) {
      start();
      hook_iteration("");
    } else if (i + 1 >= argc) {
      return 9;
    } else if ((used = mark(word, argv + i + 1, argc - i - 1)) > 0) {
      i += used;
    } else if (strcmp(word, "holds") == 0 && i + 2 < argc) {
      hook_label(blocks[slot_of(argv[i + 1])].block, tabbed(argv[i + 2]));
      i += 2;
    } else if (strcmp(word, "alloc") == 0 && i + 2 < argc) {
      int slot = slot_of(argv[i + 1]);
      snprintf(blocks[slot].name, sizeof blocks[slot].name, "%s", argv[i + 1]);
      blocks[slot].block = allocate(blocks[slot].size = size_of(argv[i + 2]));
      blocks[slot].pool = shape;
      i += 2;
    } else if (strcmp(word, "free") == 0) {
      int slot = slot_of(argv[++i]);
      hook_free(blocks[slot].block, 0, 0, NULL);
      blocks[slot].block = NULL;
    } else if (strcmp(word, "library") == 0) {
      start();
      void *block = NULL;
      if (cuda_malloc(&block, size_of(argv[++i])) != 0) return 11;
    } else if (strcmp(word, "churn") == 0 && i + 2 < argc) {
      start();
      churn(strtoull(argv[i + 1], NULL, 10), atol(argv[i + 2]));
      i += 2;
    } else if (strcmp(word, "log") == 0) {
      log_file = open(argv[++i], O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
    } else if (strcmp(word, "touch") == 0) {
      close(open(argv[++i], O_WRONLY | O_CREAT, 0600));
    } else if (strcmp(word, "forbid") == 0) {
      forbid(argv[++i]);
    } else if (strcmp(word, "sleep") == 0) {
      pause_ms(atol(argv[++i]));
    } else if (strcmp(word, "wait") == 0) {
      wait_for(argv[++i]);
    } else if (strcmp(word, "raise") == 0) {
      raise(atoi(argv[++i]));
    } else if (strcmp(word, "print") == 0) {
      puts(argv[++i]);
      fflush(stdout);
    } else if (strcmp(word, "exit") == 0) {
      return atoi(argv[++i]);
    } else {
      return 9;
    }
  }
  return 0;
}
