// simhip.c - see simhip.h.
#define _GNU_SOURCE
#include "simhip.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101 };
enum { MOST = 4096, VMM_SUPPORTED = 89, MINIMUM = 4096, DEVICE = 1, PINNED = 1, DESCRIPTOR = 1, READ_AND_WRITE = 3 };

struct location {
  int type, id;
};
struct properties {
  int type, handle_types;
  struct location location;
  void *win32;
  unsigned char flags[8];
};
struct access {
  struct location location;
  int flags;
};

struct handle {
  size_t bytes;
  int mappings;  // whose addresses are not freed
  bool released, described;
};

struct range {
  char *at;
  size_t bytes;
  struct handle *handle;  // of a mapping
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct range reserved[MOST], mapped[MOST];
// Handles that were mapped in a reservation and unmapped: they hold their memory until it is freed.
static struct range remembered[MOST];
static size_t used;
static int descriptors, refused;
static _Thread_local int current;

static void enter(void) { pthread_mutex_lock(&lock); }
static int leave(int result) {
  pthread_mutex_unlock(&lock);
  return result;
}

static struct range *add(struct range *list, struct range range) {
  for (int i = 0; i < MOST; i++) {
    if (list[i].at == NULL) {
      list[i] = range;
      return &list[i];
    }
  }
  abort();  // a test that needs more must say so in MOST
}

static struct range *covering(struct range *list, const char *at, size_t bytes) {
  for (int i = 0; i < MOST; i++) {
    if (list[i].at != NULL && list[i].at <= at && at + bytes <= list[i].at + list[i].bytes) return &list[i];
  }
  return NULL;
}

static struct range *exactly(struct range *list, const char *at, size_t bytes) {
  struct range *found = covering(list, at, bytes);
  return found != NULL && found->at == at && found->bytes == bytes ? found : NULL;
}

static bool overlaps(struct range *list, const char *at, size_t bytes) {
  for (int i = 0; i < MOST; i++) {
    if (list[i].at != NULL && list[i].at < at + bytes && at < list[i].at + list[i].bytes) return true;
  }
  return false;
}

static bool granular(size_t bytes) { return bytes > 0 && bytes % SIMHIP_GRANULE == 0; }

// Physical memory ends with its handle and the last addresses that remember it.
static void free_if_unused(struct handle *handle) {
  if (!handle->released || handle->mappings > 0) return;
  used -= handle->bytes;
  free(handle);
}

SIMHIP_API int hipInit(unsigned flags) { return flags == 0 ? OK : INVALID_VALUE; }
SIMHIP_API int hipDeviceGet(int *device, int ordinal) { return *device = ordinal, ordinal == 0 ? OK : INVALID_DEVICE; }
SIMHIP_API int hipGetDeviceCount(int *count) { return *count = 1, OK; }
SIMHIP_API int hipDeviceTotalMem(size_t *bytes, int device) { return *bytes = SIMHIP_BYTES, device == 0 ? OK : INVALID_DEVICE; }
SIMHIP_API int hipDeviceCanAccessPeer(int *can, int device, int peer) { return (void)device, (void)peer, *can = 0, OK; }
SIMHIP_API int hipDeviceSynchronize(void) { return OK; }
SIMHIP_API int hipGetDevice(int *device) { return *device = current, OK; }
SIMHIP_API int hipSetDevice(int device) { return device == 0 ? (current = device, OK) : INVALID_DEVICE; }

SIMHIP_API int hipDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == VMM_SUPPORTED;
  return device == 0 ? OK : INVALID_DEVICE;
}

SIMHIP_API int hipMemGetInfo(size_t *free_bytes, size_t *total) {
  enter();
  *free_bytes = SIMHIP_BYTES - used;
  *total = SIMHIP_BYTES;
  return leave(OK);
}

SIMHIP_API int hipMemGetAllocationGranularity(size_t *bytes, const struct properties *properties, int option) {
  *bytes = option == 1 ? SIMHIP_GRANULE : MINIMUM;
  return properties->location.id == 0 ? OK : INVALID_DEVICE;
}

