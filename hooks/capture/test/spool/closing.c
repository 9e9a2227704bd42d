// closing.c - jobs that close descriptors, or give their numbers to files of their own: nothing
// is lost, nothing is written into a file of the job's, and readers know whether the job lives.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/close_range.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "asleep.h"
#include "gpu.h"
#include "memprof.h"
#include "trail.h"

#ifdef __SANITIZE_THREAD__  // which takes one number in two threads, or two tables, for a race
#define UNLESS_TSAN(test) __attribute__((unused)) static void test_##test(void)
#else
#define UNLESS_TSAN(test) TEST(test)
#endif

enum { ROUNDS = 100000, LIVE = 64, NUMBERS = 1024 };

static bool old_kernel;     // without locks of open files
static int taken_by = -1;   // the job's file that takes the number of the hook's next one, before the hook takes it

int fcntl(int file, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void *argument = va_arg(arguments, void *);
  va_end(arguments);
  if (command == F_DUPFD_CLOEXEC && taken_by >= 0) {
    dup2(taken_by, file);
    taken_by = -1;
  }
  if (old_kernel && command == F_OFD_SETLK) {
    errno = EINVAL;
    return -1;
  }
  return (int)syscall(SYS_fcntl, file, command, argument);
}

static _Atomic bool not_accepting;  // the job has a file under the listener's number

int accept4(int file, struct sockaddr *address, socklen_t *length, int flags) {
  if (atomic_exchange(&not_accepting, false)) {
    const int other = open("/dev/null", O_RDONLY);
    dup2(other, file);
    close(other);
  }
  return (int)syscall(SYS_accept4, file, address, length, flags);
}

static void close_all(int from) { CHECK(syscall(SYS_close_range, from, ~0u, 0) == 0); }

static struct {
  uint64_t addr, bytes;
} returned[ROUNDS];
static int returned_count;

// Allocations and frees, over more than two segments; what was returned is noted.
static void churn(void) {
  static void *blocks[LIVE];
  for (int i = 0; i < ROUNDS; i++) {
    void **block = &blocks[i % LIVE];
    memprof_free(*block, 0, 0, NULL);
    const uint64_t bytes = 1 + (uint64_t)i * 7919 % MiB;
    CHECK((*block = memprof_malloc(bytes, 0, NULL)) != NULL);
    returned[returned_count].addr = (uintptr_t)*block;
    returned[returned_count++].bytes = bytes;
  }
}

static void check_all_recorded(void) {
  const struct trail trail = trail_read(getpid(), 0);
  int found = 0;
  CHECK_EQUAL(trail.process.state, MEMPROF_RECORDING);
  CHECK_EQUAL(trail.count, trail.process.claimed);
  for (uint64_t i = 0; i < trail.count; i++) {
    if (trail_kind(&trail.records[i]) != MEMPROF_ALLOC) continue;
    CHECK(found < returned_count && trail.records[i].addr == returned[found].addr && trail.records[i].requested == returned[found].bytes);
    found++;
  }
  CHECK_EQUAL(found, returned_count);
  CHECK(trail.count > 2 * MEMPROF_SEGMENT_RECORDS);
}

// A thread of the hook may be about to write them: waits a minute at most.
static void check_problems(const char *want) {
  const struct trail trail = trail_read(getpid(), 0);
  for (int i = 0; i < 6000 && strcmp(trail_problems(&trail), want) != 0; i++) usleep(10000);
  if (strcmp(trail_problems(&trail), want) != 0) fprintf(stderr, "problems: %s", trail_problems(&trail));
  CHECK(strcmp(trail_problems(&trail), want) == 0);
}

TEST(before_the_first_use) {
  close_all(3);
  gpu_start();
  churn();
  check_all_recorded();
}

UNLESS_TSAN(after_the_first_use) {
  gpu_start();
  CHECK(memprof_active() == 1);
  churn();
  close_all(3);
  const int rounds = returned_count;
  memprof_problem("one");
  returned_count = 0;
  churn();
  memprof_problem("two");
  close_all(0);
  memprof_problem("three");
  const struct trail trail = trail_read(getpid(), 0);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_ALLOC), rounds + returned_count);
  CHECK_EQUAL(trail.count, trail.process.claimed);
  check_problems("one\ntwo\nthree\n");
}

