// driver.h - the calls of the GPU driver that the hook makes, as one table of functions.
//
// The driver is loaded with dlopen at the first use, so that the hook loads on machines without a
// GPU and builds without the vendor's headers. The types below have the layout of cuda.h, which is a
// stable ABI. Another vendor fills the same table: see vendor.h.
#ifndef MEMPROF_DRIVER_H
#define MEMPROF_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int driver_result;  // CUresult
enum {
  DRIVER_OK = 0,
  DRIVER_OUT_OF_MEMORY = 2,
  DRIVER_DEINITIALIZED = 4,
  DRIVER_NOT_READY = 600,
  DRIVER_CAPTURE_FIRST = 900,  // the first and the last error of captures: the call is not allowed during one
  DRIVER_CAPTURE_LAST = 908,
};

typedef unsigned long long driver_handle;  // CUmemGenericAllocationHandle
typedef struct driver_event_opaque *driver_event;

// The vendor's numbers of attributes of a device, for device_attribute.
struct driver_attributes {
  int vmm;            // it can map physical memory at reserved addresses
  int posix_fd;       // its memory can be exported as a file descriptor
  int rdma_with_vmm;  // network cards can reach such memory
};

enum { DRIVER_POOL_RESERVED = 5 };  // CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT

// CUmemLocation, CUmemAllocationProp, CUmemAccessDesc
struct driver_location {
  int type;
  int id;  // of a locality domain: the device in the lowest byte, the domain in the next
};
enum { DRIVER_ON_DEVICE = 1, DRIVER_IN_LOCALITY_DOMAIN = 6 };  // CUmemLocationType; the second is a part of a device, from CUDA 13.4 on

// The device whose memory the location is, or -1 if it is of none.
static inline int driver_location_device(struct driver_location location) {
  if (location.type == DRIVER_IN_LOCALITY_DOMAIN) return location.id & 0xff;
  return location.type == DRIVER_ON_DEVICE ? location.id : -1;
}

struct driver_properties {
  int type;                    // 1 = pinned
  int requested_handle_types;  // 1 = POSIX file descriptor
  struct driver_location location;
  void *win32_meta_data;
  struct {
    unsigned char compression;
    unsigned char gpu_direct_rdma;
    unsigned short usage;
    unsigned char reserved[4];
  } flags;
};
struct driver_access {
  struct driver_location location;
  int flags;  // 3 = read and write
};

// Sizes are bytes. A `device` is the driver's handle, which device_get returns for an ordinal.

struct driver {
  driver_result (*init)(unsigned flags);
  driver_result (*device_get)(int *device, int ordinal);
  driver_result (*device_count)(int *count);
  driver_result (*device_attribute)(int *value, int attribute, int device);
  driver_result (*device_total)(size_t *bytes, int device);
  driver_result (*can_access)(int *can, int device, int peer);
  driver_result (*primary_retain)(void **context, int device);
  driver_result (*context_get)(void **context);
  driver_result (*context_device)(int *device);
  driver_result (*context_push)(void *context);
  driver_result (*context_pop)(void **context);
  driver_result (*synchronize)(void);
  driver_result (*memory_info)(size_t *free_bytes, size_t *total);
  driver_result (*reserve)(uint64_t *addr, size_t bytes, size_t alignment, uint64_t at, unsigned long long flags);
  driver_result (*unreserve)(uint64_t addr, size_t bytes);
  driver_result (*create)(driver_handle *handle, size_t bytes, const struct driver_properties *properties, unsigned long long flags);
  driver_result (*release)(driver_handle handle);
  driver_result (*map)(uint64_t addr, size_t bytes, size_t offset, driver_handle handle, unsigned long long flags);
  driver_result (*unmap)(uint64_t addr, size_t bytes);
  driver_result (*set_access)(uint64_t addr, size_t bytes, const struct driver_access *access, size_t count);
  driver_result (*granularity)(size_t *bytes, const struct driver_properties *properties, int option);
  driver_result (*event_create)(driver_event *event, unsigned flags);
  driver_result (*event_record)(driver_event event, void *stream);
  driver_result (*event_query)(driver_event event);
  driver_result (*event_destroy)(driver_event event);
  driver_result (*stream_capturing)(void *stream, int *status);
  driver_result (*stream_context)(void *stream, void **context);

