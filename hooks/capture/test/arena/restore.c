// restore.c - what memory has after a pause and a resume: host memory, a file, nothing; and what the disk and the
// driver refuse. The C library's calls on files are wrapped, so that any of them can fail.
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>

#include "device/host.h"
#include "files.h"
#include "one_failure.h"
#include "stats.h"
#include "tags.h"

enum { LARGE = 6 << 20, SMALL = 3 << 10, BLOCKS = 5, PIECE = 5 << 19 };  // a piece takes two pages of the card

// Which call of a wrapped function fails, from 1; 0: none.
static struct {
  const char *name;
  int at, calls;
} broken;

static bool fails(const char *name) { return broken.at > 0 && strcmp(broken.name, name) == 0 && ++broken.calls == broken.at; }

int __real_posix_fallocate(int fd, off_t offset, off_t bytes);
int __wrap_posix_fallocate(int fd, off_t offset, off_t bytes) { return fails("posix_fallocate") ? ENOSPC : __real_posix_fallocate(fd, offset, bytes); }

int __real_msync(void *at, size_t bytes, int flags);
int __wrap_msync(void *at, size_t bytes, int flags) {
  if (!fails("msync")) return __real_msync(at, bytes, flags);
  errno = EIO;
  return -1;
}

int __real_mkostemp(char *path, int flags);
int __wrap_mkostemp(char *path, int flags) {
  if (!fails("mkostemp")) return __real_mkostemp(path, flags);
  errno = EACCES;
  return -1;
}

static char folder[] = "/tmp/memprof-restore-XXXXXX";

static void start(void) {
  gpu_start();
  CHECK(mkdtemp(folder) != NULL);
  memprof_backup_folder(folder);
}

static void finish(void) { CHECK(rmdir(folder) == 0); }  // it is empty

static int pause_one(const char *tag) { return memprof_pause(&tag, 1, 0); }
static int resume_one(const char *tag) { return memprof_resume(&tag, 1, 0); }

// One tag, a block of each mode: each has what its region was given, also when memory was used by others meanwhile.
TEST(modes_of_one_tag) {
  start();
  static const int modes[] = {MEMPROF_RESTORE_HOST, MEMPROF_RESTORE_PINNED, MEMPROF_RESTORE_PAGEABLE, MEMPROF_RESTORE_DISK};
  char *blocks[4];
  for (int i = 0; i < 4; i++) blocks[i] = take("one", modes[i], LARGE);
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < 4; i++) fill(blocks[i], LARGE, 10 * round + i + 1);
    const uint64_t before = gpu_free();
    CHECK_EQUAL(pause_one("one"), MEMPROF_OK);
    CHECK_EQUAL(gpu_free() - before, 4 * (uint64_t)LARGE);
    CHECK_EQUAL(files_mapped(folder), 1);
    CHECK_EQUAL(usage("one").copied, 4 * (uint64_t)LARGE);
    char *cover = memprof_malloc(4 * LARGE, 0, NULL);
    fill(cover, 4 * LARGE, 99);
    memprof_free(cover, 0, 0, NULL);
    memprof_empty_cache(0);
    CHECK_EQUAL(resume_one("one"), MEMPROF_OK);
    for (int i = 0; i < 4; i++) CHECK(holds(blocks[i], LARGE, 10 * round + i + 1));
    CHECK_EQUAL(files_mapped(folder), 0);
  }
  finish();
}

// A caller who says that graphs read nothing they have not written may pause their memory; that counts for the tag.
TEST(discard) {
  start();
  memprof_pool_hold(0, 3, 0);
  memprof_region_begin("graphs", MEMPROF_RESTORE_NONE);
  char *a = memprof_malloc_in_pool(LARGE, 0, NULL, 3, 0);
  memprof_region_end();
  CHECK_EQUAL(pause_one("graphs"), MEMPROF_NO_BACKUP);
  memprof_region_begin("graphs", MEMPROF_RESTORE_DISCARD);
  memprof_region_end();
  const uint64_t before = gpu_free();
  CHECK_EQUAL(pause_one("graphs"), MEMPROF_OK);
  CHECK_EQUAL(gpu_free() - before, LARGE);
  CHECK_EQUAL(resume_one("graphs"), MEMPROF_OK);
  fill(a, LARGE, 1);
  finish();
}

