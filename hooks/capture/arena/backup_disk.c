// backup_disk.c - see backup_disk.h.
#include "arena/backup_disk.h"

#include <stdlib.h>
#include <string.h>

#include "base/lock.h"
#include "base/problem.h"
#include "device/driver.h"

static struct lock lock;           // held while the buffer is used
static struct host_room buffer;    // pinned; kept
static uint64_t chunk = HOST_SLAB; // bytes of the buffer

// $TMS_DISK_BACKUP_CHUNK_MB, or a slab.
static uint64_t wanted_chunk(void) {
  enum { MOST = 65536 };
  const char *text = getenv("TMS_DISK_BACKUP_CHUNK_MB");
  char *end = NULL;
  if (text == NULL || *text == '\0') return HOST_SLAB;
  const uint64_t megabytes = strtoull(text, &end, 10);
  if (*end == '\0' && megabytes >= 1 && megabytes <= MOST) return megabytes << 20;
  problem("TMS_DISK_BACKUP_CHUNK_MB=%s: want 1 to %d; it counts as %d", text, MOST, HOST_SLAB >> 20);
  return HOST_SLAB;
}

// The buffer, with its lock held; or NULL.
static void *take_buffer(void) {
  lock_take(&lock);
  if (buffer.count == 0) {
    chunk = wanted_chunk();
    if (!host_take(&buffer, HOST_PINNED, chunk)) {
      lock_give(&lock);
      return NULL;
    }
  }
  return buffer.pieces[0];
}

static uint64_t rotate(uint64_t value, int bits) { return value << bits | value >> (64 - bits); }

// Four lanes, so that the processor computes them at a time: it is to keep up with the disk.
static uint64_t sum_of(const void *data, uint64_t bytes) {
  enum { LANES = 4, STEP = LANES * sizeof(uint64_t) };
  static const uint64_t odd = 0x9e3779b97f4a7c15;
  uint64_t lanes[LANES] = {1, 2, 3, 4}, words[LANES], last[LANES] = {0};
  const char *at = data;
  uint64_t left = bytes;
  for (; left >= STEP; left -= STEP, at += STEP) {
    memcpy(words, at, STEP);
    for (int i = 0; i < LANES; i++) lanes[i] = rotate((lanes[i] ^ words[i]) * odd, 29);
  }
  memcpy(last, at, left);
  uint64_t sum = bytes;
  for (int i = 0; i < LANES; i++) sum = rotate((sum ^ rotate((lanes[i] ^ last[i]) * odd, 29)) * odd, 31);
  return sum ^ sum >> 32;
}

static uint64_t chunks_of(const struct backup *backup) {
  uint64_t chunks = 0;
  for (size_t i = 0; i < backup->count; i++) chunks += (backup->copies[i].bytes + chunk - 1) / chunk;
  return chunks;
}

// The sizes of the files: one for each large range, and one for each run of small ones.
static size_t divide(const struct backup *backup, uint64_t *sizes) {
  size_t files = 0;
  bool open = false;  // the last file takes further small ranges
  for (size_t i = 0; i < backup->count; i++) {
    const uint64_t bytes = backup->copies[i].bytes;
    const bool small = bytes < DISK_APART;
    if (!small || !open) sizes[files++] = 0;
    sizes[files - 1] += bytes;
    open = small;
  }
  return files;
}

enum backup_result backup_disk_take(struct backup *backup) {
  if (take_buffer() == NULL) return BACKUP_NO_HOST_MEMORY;
  lock_give(&lock);
  uint64_t *sizes = calloc(backup->count, sizeof *sizes);
  backup->sums = calloc(chunks_of(backup), sizeof *backup->sums);
  enum backup_result result = sizes == NULL || backup->sums == NULL ? BACKUP_NO_HOST_MEMORY : BACKUP_OK;
  if (result == BACKUP_OK && !disk_take(&backup->disk, sizes, divide(backup, sizes))) result = BACKUP_NO_DISK;
  free(sizes);
  return result;
}

// A chunk of a copy: what it has of the device, and where it lies in the files.
struct part {
  uint64_t addr, bytes, place;
  uint64_t *sum;
};

static enum backup_result write_part(struct backup *backup, const struct part *part, void *data, void *stream) {
  const struct driver *driver = driver_get();
  if (driver->copy_out(data, part->addr, part->bytes, stream) != DRIVER_OK || driver->stream_synchronize(stream) != DRIVER_OK) return BACKUP_FAILED;
  *part->sum = sum_of(data, part->bytes);
  return disk_write(&backup->disk, part->place, data, part->bytes) ? BACKUP_OK : BACKUP_NO_DISK;
}

// Copies in what is live of a chunk that has been read.
static bool copy_live(const struct part *part, const struct byte_ranges *live, const char *data, void *stream) {
  const uint64_t end = part->addr + part->bytes;
  for (size_t i = 0; i < live->count; i++) {
    const struct byte_range *block = &live->list[i];
    const uint64_t from = block->addr > part->addr ? block->addr : part->addr;
    const uint64_t to = block->addr + block->bytes < end ? block->addr + block->bytes : end;
    if (from < to && driver_get()->copy_in(from, data + (from - part->addr), to - from, stream) != DRIVER_OK) return false;
  }
  return true;
}

static bool any_live(const struct part *part, const struct byte_ranges *live) {
  for (size_t i = 0; i < live->count; i++) {
    if (live->list[i].addr < part->addr + part->bytes && part->addr < live->list[i].addr + live->list[i].bytes) return true;
  }
  return false;
}

static enum backup_result read_part(struct backup *backup, const struct part *part, const struct byte_ranges *live, void *data, void *stream) {
  if (!any_live(part, live)) return BACKUP_OK;
  if (!disk_read(&backup->disk, part->place, data, part->bytes)) return BACKUP_NO_DISK;
  if (sum_of(data, part->bytes) != *part->sum) return BACKUP_CHANGED;
  const bool copied = copy_live(part, live, data, stream);
  // Also after a failure: what was queued still reads the buffer.
  return driver_get()->stream_synchronize(stream) == DRIVER_OK && copied ? BACKUP_OK : BACKUP_FAILED;
}

// Goes through all chunks: writes them if `live` is NULL, else reads them.
static enum backup_result copy(struct backup *backup, const struct byte_ranges *live, void *stream) {
  enum backup_result result = BACKUP_OK;
  struct part part = {.sum = backup->sums};
  void *data = take_buffer();
  if (data == NULL) return BACKUP_NO_HOST_MEMORY;
  for (size_t i = 0; i < backup->count; i++) {
    for (uint64_t done = 0; result == BACKUP_OK && done < backup->copies[i].bytes; done += part.bytes, part.place += part.bytes, part.sum++) {
      const uint64_t rest = backup->copies[i].bytes - done;
      part.addr = backup->copies[i].addr + done;
      part.bytes = rest < chunk ? rest : chunk;
      result = live == NULL ? write_part(backup, &part, data, stream) : read_part(backup, &part, live, data, stream);
    }
  }
  lock_give(&lock);
  if (!disk_close(&backup->disk) && result == BACKUP_OK) result = BACKUP_NO_DISK;
  return result;
}

enum backup_result backup_disk_out(struct backup *backup, const struct byte_ranges *live, void *stream) {
  (void)live;
  return copy(backup, NULL, stream);
}

enum backup_result backup_disk_in(struct backup *backup, const struct byte_ranges *live, void *stream) { return copy(backup, live, stream); }