// The job's files take all numbers there are.
UNLESS_TSAN(numbers_are_taken) {
  static char path[] = "/tmp/memprof-closing-XXXXXX";
  gpu_start();
  CHECK(memprof_malloc(GiB, 0, NULL) != NULL);
  const int mine = mkstemp(path);
  CHECK(mine >= 0 && write(mine, "job\n", 4) == 4);
  for (int i = 3; i < NUMBERS; i++) {
    if (i != mine) dup2(mine, i);  // beyond the limit it fails
  }
  memprof_problem("of the hook");
  CHECK(write(700, "more\n", 5) == 5 || write(mine, "more\n", 5) == 5);
  close_all(NUMBERS - 60);  // it needs some for itself
  for (int i = 0; i < 3; i++) {
    for (int k = 0; k < ROUNDS / 4; k++) memprof_free(memprof_malloc(1 + (uint64_t)k, 0, NULL), 0, 0, NULL);
    memprof_problem("of the hook");
  }
  char text[64] = "";
  const int again = open(path, O_RDONLY);
  CHECK_EQUAL(read(again, text, sizeof text - 1), 9);
  CHECK(strcmp(text, "job\nmore\n") == 0);
  for (int i = 3; i < NUMBERS - 60; i++) {
    struct stat one, two;
    CHECK(fstat(i, &one) == 0 && stat(path, &two) == 0 && one.st_ino == two.st_ino && one.st_size == 9);
  }
  unlink(path);
  const struct trail trail = trail_read(getpid(), 0);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_ALLOC), 1 + 3 * (ROUNDS / 4));
  CHECK_EQUAL(trail.process.state, MEMPROF_RECORDING);
  check_problems("of the hook\nof the hook\nof the hook\nof the hook\n");
}

// Before the hook can note which file it has opened, its number is the job's.
UNLESS_TSAN(number_is_taken_at_once) {
  static char path[] = "/tmp/memprof-closing-XXXXXX";
  char text[64] = "";
  gpu_start();
  const int mine = mkstemp(path);
  CHECK(mine >= 0 && write(mine, "job\n", 4) == 4);
  taken_by = mine;  // of the problems, the first file
  CHECK(memprof_malloc(MiB, 0, NULL) != NULL);
  CHECK_EQUAL(taken_by, -1);
  memprof_problem("of the hook");
  CHECK_EQUAL(pread(mine, text, sizeof text - 1, 0), 4);
  CHECK(strcmp(text, "job\n") == 0);
  unlink(path);
}

static _Atomic bool done;

static void *close_over_and_over(void *nothing) {
  while (!done) close_all(3);
  return nothing;
}

// Whatever the hook has open at the moment is closed under it.
static void close_all_the_time(void) {
  pthread_t thread;
  gpu_start();
  memprof_free(memprof_malloc(4 * GiB, 0, NULL), 0, 0, NULL);  // the device will not be asked again
  CHECK(pthread_create(&thread, NULL, close_over_and_over, NULL) == 0);
  churn();
  done = true;
  pthread_join(thread, NULL);
  const struct trail trail = trail_read(getpid(), 0);
  CHECK_EQUAL(trail.process.state, MEMPROF_RECORDING);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_ALLOC), 1 + ROUNDS);
}

TEST(all_the_time) { close_all_the_time(); }

// Kernels before 5.9, and sandboxes: a thread has no table of descriptors of its own.
TEST(all_the_time_in_one_table) {
  if (emulated_without("seccomp filters")) return;
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CLOSE_RANGE_UNSHARE, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
  close_all_the_time();
}

UNLESS_TSAN(tensors_are_shared_on) {
  char name[128];
  gpu_start();
  char *block = memprof_malloc(100 * MiB, 0, NULL);
  CHECK(memprof_share(block, name, sizeof name) == 1);
  for (int i = 0; i < 3; i++) {
    char *again = memprof_open_shared(name, 0);
    CHECK(again != NULL);
    block[5] = (char)(i + 1);
    CHECK_EQUAL(again[5], i + 1);
    memprof_close_shared(again, 0);
    close_all(3);
  }
  CHECK(memprof_open_shared(name, 0) != NULL);
  check_problems("the job closed the socket by which memprof shares tensors; it is opened again\n");
}