// Blocks of all sizes lie in one file; one that was freed meanwhile is not copied back. The pages are the disk's.
TEST(file) {
  start();
  char *blocks[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) fill(blocks[i] = take("disk", MEMPROF_RESTORE_DISK, i == 2 ? LARGE : SMALL), i == 2 ? LARGE : SMALL, i + 1);
  CHECK_EQUAL(pause_one("disk"), MEMPROF_OK);
  CHECK_EQUAL(files_mapped(folder), 1);
  void *copy = &copy;
  CHECK_EQUAL(memprof_backup_at(blocks[0], SMALL, &copy), MEMPROF_OK);
  CHECK(copy == NULL);
  memprof_free(blocks[2], 0, 0, NULL);
  CHECK_EQUAL(resume_one("disk"), MEMPROF_OK);
  for (int i = 0; i < BLOCKS; i++) CHECK(i == 2 || holds(blocks[i], SMALL, i + 1));
  CHECK_EQUAL(files_mapped(folder), 0);
  uint64_t kept, used;
  host_usage(&kept, &used);
  CHECK_EQUAL(kept, 0);
  finish();
}

// Each call on files fails in turn, for the third of five tags, too: nothing is paused, no file is left.
TEST(full_disk) {
  start();
  static const char *const names[] = {"a", "b", "c", "d", "e"}, *const calls[] = {"mkostemp", "posix_fallocate", "msync"};
  char *blocks[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) fill(blocks[i] = take(names[i], MEMPROF_RESTORE_DISK, LARGE), LARGE, i + 1);
  const uint64_t before = gpu_free();
  for (size_t call = 0; call < sizeof calls / sizeof *calls; call++) {
    for (int n = 1; n <= BLOCKS; n++) {
      broken.name = calls[call], broken.at = n, broken.calls = 0;
      CHECK_EQUAL(memprof_pause(names, BLOCKS, 0), MEMPROF_NO_DISK);
      CHECK(strstr(memprof_pause_message(), "nothing was paused") != NULL && strstr(memprof_pause_message(), folder) != NULL);
      CHECK_EQUAL(files_mapped(folder), 0);
      CHECK_EQUAL(gpu_free(), before);
      for (int i = 0; i < BLOCKS; i++) CHECK(holds(blocks[i], LARGE, i + 1));
    }
  }
  broken.at = 0;
  CHECK_EQUAL(memprof_pause(names, BLOCKS, 0), MEMPROF_OK);
  CHECK_EQUAL(memprof_resume(names, BLOCKS, 0), MEMPROF_OK);
  for (int i = 0; i < BLOCKS; i++) CHECK(holds(blocks[i], LARGE, i + 1));
  finish();
}

// Copies in one piece are found by address, stay where they are while they are retained, and end with the memory.
TEST(copies_by_address) {
  start();
  char *a = take("pinned", MEMPROF_RESTORE_PINNED, LARGE), *b = take("pageable", MEMPROF_RESTORE_PAGEABLE, LARGE), *c = take("none", MEMPROF_RESTORE_NONE, LARGE);
  void *copy, *first, *second;
  CHECK(try_fill(a, LARGE, 1));
  fill(b, LARGE, 2);
  CHECK_EQUAL(memprof_backup_at(a, LARGE, &copy), MEMPROF_OK);
  CHECK(copy == NULL);
  CHECK_EQUAL(memprof_pause(NULL, 0, 0), MEMPROF_OK);
  CHECK_EQUAL(memprof_backup_at(a + 5, LARGE - 5, &first), MEMPROF_OK);
  CHECK_EQUAL(memprof_backup_at(b, LARGE, &second), MEMPROF_OK);
  CHECK(*(char *)first == 1 && ((char *)second)[LARGE - 1] == 2);
  CHECK_EQUAL(memprof_backup_at(a, LARGE + MiB, &copy), MEMPROF_UNKNOWN_TAG);
  CHECK_EQUAL(memprof_backup_at(&copy, 1, &copy), MEMPROF_UNKNOWN_TAG);
  CHECK_EQUAL(memprof_backup_at(c, 1, &copy), MEMPROF_NO_BACKUP);
  CHECK_EQUAL(memprof_resume(NULL, 0, MEMPROF_KEEP_COPIES), MEMPROF_OK);
  CHECK_EQUAL(memprof_backup_at(a + 5, 1, &copy), MEMPROF_OK);
  CHECK(copy == first);
  CHECK(try_fill(a, LARGE, 3));
  CHECK_EQUAL(pause_one("pinned"), MEMPROF_OK);
  CHECK_EQUAL(memprof_backup_at(a + 5, 1, &copy), MEMPROF_OK);
  CHECK(copy == first && *(char *)copy == 3);
  CHECK_EQUAL(resume_one("pinned"), MEMPROF_OK);
  CHECK_EQUAL(memprof_backup_at(a, 1, &copy), MEMPROF_OK);
  CHECK(copy == NULL);
  uint64_t kept, used;
  host_usage(&kept, &used);
  CHECK_EQUAL(kept, 2 * (uint64_t)LARGE);  // pinned memory waits for the next copy
  memprof_free(a, 0, 0, NULL), memprof_free(b, 0, 0, NULL);
  memprof_empty_cache(0);
  host_usage(&kept, &used);
  CHECK_EQUAL(kept, 0);
  finish();
}

