// restore.c - what memory has after a pause and a resume: host memory, files, zeros, nothing; and what the disk and the
// driver refuse. The C library's calls on files are wrapped, so that any of them can fail.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>

#include "device/host.h"
#include "gpu.h"
#include "memprof.h"
#include "one_failure.h"
#include "trail.h"

enum { LARGE = 6 << 20, SMALL = 3 << 10, BLOCKS = 5 };

// Which call of a wrapped function fails, from 1; 0: none. A short one moves one byte.
static struct {
  const char *name;
  int at, calls;
  bool brief;
} broken;

static bool fails(const char *name) { return broken.at > 0 && strcmp(broken.name, name) == 0 && ++broken.calls == broken.at; }

int __real_posix_fallocate(int fd, off_t offset, off_t bytes);
int __wrap_posix_fallocate(int fd, off_t offset, off_t bytes) { return fails("posix_fallocate") ? ENOSPC : __real_posix_fallocate(fd, offset, bytes); }

ssize_t __real_pwrite(int fd, const void *data, size_t bytes, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t offset) {
  if (!fails("pwrite")) return __real_pwrite(fd, data, bytes, offset);
  if (broken.brief) return __real_pwrite(fd, data, 1, offset);
  errno = EIO;
  return -1;
}

ssize_t __real_pread(int fd, void *data, size_t bytes, off_t offset);
ssize_t __wrap_pread(int fd, void *data, size_t bytes, off_t offset) {
  if (!fails("pread")) return __real_pread(fd, data, bytes, offset);
  if (broken.brief) return __real_pread(fd, data, 1, offset);
  errno = EIO;
  return -1;
}

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd) {
  if (!fails("fdatasync")) return __real_fdatasync(fd);
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

static size_t files(glob_t *found) {
  char pattern[64];
  snprintf(pattern, sizeof pattern, "%s/memprof-backup-*", folder);
  *found = (glob_t){0};
  return glob(pattern, 0, NULL, found) == 0 ? found->gl_pathc : 0;
}

static size_t file_count(void) {
  glob_t found;
  const size_t count = files(&found);
  globfree(&found);
  return count;
}

static char *take(const char *tag, int restore, size_t bytes) {
  CHECK_EQUAL(memprof_region_begin(tag, restore), MEMPROF_OK);
  char *ptr = memprof_malloc(bytes, 0, NULL);
  memprof_region_end();
  CHECK(ptr != NULL);
  return ptr;
}

static bool try_fill(void *ptr, size_t bytes, int value) {
  int (*set)(uint64_t, unsigned char, size_t);
  GPU_CALL(set, "cuMemsetD8_v2");
  return set((uintptr_t)ptr, (unsigned char)value, bytes) == 0;
}

static void fill(void *ptr, size_t bytes, int value) { CHECK(try_fill(ptr, bytes, value)); }

static int at(const char *ptr, size_t offset) {
  int (*copy)(void *, uint64_t, size_t);
  unsigned char value = 0;
  GPU_CALL(copy, "cuMemcpyDtoH_v2");
  CHECK(copy(&value, (uintptr_t)ptr + offset, 1) == 0);
  return value;
}

static bool holds(const char *ptr, size_t bytes, int value) { return at(ptr, 0) == value && at(ptr, bytes / 2) == value && at(ptr, bytes - 1) == value; }

static int pause_one(const char *tag) { return memprof_pause(&tag, 1, 0); }
static int resume_one(const char *tag) { return memprof_resume(&tag, 1, 0); }

// One tag, a block of each mode: each has what its region was given, also when memory was used by others meanwhile.
static void test_modes_of_one_tag(void) {
  start();
  static const int modes[] = {MEMPROF_RESTORE_HOST, MEMPROF_RESTORE_PINNED, MEMPROF_RESTORE_PAGEABLE, MEMPROF_RESTORE_DISK, MEMPROF_RESTORE_ZERO};
  char *blocks[5];
  for (int i = 0; i < 5; i++) blocks[i] = take("one", modes[i], LARGE);
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < 5; i++) fill(blocks[i], LARGE, 10 * round + i + 1);
    const uint64_t before = gpu_free();
    CHECK_EQUAL(pause_one("one"), MEMPROF_OK);
    CHECK_EQUAL(gpu_free() - before, 5 * (uint64_t)LARGE);
    CHECK_EQUAL(file_count(), 1);
    struct memprof_tag_usage usage;
    memprof_tag_usage("one", &usage);
    CHECK_EQUAL(usage.copied, 4 * (uint64_t)LARGE);
    char *cover = memprof_malloc(5 * LARGE, 0, NULL);
    fill(cover, 5 * LARGE, 99);
    memprof_free(cover, 0, 0, NULL);
    memprof_empty_cache(0);
    CHECK_EQUAL(resume_one("one"), MEMPROF_OK);
    for (int i = 0; i < 4; i++) CHECK(holds(blocks[i], LARGE, 10 * round + i + 1));
    CHECK(holds(blocks[4], LARGE, 0));
    CHECK_EQUAL(file_count(), 0);
  }
  finish();
}