  // All below are NULL if the driver does not have them.

  // The device's unique id; whether its primary context exists; memory shared with other processes.
  driver_result (*device_uuid)(unsigned char uuid[16], int device);
  driver_result (*primary_state)(int device, unsigned *flags, int *active);
  driver_result (*export_handle)(void *shareable, driver_handle handle, int type, unsigned long long flags);
  driver_result (*import_handle)(driver_handle *handle, void *shareable, int type);

  // Pinned host memory, copies of device memory to it and back, and streams.
  driver_result (*host_alloc)(void **ptr, size_t bytes, unsigned flags);
  driver_result (*host_free)(void *ptr);
  driver_result (*host_register)(void *ptr, size_t bytes, unsigned flags);
  driver_result (*host_unregister)(void *ptr);
  driver_result (*copy_out)(void *to, uint64_t from, size_t bytes, void *stream);
  driver_result (*copy_in)(uint64_t to, const void *from, size_t bytes, void *stream);
  driver_result (*stream_create)(void **stream, unsigned flags);
  driver_result (*stream_synchronize)(void *stream);
  driver_result (*stream_destroy)(void *stream);

  driver_result (*event_synchronize)(driver_event event);

  // Records an event behind all work of a context, its green contexts included (CUDA 12.5). It fails, and invalidates the capture, where one of
  // the context's streams is captured. And the calling thread's mode in captures of others: CUstreamCaptureMode.
  driver_result (*context_record)(void *context, driver_event event);
  driver_result (*capture_mode)(int *mode);

  // The driver's own memory pools.
  driver_result (*default_pool)(void **pool, int device);
  driver_result (*pool_attribute)(void *pool, int attribute, void *value);

  struct driver_attributes attributes;
  bool unmaps_ranges;  // one call of unmap may cover several adjacent mappings
  bool aliases;          // a handle may be mapped at several addresses, for work in stream order
};

// The table, after the driver was initialised. NULL, with a line of the problems file: no driver, or
// one too old to map physical memory at reserved addresses.
const struct driver *driver_get(void);

// Whether the device has its primary context. The table is there.
bool driver_primary_active(int device);

// Between driver_enter and driver_leave the primary context of the device with ordinal `device` is current; if the job has none so
// far, the thread's own, if that is the device's. A program may have made others, as green contexts. They nest. driver_enter returns
// 0 if the device has no context to give; then driver_leave is not called.
struct driver_scope {
  int pushed;  // 1: driver_leave has to pop a context
};
int driver_enter(int device, struct driver_scope *scope);
void driver_leave(const struct driver_scope *scope);

// The observer is called before and after the hook makes a device's primary context, on the thread
// that makes it. `end` is called only if `begin` returned true.
struct driver_observer {
  bool (*begin)(int device);
  void (*end)(int device, bool made);
};
void driver_observe(const struct driver_observer *observer);

// The id of a device as text: "GPU-" and groups of 8, 4, 4, 4 and 12 hexadecimal digits. False: the
// driver does not have it, and the digits are zeros.
enum { DRIVER_UUID_TEXT = 48 };
void driver_uuid_write(const unsigned char uuid[16], char text[DRIVER_UUID_TEXT]);
bool driver_uuid_text(int device, char text[DRIVER_UUID_TEXT]);

// Free and total bytes of the device, whoever uses the rest. Returns 0, and sets both to 0, on error.
int driver_memory(int device, uint64_t *free_bytes, uint64_t *total);

// The error that the device's context answers with since its work has failed, as that of an illegal address; 0: none.
driver_result driver_fault(int device);

// The contexts of a device in which work may be queued: its primary one, and those that the program has made and not destroyed. Returns how
// many; more than `most`, or 0: not all are known.
enum { DRIVER_CONTEXTS = 8 };
size_t driver_contexts(int device, void **out, size_t most);

// The program has made a context of a device, or destroyed one, with all work in it.
void driver_context_made(int device, void *context);
void driver_context_gone(void *context);

// Between these two the calling thread may wait for work while other threads capture: it is in no capture itself.
int driver_relax(void);
void driver_restrict(int mode);

// Waits until all work queued on the device has finished, in its primary context, of which green contexts are a part, and in the
// thread's own. Returns 0 if the wait failed: then work may
// still use any memory, and none may be unmapped.
int driver_synchronize(int device);

#endif