// A resume maps free pages, too, if it is to, and does without them where the device lacks the memory.
TEST(free_pages, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", "preset=compact,handle=2097152,headroom=0") {
  start();
  const char *name = "tag";
  char *gone = take(name, MEMPROF_RESTORE_PINNED, 300 * MiB), *a = take(name, MEMPROF_RESTORE_PINNED, LARGE);
  fill(a, LARGE, 5);
  memprof_free(gone, 0, 0, NULL);
  const uint64_t before = gpu_free();
  for (int round = 0; round < 2; round++) {
    CHECK_EQUAL(pause_one(name), MEMPROF_OK);
    char *rest = round == 0 ? NULL : memprof_malloc(GiB - 64 * MiB, 0, NULL);
    CHECK_EQUAL(memprof_resume(&name, 1, MEMPROF_MAP_FREE), MEMPROF_OK);
    CHECK(holds(a, LARGE, 5));
    if (round == 0) CHECK_EQUAL(gpu_free(), before);
    memprof_free(rest, 0, 0, NULL);
  }
  finish();
}

// One cycle over all modes, and a second tag, in which one call of the driver fails: nothing has changed, and the next try succeeds.
static void test_one_failure(void) {
  start();
  static const int modes[] = {MEMPROF_RESTORE_HOST, MEMPROF_RESTORE_PINNED, MEMPROF_RESTORE_PAGEABLE, MEMPROF_RESTORE_DISK, MEMPROF_RESTORE_NONE};
  static const char *const names[] = {"one", "dropped"};
  int (*create)(void **, unsigned);
  void *side = NULL;
  char *blocks[BLOCKS];
  GPU_CALL(create, "cuStreamCreate");
  if (create(&side, 1) != 0) _exit(SETUP_FAILED);
  for (int i = 0; i < BLOCKS; i++) {
    memprof_region_begin(names[i / 4], modes[i]);
    blocks[i] = memprof_malloc(PIECE, 0, i == 1 ? side : NULL);
    memprof_region_end();
    if (blocks[i] == NULL || !try_fill(blocks[i], PIECE, i + 1)) _exit(SETUP_FAILED);
  }
  const uint64_t active = gpu_free();
  const int64_t reserved_then = reserved();
  int status = NOTHING_FAILED, result = memprof_pause(names, 2, 0);
  if (result == MEMPROF_LEAKED) {
    status = LEAKED;
  } else if (result != MEMPROF_OK) {
    CHECK(memprof_pause_message()[0] != '\0');
    CHECK_EQUAL(gpu_free(), active);
    CHECK_EQUAL(reserved(), reserved_then);
    CHECK_EQUAL(files_mapped(folder), 0);
    for (int i = 0; i < BLOCKS; i++) CHECK(holds(blocks[i], PIECE, i + 1));
    CHECK_EQUAL(memprof_pause(names, 2, 0), MEMPROF_OK);
    status = PAUSE_FAILED;
  }
  const uint64_t paused = gpu_free();
  result = memprof_resume(names, 2, 0);
  if (result != MEMPROF_OK) {
    for (int i = 0; i < BLOCKS; i++) CHECK(!try_fill(blocks[i], 1, 0));
    CHECK_EQUAL(gpu_free(), paused);
    CHECK_EQUAL(memprof_resume(names, 2, 0), MEMPROF_OK);
    status = RESUME_FAILED;
  }
  for (int i = 0; i < 4; i++) CHECK(holds(blocks[i], PIECE, i + 1));
  CHECK_EQUAL(reserved(), reserved_then);
  finish();
  _exit(status);
}

static int fail_each_call(void) {
  static const struct failing_call calls[] = {
      {"cuMemCreate", false, true},
      {"cuMemMap", false, true},
      {"cuMemSetAccess", false, true},
      {"cuMemUnmap", true, false},
      {"cuMemRelease", false, false},
      {"cuEventSynchronize", true, false},
      {"cuMemHostRegister", false, false},
      {"cuMemHostRegister:1+,cuMemHostAlloc", true, false},
      {"cuMemcpyDtoHAsync", true, false},
      {"cuMemcpyHtoDAsync", false, true},
      {"cuStreamCreate", true, true},
      {"cuStreamSynchronize", true, true},
      {"cuStreamDestroy", false, false},
  };
  return one_failure_of_each(calls, sizeof calls / sizeof *calls, 8, NULL, NULL);
}

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "one-failure") == 0) test_one_failure();
  const int failed = run_tests(argc, argv);
  return failed != 0 ? failed : fail_each_call();
}
