// segment.c - segments are ready before anything is stored into them: who writes records
// waits for no page, on kernels old and new, and a segment that cannot be had is no file.
#define _GNU_SOURCE
#include "spool/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "base/problem.h"
#include "spool/spool.h"
#include "trail.h"

enum { POPULATE_WRITE = 23 };

static int refusal;  // what the kernel says to POPULATE_WRITE; 0: it does it

int madvise(void *at, size_t bytes, int advice) {
  if (advice != POPULATE_WRITE || refusal == 0) return (int)syscall(SYS_madvise, at, bytes, advice);
  errno = refusal;
  return -1;
}

// A file system that gives a file another number whenever it is asked.
static bool numbers_change;

int fstat(int file, struct stat *about) {
  static ino_t changes;
  const int result = fstatat(file, "", about, AT_EMPTY_PATH);
  if (result == 0 && numbers_change) about->st_ino += ++changes;
  return result;
}

static struct directory folder;

static void make_folder(char *path) {
  CHECK(mkdtemp(path) != NULL && rmdir(path) == 0);
  CHECK(directory_make(&folder, path));
}

static bool exists(struct stat *file) {
  char path[sizeof folder.path + 16];
  snprintf(path, sizeof path, "%s/000007.seg", folder.path);
  return stat(path, file) == 0;
}

static void remove_folder(const char *path) {
  directory_remove(&folder, "000007.seg");
  CHECK(rmdir(path) == 0);  // nothing else was made
}

static long faults(void) {
  struct rusage usage;
  CHECK(getrusage(RUSAGE_THREAD, &usage) == 0);
  return usage.ru_minflt + usage.ru_majflt;
}

// By a writer, and by a thread with descriptors of its own.
static void create_by(char *path, bool apart) {
  int error = -1;
  make_folder(path);
  folder.apart = apart;
  if (apart) CHECK(own_file_take(&folder.opened, open(path, O_RDONLY | O_DIRECTORY)));
  struct memprof_record *records = segment_create(&folder, 7, &error);
  CHECK(records != NULL);
  CHECK_EQUAL(error, 0);
  struct stat file;
  CHECK(exists(&file));
  CHECK_EQUAL(file.st_size, SEGMENT_BYTES);
  CHECK(file.st_blocks * 512 >= SEGMENT_BYTES);
  // Stored into by the kernel: a sanitizer would have faults of its own.
  const int zero = open("/dev/zero", O_RDONLY);
  const long before = faults();
  CHECK_EQUAL(syscall(SYS_read, zero, records, SEGMENT_BYTES), SEGMENT_BYTES);
  const long during = faults() - before;
  if (!emulated_without("MADV_POPULATE_WRITE")) CHECK_EQUAL(during, 0);
  close(zero);
  segment_unmap(records);
  remove_folder(path);
  if (apart) own_file_close(&folder.opened);
}

static void create_in(char *path) {
  char again[64];
  strcpy(again, path);
  create_by(path, false);
  create_by(again, true);
}

TEST(pages_are_there) { create_in((char[]){"/tmp/memprof-segment-XXXXXX"}); }

TEST(pages_are_there_in_memory) { create_in((char[]){"/dev/shm/memprof-segment-XXXXXX"}); }

TEST(old_kernel) {
  refusal = EINVAL;
  create_in((char[]){"/tmp/memprof-segment-XXXXXX"});
  create_in((char[]){"/dev/shm/memprof-segment-XXXXXX"});
}

static void fail_with(int wanted) {
  char path[] = "/tmp/memprof-segment-XXXXXX";
  int error = 0;
  make_folder(path);
  CHECK(segment_create(&folder, 7, &error) == NULL);
  CHECK_EQUAL(error, wanted);
  struct stat file;
  CHECK(!exists(&file));
  remove_folder(path);
}

// A file system that promised blocks and has none for the stores.
TEST(stores_would_fail) {
  refusal = EFAULT;
  fail_with(ENOSPC);
}

TEST(stores_would_fail_on_old_kernels) {
  refusal = EINVAL;
  if (emulated_without("SIGBUS that a program can catch in a system call")) return;
  const int empty = memfd_create("empty", MFD_CLOEXEC);
  void *behind = mmap(NULL, SEGMENT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, empty, 0);
  CHECK(behind != MAP_FAILED);
  CHECK_EQUAL(own_file_populate(behind, SEGMENT_BYTES), ENOSPC);
  munmap(behind, SEGMENT_BYTES);
  close(empty);
}

// Lines of the hook's own are lost rather than the job.
TEST(no_room_for_problems) {
  refusal = EFAULT;
  spool_start();
  problem("of the hook");
  const struct trail trail = trail_read(getpid(), 0);
  CHECK(trail_problems(&trail)[0] == '\0');
}

// Recording ends; the job does not wait for ever.
TEST(never_the_same_file) {
  numbers_change = true;
  fail_with(ESTALE);
}

TEST(no_file) {
  const struct rlimit none = {0, 0};
  char path[] = "/tmp/memprof-segment-XXXXXX";
  int error = 0;
  make_folder(path);
  CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
  CHECK(segment_create(&folder, 7, &error) == NULL);
  CHECK_EQUAL(error, EMFILE);
  remove_folder(path);
}

TEST(recording_stops) {
  refusal = EFAULT;
  CHECK(!spool_start());
  const struct trail trail = trail_read(getpid(), 0);
  CHECK_EQUAL(trail.process.state, MEMPROF_STOPPED);
  CHECK_EQUAL(trail.process.stop_errno, ENOSPC);
  CHECK_EQUAL(trail.process.stop_slot, 0);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
