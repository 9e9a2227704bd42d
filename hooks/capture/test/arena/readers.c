// readers.c - memory that is freed while another stream still reads it, as programs free it that wait before they write, not before they free.
//
// The simulated GPU ends a test whose reader loses its page, or has it written. Each row also looks at the bytes, and at who waited.
// Random programs of that kind, on several streams, with and without arenas or destroyed since, are in random_readers.c.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "arena/arena.h"
#include "base/clock.h"
#include "device/captures.h"
#include "gpu.h"
#include "memprof.h"

#define COMPACT "MEMPROF_OPTIONS", "preset=compact", "MEMPROF_SIM_MEMORY", "2g"
#define CLASSIC "MEMPROF_OPTIONS", "preset=classic", "MEMPROF_SIM_MEMORY", "2g"

static void *get(uint64_t bytes, void *stream) {
  void *start = memprof_malloc(bytes, 0, stream);
  CHECK(start != NULL);
  return start;
}

static void drop(void *start) { memprof_free(start, 0, 0, NULL); }

// A block full of sevens that a held stream reads, and that is freed meanwhile.
struct read_block {
  unsigned char *start;
  uint64_t bytes;
  void *reader;
};

static struct read_block free_under_reader(void *reader, uint64_t bytes, void *stream) {
  struct read_block block = {get(bytes, stream), bytes, reader};
  get(4 * MiB, stream);  // so that what follows is no part of the same free chunk
  gpu_write(block.start, 7, bytes);
  gpu_hold(reader);
  gpu_reads(reader, block.start, bytes);
  drop(block.start);
  return block;
}

// The reader sees what it was to see, and nobody waited for it.
static void end_of_read(const struct read_block *block) {
  CHECK_EQUAL(gpu_waits(), 0);
  for (uint64_t at = 0; at < block->bytes; at += 2 * MiB) {
    CHECK_EQUAL(gpu_access(block->start + at, 0), 3);
    CHECK_EQUAL(block->start[at], 7);
  }
  gpu_let_go(block->reader);
}

// The next iterations do the same: once the reader has finished, addresses and pages serve again, so that memory does not grow without end.
TEST(addresses_serve_again, COMPACT) {
  ONE_THREAD();
  gpu_start();
  void *reader = gpu_stream();
  struct memprof_stats early, late;
  for (int i = 0; i < 40; i++) {
    const struct read_block read = free_under_reader(reader, 64 * MiB, NULL);
    unsigned char *larger = get(96 * MiB, NULL), *same = get(64 * MiB, NULL);
    end_of_read(&read);
    drop(larger);
    drop(same);
    if (i == 5) memprof_get_stats(0, &early);
  }
  memprof_get_stats(0, &late);
  CHECK(late.reserved_bytes.peak <= early.reserved_bytes.peak + 40 * 4 * (int64_t)MiB);  // 40 blocks of 4 MiB stay
  CHECK_EQUAL(gpu_waits(), 0);
}

struct release {
  void *stream;
  _Atomic bool served;  // the request has returned
};

static uint64_t elapsed_ms(uint64_t since) { return (clock_now() - since) / 1000000; }

// While the request waits for the device, other threads allocate, free and begin captures.
static void *works_meanwhile(void *self) {
  struct release *release = self;
  gpu_start();
  void *other = gpu_stream();
  while (gpu_waits() == 0 && !atomic_load(&release->served)) usleep(1000);
  const uint64_t began = clock_now();
  drop(get(1 * MiB, other));
  captures_begin();
  captures_end();
  CHECK(elapsed_ms(began) < 5000);
  gpu_let_go(release->stream);
  return NULL;
}

// At its limit a request waits for the device, as cudaFree does, and holds up nobody else. Preset compact maps the freed pages at another
// address instead, and need not wait.
static void a_request_at_the_limit(void) {
  gpu_start();
  pthread_t thread;
  struct release release = {.stream = gpu_stream()};
  memprof_set_limit(0, 256 * MiB);
  unsigned char *block = get(128 * MiB, NULL);
  get(4 * MiB, NULL);
  gpu_write(block, 7, 128 * MiB);
  gpu_hold(release.stream);
  gpu_reads(release.stream, block, 128 * MiB);
  drop(block);
  CHECK_EQUAL(pthread_create(&thread, NULL, works_meanwhile, &release), 0);
  unsigned char *larger = get(200 * MiB, NULL);
  atomic_store(&release.served, true);
  pthread_join(thread, NULL);
  CHECK_EQUAL(gpu_waits(), strstr(getenv("MEMPROF_OPTIONS"), "compact") == NULL);
  gpu_write(larger, 1, 200 * MiB);
}

// The block's own stream is busy, say with a receive: a request on it does not wait, nor does anybody else.
TEST(own_stream_is_busy, COMPACT) {
  gpu_start();
  void *third = gpu_stream(), *other = get(4 * MiB, third);
  unsigned char *block = get(64 * MiB, NULL);
  get(4 * MiB, NULL);
  gpu_hold(NULL);
  drop(block);
  get(96 * MiB, NULL);
  get(64 * MiB, NULL);
  drop(other);
  captures_begin();
  captures_end();
  CHECK_EQUAL(gpu_waits(), 0);
  gpu_let_go(NULL);
}

// A stream waits for the host, which is quiet for long enough to be idle: the trimmer polls, and a request finds the lock free.
static void idle_while_a_stream_waits(void) {
  gpu_start();
  void *reader = gpu_stream();
  const struct read_block read = free_under_reader(reader, 64 * MiB, NULL);
  usleep(300000);  // 15 times as long as the job has to be quiet
  get(1 * MiB, NULL);
  end_of_read(&read);
}

TEST(a_request_at_the_limit, CLASSIC) { a_request_at_the_limit(); }
TEST(a_request_at_the_limit_compact, COMPACT) { a_request_at_the_limit(); }
TEST(idle_while_a_stream_waits, "MEMPROF_OPTIONS", "preset=classic,trim=idle:20000000", "MEMPROF_SIM_MEMORY", "2g") { idle_while_a_stream_waits(); }
TEST(idle_while_a_stream_waits_compact, "MEMPROF_OPTIONS", "preset=compact,trim=idle:20000000", "MEMPROF_SIM_MEMORY", "2g") { idle_while_a_stream_waits(); }

int main(int argc, char **argv) { return run_tests(argc, argv); }