UNLESS_TSAN(listener_is_the_jobs) {
  char name[128];
  gpu_start();
  void *block = memprof_malloc(MiB, 0, NULL);
  not_accepting = true;
  CHECK(memprof_share(block, name, sizeof name) == 1);
  CHECK(memprof_open_shared(name, 0) != NULL);
  CHECK(!not_accepting);
}

// One that connects, and asks for nothing.
static int silent_peer(const char *shared) {
  char name[64];
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  CHECK(sscanf(shared, "%*s %63s", name) == 1);
  memcpy(address.sun_path + (name[0] == '/' ? 0 : 1), name, strlen(name));
  const int peer = socket(AF_UNIX, SOCK_STREAM, 0);
  CHECK(connect(peer, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name))) == 0);
  return peer;
}

// Others come while it is waited for, and the job has closed the listener.
UNLESS_TSAN(a_peer_is_silent) {
  char name[128];
  gpu_start();
  void *block = memprof_malloc(MiB, 0, NULL);
  CHECK(memprof_share(block, name, sizeof name) == 1);
  await_call(0, SYS_accept4);
  close_all(3);
  const int peer = silent_peer(name);
  await_call(0, SYS_recvfrom);
  CHECK(memprof_open_shared(name, 0) != NULL);
  close(peer);
}

static bool seen_alive(pid_t pid) {
  char path[600], file[700];
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  CHECK(trail_find(pid, path, sizeof path));
  snprintf(file, sizeof file, "%s/process", path);
  const int descriptor = open(file, O_RDONLY);
  CHECK(descriptor >= 0 && fcntl(descriptor, F_GETLK, &lock) == 0);
  const bool held = lock.l_type != F_UNLCK || flock(descriptor, LOCK_SH | LOCK_NB) != 0;
  close(descriptor);
  return held;
}

static void look_at_life(void) {
  if (emulated_without("MADV_DONTFORK")) return;  // the lock is held by a mapping of the grandchild, too
  int ready[2];
  CHECK(pipe(ready) == 0);
  const pid_t child = fork();
  if (child == 0) {
    gpu_start();
    CHECK(memprof_malloc(MiB, 0, NULL) != NULL);
    const pid_t grandchild = fork();
    if (grandchild == 0) {
      close(ready[1]);
      sleep(600);
      _exit(0);
    }
    trail_read(getpid(), 0);  // opens and closes the process file
    CHECK(write(ready[1], &grandchild, sizeof grandchild) == sizeof grandchild);
    close_all(0);
    sleep(600);
    _exit(1);
  }
  close(ready[1]);
  pid_t grandchild = 0;
  char nothing;
  CHECK(read(ready[0], &grandchild, sizeof grandchild) == sizeof grandchild && read(ready[0], &nothing, 1) == 0);
  CHECK(seen_alive(child));
  kill(child, SIGKILL);
  CHECK(waitpid(child, NULL, 0) == child);
  CHECK(kill(grandchild, 0) == 0 && !seen_alive(child));
  kill(grandchild, SIGKILL);
}

TEST(life) { look_at_life(); }

TEST(life_on_other_kernels) {
  old_kernel = true;
  look_at_life();
}

// A job that has changed its root, where the keeper has the directory open.
TEST(root_is_changed) {
  static char empty[] = "/tmp/memprof-closing-XXXXXX";
  CHECK(mkdtemp(empty) != NULL);
  const pid_t child = fork();
  if (child == 0) {
    gpu_start();
    memprof_free(memprof_malloc(4 * GiB, 0, NULL), 0, 0, NULL);  // the simulated driver needs /proc
    if (chroot(empty) != 0) _exit(77);
    close_all(3);
    churn();
    exit(0);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  rmdir(empty);
  if (WEXITSTATUS(status) == 77) return;  // not root
  CHECK_EQUAL(status, 0);
  const struct trail trail = trail_read(child, 0);
  CHECK_EQUAL(trail.process.state, MEMPROF_CLOSED);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_ALLOC), ROUNDS + 1);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