// A caller who says that graphs read nothing they have not written may pause their memory; that counts for the tag.
static void test_discard(void) {
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

// Large blocks have a file of their own, small neighbours share one; a block that was freed meanwhile is not read.
static void test_files(void) {
  start();
  char *blocks[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) fill(blocks[i] = take("disk", MEMPROF_RESTORE_DISK, i == 2 ? LARGE : SMALL), i == 2 ? LARGE : SMALL, i + 1);
  CHECK_EQUAL(pause_one("disk"), MEMPROF_OK);
  glob_t found;
  CHECK_EQUAL(files(&found), 3);
  struct stat about;
  off_t sum = 0;
  for (size_t i = 0; i < found.gl_pathc; i++) {
    CHECK(stat(found.gl_pathv[i], &about) == 0 && (about.st_mode & 0777) == 0600);
    sum += about.st_size;
  }
  globfree(&found);
  CHECK(sum >= LARGE + 4 * SMALL && sum < LARGE + 4 * (off_t)MiB);
  memprof_free(blocks[2], 0, 0, NULL);
  broken.name = "pread", broken.at = 1, broken.brief = true;  // a short read is continued
  CHECK_EQUAL(resume_one("disk"), MEMPROF_OK);
  for (int i = 0; i < BLOCKS; i++) CHECK(i == 2 || holds(blocks[i], SMALL, i + 1));
  finish();
}

// A file that was changed, cut or deleted fails the resume; with the right content it succeeds.
static void test_changed_file(void) {
  start();
  char *block = take("disk", MEMPROF_RESTORE_DISK, LARGE), *other = take("other", MEMPROF_RESTORE_NONE, LARGE);
  fill(block, LARGE, 7);
  static const char *const both[] = {"disk", "other"};
  CHECK_EQUAL(memprof_pause(both, 2, 0), MEMPROF_OK);
  glob_t found;
  CHECK_EQUAL(files(&found), 1);
  const uint64_t paused = gpu_free();
  const int fd = open(found.gl_pathv[0], O_RDWR);
  CHECK(fd >= 0 && __real_pwrite(fd, "x", 1, LARGE - 1) == 1);
  CHECK_EQUAL(memprof_resume(both, 2, 0), MEMPROF_BACKUP_CHANGED);
  CHECK(!try_fill(other, 1, 1));
  CHECK_EQUAL(gpu_free(), paused);
  CHECK(ftruncate(fd, LARGE - 1) == 0);
  CHECK_EQUAL(memprof_resume(both, 2, 0), MEMPROF_NO_DISK);
  CHECK(strstr(memprof_pause_message(), "shorter") != NULL && strstr(memprof_pause_message(), found.gl_pathv[0]) != NULL);
  CHECK(__real_pwrite(fd, "\7", 1, LARGE - 1) == 1);
  CHECK_EQUAL(memprof_resume(both, 2, 0), MEMPROF_OK);
  CHECK(holds(block, LARGE, 7));
  close(fd);
  globfree(&found);
  finish();
}

// Each call on files fails in turn, for the third of five tags, too: nothing is paused, no file is left.
static void test_full_disk(void) {
  start();
  static const char *const names[] = {"a", "b", "c", "d", "e"}, *const calls[] = {"mkostemp", "posix_fallocate", "pwrite", "fdatasync"};
  char *blocks[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) fill(blocks[i] = take(names[i], MEMPROF_RESTORE_DISK, LARGE), LARGE, i + 1);
  const uint64_t before = gpu_free();
  for (size_t call = 0; call < sizeof calls / sizeof *calls; call++) {
    for (int n = 1; n <= BLOCKS; n++) {
      broken.name = calls[call], broken.at = n, broken.calls = 0, broken.brief = false;
      CHECK_EQUAL(memprof_pause(names, BLOCKS, 0), MEMPROF_NO_DISK);
      CHECK(strstr(memprof_pause_message(), "nothing was paused") != NULL && strstr(memprof_pause_message(), folder) != NULL);
      CHECK_EQUAL(file_count(), 0);
      CHECK_EQUAL(gpu_free(), before);
      for (int i = 0; i < BLOCKS; i++) CHECK(holds(blocks[i], LARGE, i + 1));
    }
  }
  broken.name = "pwrite", broken.at = 2, broken.calls = 0, broken.brief = true;  // a short write is continued
  CHECK_EQUAL(memprof_pause(names, BLOCKS, 0), MEMPROF_OK);
  for (int n = 1; n <= BLOCKS; n++) {
    broken.name = "pread", broken.at = n, broken.calls = 0, broken.brief = false;
    CHECK_EQUAL(memprof_resume(names, BLOCKS, 0), MEMPROF_NO_DISK);
    CHECK_EQUAL(gpu_free(), before + (uint64_t)BLOCKS * LARGE);
  }
  CHECK_EQUAL(memprof_resume(names, BLOCKS, 0), MEMPROF_OK);
  for (int i = 0; i < BLOCKS; i++) CHECK(holds(blocks[i], LARGE, i + 1));
  finish();
}

// Copies in one piece are found by address, stay where they are while they are retained, and end with the memory.
static void test_backup_at(void) {
  start();
  char *a = take("pinned", MEMPROF_RESTORE_PINNED, LARGE), *b = take("pageable", MEMPROF_RESTORE_PAGEABLE, LARGE), *c = take("none", MEMPROF_RESTORE_NONE, LARGE);
  void *copy, *first, *second;
  fill(a, LARGE, 1), fill(b, LARGE, 2);
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
  fill(a, LARGE, 3);
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
static void test_free_pages(void) {
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

// One cycle over all modes in which one call of the driver fails: nothing has changed, and the next try succeeds.
static void test_one_failure(void) {
  start();
  static const int modes[] = {MEMPROF_RESTORE_PINNED, MEMPROF_RESTORE_PAGEABLE, MEMPROF_RESTORE_DISK, MEMPROF_RESTORE_ZERO};
  char *blocks[4];
  for (int i = 0; i < 4; i++) {
    memprof_region_begin("one", modes[i]);
    blocks[i] = memprof_malloc(LARGE, 0, NULL);
    memprof_region_end();
    if (blocks[i] == NULL || !try_fill(blocks[i], LARGE, i + 1)) _exit(SETUP_FAILED);
  }
  const uint64_t active = gpu_free();
  int status = NOTHING_FAILED, result = pause_one("one");
  if (result == MEMPROF_LEAKED) {
    status = LEAKED;
  } else if (result != MEMPROF_OK) {
    CHECK_EQUAL(gpu_free(), active);
    CHECK_EQUAL(file_count(), 0);
    for (int i = 0; i < 4; i++) CHECK(holds(blocks[i], LARGE, i + 1));
    CHECK_EQUAL(pause_one("one"), MEMPROF_OK);
    status = PAUSE_FAILED;
  }
  const uint64_t paused = gpu_free();
  result = resume_one("one");
  if (result != MEMPROF_OK) {
    CHECK(!try_fill(blocks[0], 1, 0) && !try_fill(blocks[3], 1, 0));
    CHECK_EQUAL(gpu_free(), paused);
    CHECK_EQUAL(resume_one("one"), MEMPROF_OK);
    status = RESUME_FAILED;
  }
  for (int i = 0; i < 3; i++) CHECK(holds(blocks[i], LARGE, i + 1));
  CHECK(holds(blocks[3], LARGE, 0));
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
      {"cuMemHostAlloc", true, false},
      {"cuMemcpyDtoHAsync", true, false},
      {"cuMemcpyHtoDAsync", false, true},
      {"cuMemsetD8Async", false, true},
      {"cuStreamCreate", true, true},
      {"cuStreamSynchronize", true, true},
      {"cuStreamDestroy", false, false},
  };
  return one_failure_of_each(calls, sizeof calls / sizeof *calls, 8, "TMS_DISK_BACKUP_CHUNK_MB", "4");
}

int main(int argc, char **argv) {
  static const struct test tests[] = {
      {"modes of one tag", test_modes_of_one_tag, {"TMS_DISK_BACKUP_CHUNK_MB", "1", NULL}},
      {"discard", test_discard, {NULL}},
      {"files", test_files, {NULL}},
      {"changed file", test_changed_file, {NULL}},
      {"full disk", test_full_disk, {NULL}},
      {"copies by address", test_backup_at, {NULL}},
      {"free pages", test_free_pages, {"MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", "preset=compact,handle=2097152,headroom=0", NULL}},
  };
  if (argc > 1 && strcmp(argv[1], "one-failure") == 0) test_one_failure();
  const int failed = run_tests(argc, argv, tests, sizeof tests / sizeof *tests);
  return failed != 0 ? failed : fail_each_call();
}
