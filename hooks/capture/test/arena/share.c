// share.c - blocks by name: opened again in this process, refused where they should be.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "asleep.h"
#include "calls.h"
#include "tags.h"

TEST(again) {
  gpu_start();
  CHECK(memprof_malloc(3 * MiB + 1000, 0, NULL) != NULL);
  char *block = memprof_malloc(100 * MiB, 0, NULL);  // in several handles, from the middle of one
  CHECK(block != NULL);
  char name[128];
  const uint64_t before = gpu_free();
  CHECK(memprof_share(block, name, sizeof name) == 1);
  char *again = memprof_open_shared(name, 0);
  CHECK(again != NULL && again != block);
  CHECK_EQUAL(gpu_free(), before);  // the same memory
  const uint64_t places[] = {0, 1, 31 * MiB, 32 * MiB, 100 * MiB - 1};
  for (int i = 0; i < 5; i++) {
    fill(block + places[i], 1, i + 1);
    CHECK_EQUAL(at(again + places[i], 0), i + 1);
  }
  memprof_close_shared(again, 0);
  CHECK_EQUAL(at(block + 32 * MiB, 0), 4);
  memprof_close_shared(again, 0);  // a second time: nothing happens
  CHECK(memprof_open_shared(name, 0) != NULL);
}

// A forked child has no GPU: it closes nothing.
TEST(closed_in_a_child) {
  log_calls();
  gpu_start();
  char name[128], *block = memprof_malloc(MiB, 0, NULL);
  CHECK(memprof_share(block, name, sizeof name) == 1);
  char *again = memprof_open_shared(name, 0);
  CHECK(again != NULL);
  const uint64_t before = calls_of("cuMemUnmap");
  const pid_t child = fork();
  if (child == 0) {
    memprof_close_shared(again, 0);
    _exit(0);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK_EQUAL(calls_of("cuMemUnmap"), before);
  memprof_close_shared(again, 0);
  CHECK(calls_of("cuMemUnmap") > before);
}

struct shared {
  char name[8][128];
  uint64_t base[8], span[8];
  int count;
};

static void keep_name(void *self, const char *name, uint64_t base, uint64_t span) {
  struct shared *shared = self;
  snprintf(shared->name[shared->count], sizeof shared->name[0], "%s", name);
  shared->base[shared->count] = base;
  shared->span[shared->count++] = span;
}

// All of a tag, with a gap where memory was unmapped.
TEST(tag) {
  gpu_start();
  memprof_region_begin("weights", 0);
  char *a = memprof_malloc(300 * MiB, 0, NULL), *gone = memprof_malloc(600 * MiB, 0, NULL), *b = memprof_malloc(40 * MiB, 0, NULL);
  char *c = memprof_malloc(10 * MiB, 0, gpu_stream());
  memprof_region_end();
  CHECK(memprof_malloc(MiB, 0, NULL) != NULL);  // of no tag
  memprof_free(gone, 0, 0, NULL);
  CHECK(memprof_empty_cache(0) > 0);
  fill(a, 1, 1), fill(b + 40 * MiB - 1, 1, 2), fill(c, 1, 3);
  struct shared shared = {.count = 0};
  CHECK_EQUAL(memprof_share_tag("weights", 0, &shared, keep_name), 2);
  CHECK_EQUAL(memprof_share_tag("nobody", 0, &shared, keep_name), 0);
  const uint64_t before = gpu_free();
  for (int i = 0; i < 2; i++) {
    char *base = memprof_open_shared(shared.name[i], 0);
    CHECK(base != NULL);
    const struct { char *ptr; int value; } all[] = {{a, 1}, {b + 40 * MiB - 1, 2}, {c, 3}};
    for (int k = 0; k < 3; k++) {
      const uint64_t place = (uintptr_t)all[k].ptr - shared.base[i];
      if (place < shared.span[i]) CHECK_EQUAL(at(base + place, 0), all[k].value);
    }
    memprof_close_shared(base, 0);
  }
  CHECK_EQUAL(gpu_free(), before);
  static const char *const tag[] = {"weights"};
  CHECK_EQUAL(memprof_pause(tag, 1, 0), MEMPROF_OK);
  CHECK_EQUAL(memprof_share_tag("weights", 0, &shared, keep_name), 0);  // paused
  CHECK(memprof_open_shared(shared.name[0], 0) == NULL);
}

TEST(refused) {
  gpu_start();
  char name[128];
  char *block = memprof_malloc(1000, 0, NULL);
  CHECK(memprof_share(block + 1, name, sizeof name) == 0);
  CHECK(memprof_share(name, name, sizeof name) == 0);
  CHECK(memprof_share(block, name, 10) == 0);
  CHECK(memprof_share(block, name, sizeof name) == 1);
  memprof_free(block, 0, 0, NULL);
  CHECK(memprof_open_shared(name, 0) == NULL);
  CHECK(memprof_open_shared("memprof-block nobody 1000", 0) == NULL);
  CHECK(memprof_open_shared("c0ffee", 0) == NULL);
}

static socklen_t address_of(const char *name, struct sockaddr_un *out) {
  *out = (struct sockaddr_un){.sun_family = AF_UNIX};
  const size_t at = name[0] == '/' ? 0 : 1;
  snprintf(out->sun_path + at, sizeof out->sun_path - at, "%s", name);
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

// Shares a block, and gives the name of its socket.
static void *share_one(char *name, size_t size, char *socket_name) {
  gpu_start();
  void *block = memprof_malloc(1000, 0, NULL);
  CHECK(memprof_share(block, name, size) == 1);
  CHECK(sscanf(name, "memprof-block %63s", socket_name) == 1);
  return block;
}

// Somebody who connects and says nothing keeps the others waiting for a while, not for ever.
TEST(silent_peer) {
  char name[128], socket_name[64];
  share_one(name, sizeof name, socket_name);
  struct sockaddr_un address;
  const socklen_t length = address_of(socket_name, &address);
  const int silent = socket(AF_UNIX, SOCK_STREAM, 0);
  CHECK(connect(silent, (struct sockaddr *)&address, length) == 0);
  alarm(180);
  CHECK(memprof_open_shared(name, 0) != NULL);
  close(silent);
}

// The owner ends after its first words, and after half of what it promised.
TEST(owner_dies) {
  gpu_start();
  memprof_malloc(1000, 0, NULL);  // the hook is at work
  const uint64_t before = gpu_free(), promise[4] = {2, 1 << 30, 0, 64 << 20};
  char socket_name[64], name[128];
  snprintf(socket_name, sizeof socket_name, "memprof-test-%d", (int)getpid());
  snprintf(name, sizeof name, "memprof-arena %s 1000", socket_name);
  struct sockaddr_un address;
  const socklen_t length = address_of(socket_name, &address);
  const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  CHECK(bind(listener, (struct sockaddr *)&address, length) == 0);
  CHECK(listen(listener, 4) == 0);
  for (size_t words = 0; words <= sizeof promise; words += 16) {
    const pid_t owner = fork();
    if (owner == 0) {
      const int peer = accept(listener, NULL, NULL);
      char request[16];
      _exit(peer >= 0 && recv(peer, request, sizeof request, MSG_WAITALL) == sizeof request && send(peer, promise, words, 0) == (ssize_t)words ? 0 : 1);
    }
    CHECK(memprof_open_shared(name, 0) == NULL);
    int status;
    CHECK(waitpid(owner, &status, 0) == owner && status == 0);
  }
  CHECK_EQUAL(gpu_free(), before);
}

static bool others_are_foreign, folder_is_foreign;

// A link in the folder's place, say.
int mkdir(const char *path, mode_t mode) {
  if (folder_is_foreign && strncmp(path, "/tmp/memprof-", 13) == 0) return errno = EACCES, -1;
  return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

// Where the test cannot become another user, the other side is said to be one.
int getsockopt(int number, int level, int option, void *restrict value, socklen_t *restrict length) {
  const int result = (int)syscall(SYS_getsockopt, number, level, option, value, length);
  if (result == 0 && option == SO_PEERCRED && others_are_foreign) ((struct ucred *)value)->uid++;
  return result;
}

static pid_t fork_as_another_user(void) {
  others_are_foreign = geteuid() != 0;
  const pid_t child = fork();
  if (child == 0 && !others_are_foreign && setuid(65534) != 0) _exit(9);
  return child;
}

// Another user binds the name of an owner that has ended: the opener hangs up before it has said what it wants.
TEST(foreign_owner) {
  gpu_start();
  memprof_malloc(1000, 0, NULL);
  char socket_name[64], name[128];
  snprintf(socket_name, sizeof socket_name, "memprof-test-%d", (int)getpid());
  snprintf(name, sizeof name, "memprof-arena %s 1000", socket_name);
  int listens[2];
  CHECK(pipe(listens) == 0);
  const pid_t owner = fork_as_another_user();
  if (owner == 0) {
    struct sockaddr_un address;
    const socklen_t length = address_of(socket_name, &address);
    const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, length) != 0 || listen(listener, 4) != 0 || write(listens[1], "", 1) != 1) _exit(8);
    char request[16];
    _exit(recv(accept(listener, NULL, NULL), request, sizeof request, MSG_WAITALL) == 0 ? 0 : 1);
  }
  char ready;
  CHECK(read(listens[0], &ready, 1) == 1);
  CHECK(memprof_open_shared(name, 0) == NULL);
  int status;
  CHECK(waitpid(owner, &status, 0) == owner && status == 0);
}

// Where there can be no folder of the user's, any user can connect.
TEST(foreign_peer) {
  char name[128], socket_name[64];
  folder_is_foreign = true;
  const void *block = share_one(name, sizeof name, socket_name);
  CHECK(socket_name[0] != '/');
  const pid_t peer = fork_as_another_user();
  if (peer == 0) {
    struct sockaddr_un address;
    const socklen_t length = address_of(socket_name, &address);
    const int there = socket(AF_UNIX, SOCK_STREAM, 0);
    const uint64_t request[2] = {(uintptr_t)block, 0};
    char answer[32];
    if (connect(there, (struct sockaddr *)&address, length) != 0) _exit(8);
    send(there, request, sizeof request, MSG_NOSIGNAL);
    _exit(recv(there, answer, sizeof answer, MSG_WAITALL) <= 0 ? 0 : 1);
  }
  int status;
  CHECK(waitpid(peer, &status, 0) == peer && status == 0);
  others_are_foreign = false;
  CHECK(memprof_open_shared(name, 0) != NULL);
}

// Nobody else can enter the folder. What a killed process left in it goes with the next listener, and its own with its end.
TEST(folder) {
  char folder[40], killed[64], name[128], socket_name[64];
  snprintf(folder, sizeof folder, "/tmp/memprof-%u", (unsigned)geteuid());
  mkdir(folder, 0700);
  const pid_t child = fork();
  if (child == 0) {
    struct sockaddr_un address;
    snprintf(killed, sizeof killed, "%s/%d-0", folder, (int)getpid());
    const socklen_t length = address_of(killed, &address);
    _exit(bind(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&address, length) == 0 ? 0 : 1);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  snprintf(killed, sizeof killed, "%s/%d-0", folder, (int)child);
  CHECK(access(killed, F_OK) == 0);
  const pid_t owner = fork();
  if (owner == 0) {
    share_one(name, sizeof name, socket_name);
    struct stat stat;
    CHECK(lstat(folder, &stat) == 0 && (stat.st_mode & 07777) == 0700);
    CHECK(strncmp(socket_name, folder, strlen(folder)) == 0 && lstat(socket_name, &stat) == 0 && S_ISSOCK(stat.st_mode));
    CHECK(memprof_open_shared(name, 0) != NULL);
    exit(0);
  }
  CHECK(waitpid(owner, &status, 0) == owner && status == 0);
  CHECK(access(killed, F_OK) != 0);
  DIR *entries = opendir(folder);
  for (const struct dirent *each; (each = readdir(entries)) != NULL;) CHECK(atoi(each->d_name) != owner);
  closedir(entries);
}

static int open_files(void) {
  DIR *folder = opendir("/proc/self/fd");
  int count = 0;
  while (readdir(folder) != NULL) count++;
  closedir(folder);
  return count;
}

enum { SETUP_FAILED = 20, NOTHING_FAILED, OPEN_FAILED, STUCK };

// Memory of a tag, with a gap, is opened while the driver refuses one call of the owner's or the peer's: the call says
// so, or all is there; nothing is left of it, and the next call succeeds. The exit status says what came of it.
static void test_one_failure(void) {
  gpu_start();
  const bool release = strncmp(getenv("MEMPROF_SIM_FAIL"), "cuMemRelease", 12) == 0;
  const uint64_t empty = gpu_free();
  memprof_region_begin("weights", 0);
  char *a = memprof_malloc(300 * MiB, 0, NULL), *gone = memprof_malloc(600 * MiB, 0, NULL), *b = memprof_malloc(40 * MiB, 0, NULL);
  memprof_region_end();
  memprof_free(gone, 0, 0, NULL);
  if (a == NULL || gone == NULL || b == NULL || memprof_empty_cache(0) == 0) _exit(SETUP_FAILED);
  fill(a, 1, 1), fill(b, 1, 2);
  struct shared shared = {.count = 0};
  CHECK_EQUAL(memprof_share_tag("weights", 0, &shared, keep_name), 1);
  const uint64_t before = gpu_free();
  int status = NOTHING_FAILED, failed = 0, files = 0;
  for (int i = 0; i < 2 + failed; i++) {
    char *there = memprof_open_shared(shared.name[0], 0);
    if (there == NULL) status = OPEN_FAILED, failed++;
    CHECK(failed <= 1);
    if (there != NULL) CHECK(at(there, (uintptr_t)a - shared.base[0]) == 1 && at(there, (uintptr_t)b - shared.base[0]) == 2);
    if (there != NULL) memprof_close_shared(there, 0);
    if (i == 0) await_call(0, SYS_accept4), files = open_files();  // the owner's thread has closed its end
    for (int k = 0; k < 60000 && open_files() > files; k++) usleep(1000);
    CHECK(open_files() <= files);
    CHECK_EQUAL(gpu_free(), before);
  }
  CHECK(at(a, 0) == 1 && at(b, 0) == 2);
  memprof_free(a, 0, 0, NULL), memprof_free(b, 0, 0, NULL);
  memprof_empty_cache(0);
  if (gpu_free() != empty) status = STUCK;  // what the driver does not unmap, or release, it keeps
  CHECK(status != STUCK || release || strncmp(getenv("MEMPROF_SIM_FAIL"), "cuMemUnmap", 10) == 0);
  _exit(status);
}

static int fail_each_call(void) {
  static const struct {
    const char *name;
    bool opening, stuck;  // whether some failure of it fails the opening, and keeps memory
  } calls[] = {
      {"cuMemExportToShareableHandle", true, false}, {"cuMemImportFromShareableHandle", true, false}, {"cuMemAddressReserve", true, false},
      {"cuMemMap", true, false},                     {"cuMemSetAccess", true, false},                 {"cuMemRelease", false, true},
      {"cuMemUnmap", false, true},                   {"cuMemAddressFree", false, false},              {"cuCtxRecordEvent", false, false},
  };
  int failed = 0;
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    bool opening = false, stuck = false, wrong = false;
    for (int n = 1, quiet = 0; n < 60 && quiet < 7; n++) {  // the allocator tries again by itself
      char rule[64];
      snprintf(rule, sizeof rule, "%s:%d=999", calls[i].name, n);
      const char *const environment[] = {"MEMPROF_SIM_FAIL", rule, NULL};
      const int status = run_alone("one-failure", environment);
      opening |= status == OPEN_FAILED, stuck |= status == STUCK;
      quiet = status == NOTHING_FAILED ? quiet + 1 : 0;
      wrong |= status < SETUP_FAILED || status > STUCK;
      if (status < SETUP_FAILED || status > STUCK) printf("     %s: exit status %d\n", rule, status);
    }
    wrong |= opening != calls[i].opening || (calls[i].stuck && !stuck);
    printf("%s one failure of %s\n", wrong ? "FAIL" : "ok  ", calls[i].name);
    failed += wrong;
  }
  return failed != 0;
}

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "one-failure") == 0) test_one_failure();
  const int failed = run_tests(argc, argv);
  return failed != 0 ? failed : fail_each_call();
}
