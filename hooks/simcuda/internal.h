// internal.h - what the files of the simulated GPU share.
//
// One mutex guards everything. A call of the API has always the same frame:
//
//   CUresult result = sim_enter("cuMemRelease", true);
//   if (result == CUDA_SUCCESS) result = release(handle);
//   return sim_leave("cuMemRelease", result, "handle=%llu", handle);
//
// sim_enter takes the lock, counts the call and may answer for it with an injected
// failure; sim_leave writes the log line and gives the lock back, so that the log is in
// the order in which calls took effect.
#ifndef SIMCUDA_INTERNAL_H
#define SIMCUDA_INTERNAL_H

#include "simcuda.h"

#include <stdbool.h>
#include <sys/types.h>

#define SIM_API __attribute__((visibility("default")))

enum { SIM_MAX_DEVICES = 16 };

// Physical memory: an extent of its device's memfd.
struct sim_extent {
  int device;
  uint64_t offset, size;
  uint32_t handles;   // references by cuMemCreate and cuMemRetainAllocationHandle
  uint32_t mappings;  // places where it is mapped
  uint32_t slot;      // its place in the handle table
  int handle_types;   // how it may be exported
  bool gpu_direct;
};

// One device. Its address is also its primary context.
struct CUctx_st {
  int ordinal;
  int memfd;           // of sim_memfd; -1 until the first extent
  dev_t file_system;   // what it is
  ino_t inode;         // 0 until the first extent
  uint64_t end;        // where the next extent of the memfd starts
  uint64_t used;       // bytes of the extents alive
  uint32_t retained;   // references to the primary context
  uint32_t peers;      // devices whose memory this one was given access to, a bit each
  struct sim_extent *context;  // what the context itself takes (MEMPROF_SIM_CONTEXT), or NULL
};

struct sim_settings {
  uint64_t memory, granularity, context;
  int devices;
};

// device.c: settings, the lock, devices.
CUresult sim_enter(const char *name, bool needs_init);
CUresult sim_leave(const char *name, CUresult result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void sim_lock(void);
void sim_unlock(void);
void sim_wait(void);  // until sim_wake; the lock is given up meanwhile
void sim_wake(void);
const struct sim_settings *sim_settings(void);
struct CUctx_st *sim_device(int ordinal);  // NULL when there is none of that number
struct CUctx_st *sim_current(void);        // of the calling thread, or NULL

// memory.c: plain memory, for other kinds of it.
CUresult sim_allocate(uint64_t size, uint64_t *addr);  // on the current device
void sim_free_all(int device);
bool sim_plain(uint64_t addr);                         // the start of a plain allocation

// stream.c
bool sim_is_stream(CUstream stream);

// pool.c
CUresult sim_allocate_pooled(uint64_t size, uint64_t *addr);  // from the current device's default pool
void sim_freed(uint64_t addr);                                // of any plain allocation

// capture.c: streams being captured into graphs.
CUresult sim_forbidden(void);  // the answer to a call that a capture in progress forbids; spoils that capture
bool sim_in_capture(CUstream stream);
void sim_forget_capture(CUstream stream);

// module.c: what contexts and code take of a device's memory.
CUresult sim_charge(struct CUctx_st *device, uint64_t bytes, struct sim_extent **extent);
void sim_uncharge(struct sim_extent **extent);

// runtime.c: the frame of a runtime call, as sim_enter and sim_leave are of a driver call,
// and the driver's functions by name.
CUresult sim_runtime_begin(const char *name);            // with a current context
CUresult sim_runtime_end(const char *name, CUresult result, uint64_t pointer, uint64_t value);
void sim_runtime_driver(const char *name, void *target);  // stores the function at target

// inject.c
void sim_inject_init(const char *specification);
CUresult sim_inject(const char *name);

// log.c
void sim_log_init(const char *path);
void sim_log(const char *name, CUresult result, const char *arguments);

// vault.c: the file of a device's memory, or -1 if the program has closed it for good.
int sim_memfd(struct CUctx_st *device);

// extent.c: physical memory.
CUresult sim_extent_create(struct CUctx_st *device, uint64_t size, struct sim_extent **out);
void sim_extent_release(struct sim_extent *extent);  // frees it when nothing refers to it
CUmemGenericAllocationHandle sim_handle(const struct sim_extent *extent);
struct sim_extent *sim_extent_of(CUmemGenericAllocationHandle handle);  // NULL: no such handle
struct sim_extent *sim_extent_at(int device, uint64_t offset);          // NULL: none alive starts there

// space.c: address space, reservations and what is mapped in them.
CUresult sim_reserve(uint64_t size, uint64_t alignment, uint64_t hint, uint64_t *addr);
CUresult sim_unreserve(uint64_t addr, uint64_t size);
CUresult sim_map(uint64_t addr, struct sim_extent *extent);
CUresult sim_unmap(uint64_t addr, uint64_t size);
CUresult sim_protect(uint64_t addr, uint64_t size, int device, int flags);
bool sim_accessible(uint64_t addr, uint64_t size, bool write);  // by some device
bool sim_reserved(uint64_t addr);                               // addr lies in a reservation
struct sim_extent *sim_mapping(uint64_t addr, uint64_t *start, uint64_t *size);
int sim_access_of(uint64_t addr, int device);  // CUmemAccess_flags, or -1: not mapped

#endif