SIMHIP_API int hipMemAddressReserve(void **at, size_t bytes, size_t alignment, void *hint, unsigned long long flags) {
  (void)alignment;
  if (!granular(bytes) || flags != 0) return INVALID_VALUE;
  enter();
  // A hint is taken where the addresses are free, as mmap takes it.
  char *found = mmap(hint, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return leave(OUT_OF_MEMORY);
  add(reserved, (struct range){.at = found, .bytes = bytes});
  *at = found;
  return leave(OK);
}

SIMHIP_API int hipMemAddressFree(void *at, size_t bytes) {
  enter();
  struct range *range = exactly(reserved, at, bytes);
  if (range == NULL || overlaps(mapped, at, bytes)) return leave(INVALID_VALUE);
  for (int i = 0; i < MOST; i++) {
    struct range *was = &remembered[i];
    if (was->at == NULL || covering(range, was->at, was->bytes) != range) continue;
    was->handle->mappings--;
    free_if_unused(was->handle);
    was->at = NULL;
  }
  range->at = NULL;
  munmap(at, bytes);
  return leave(OK);
}

SIMHIP_API int hipMemCreate(struct handle **handle, size_t bytes, const struct properties *properties, unsigned long long flags) {
  const bool known = properties->type == PINNED && properties->location.type == DEVICE && properties->location.id == 0;
  if (!granular(bytes) || !known || flags != 0 || (properties->handle_types & ~DESCRIPTOR) != 0) return INVALID_VALUE;
  enter();
  if (bytes > SIMHIP_BYTES - used) return leave(OUT_OF_MEMORY);
  *handle = calloc(1, sizeof **handle);
  if (*handle == NULL) return leave(OUT_OF_MEMORY);
  (*handle)->bytes = bytes;
  (*handle)->described = properties->handle_types != 0;
  descriptors += (*handle)->described;
  used += bytes;
  return leave(OK);
}

// The descriptor of a handle stays open.
SIMHIP_API int hipMemRelease(struct handle *handle) {
  enter();
  handle->released = true;
  free_if_unused(handle);
  return leave(OK);
}

SIMHIP_API int hipMemMap(void *at, size_t bytes, size_t offset, struct handle *handle, unsigned long long flags) {
  enter();
  if (!granular(bytes) || offset != 0 || flags != 0 || bytes != handle->bytes || handle->released) return leave(INVALID_VALUE);
  if (covering(reserved, at, bytes) == NULL || overlaps(mapped, at, bytes)) return leave(INVALID_VALUE);
  add(mapped, (struct range){.at = at, .bytes = bytes, .handle = handle});
  handle->mappings++;
  return leave(OK);
}

SIMHIP_API int hipMemUnmap(void *at, size_t bytes) {
  enter();
  struct range *range = exactly(mapped, at, bytes);
  if (range == NULL) return leave(INVALID_VALUE);
  add(remembered, *range);
  range->at = NULL;
  mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return leave(OK);
}

SIMHIP_API int hipMemSetAccess(void *at, size_t bytes, const struct access *access, size_t count) {
  enter();
  if (!granular(bytes) || count != 1 || access->location.id != 0 || access->flags != READ_AND_WRITE) return leave(INVALID_VALUE);
  if (bytes / SIMHIP_GRANULE % 4 == 3) return refused++, leave(INVALID_VALUE);
  for (size_t done = 0; done < bytes; done += SIMHIP_GRANULE) {
    if (covering(mapped, (char *)at + done, SIMHIP_GRANULE) == NULL) return leave(INVALID_VALUE);
  }
  return leave(mprotect(at, bytes, PROT_READ | PROT_WRITE) == 0 ? OK : INVALID_VALUE);
}

SIMHIP_API int hipEventCreateWithFlags(void **event, unsigned flags) { return (void)flags, *event = malloc(1), OK; }
SIMHIP_API int hipEventRecord(void *event, void *stream) { return (void)event, (void)stream, OK; }
SIMHIP_API int hipEventQuery(void *event) { return (void)event, OK; }
SIMHIP_API int hipEventDestroy(void *event) { return free(event), OK; }
SIMHIP_API int hipStreamIsCapturing(void *stream, int *status) { return (void)stream, *status = 0, OK; }
SIMHIP_API int hipStreamGetDevice(void *stream, int *device) { return (void)stream, *device = current, OK; }

SIMHIP_API size_t simhip_used(void) {
  enter();
  const size_t bytes = used;
  leave(OK);
  return bytes;
}

SIMHIP_API int simhip_descriptors(void) { return descriptors; }
SIMHIP_API int simhip_refused_access(void) { return refused; }

SIMHIP_API int simhip_reservations(void) {
  int count = 0;
  enter();
  for (int i = 0; i < MOST; i++) count += reserved[i].at != NULL;
  leave(OK);
  return count;
}
