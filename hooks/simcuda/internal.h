// internal.h - declarations for the files of the simulated GPU.
//
// One mutex guards all state. Every function of the API has this form:
//
//   CUresult result = sim_enter("cuMemRelease", true);
//   if (result == CUDA_SUCCESS) result = release(handle);
//   return sim_leave("cuMemRelease", result, "handle=%llu", handle);
//
// sim_enter takes the lock, counts the call, and returns an injected failure if there is one.
// sim_leave writes the log line and releases the lock, so that log lines are in the order in
// which calls took effect.
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
  uint32_t slot;      // index in the handle table
  int handle_types;   // how it may be exported
  bool gpu_direct;
  bool foreign;       // it lies in another process's memfd, `file`; its size is that of its first mapping
  int file;
};

// One device. Its address is also its primary context. Of a context that the program has made only ordinal, primary and context are set.
struct CUctx_st {
  int ordinal;
  int memfd;           // of sim_memfd; -1 until the first extent
  dev_t file_system;   // of the memfd
  ino_t inode;         // of the memfd; 0 until the first extent
  uint64_t end;        // where the next extent of the memfd starts
  uint64_t length;     // of the memfd, at least end
  uint64_t used;       // bytes of live extents
  uint32_t retained;   // references to the primary context
  uint32_t peers;      // devices whose memory this one can access, a bit each
  struct sim_extent *context;  // memory of the context itself (MEMPROF_SIM_CONTEXT), or NULL
  struct CUctx_st *primary;    // of a context that the program has made: its device; else NULL
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
void sim_wait(void);  // until sim_wake; releases the lock meanwhile
void sim_wake(void);
const struct sim_settings *sim_settings(void);
struct CUctx_st *sim_device(int ordinal);  // NULL when there is none of that number
struct CUctx_st *sim_located(const CUmemLocation *location);  // NULL unless it is on a device; each has two locality domains
struct CUctx_st *sim_current(void);        // of the calling thread, or NULL
struct CUctx_st *sim_context(void);        // the same, but where the program has made the context, that one

// memory.c: plain memory, also for pools and arrays.
CUresult sim_allocate(uint64_t size, uint64_t *addr);  // on the current device
void sim_free_all(int device);
bool sim_plain(uint64_t addr);                         // whether addr is the start of a plain allocation

// stream.c
bool sim_is_stream(CUstream stream);
bool sim_is_of(CUstream stream, const struct CUctx_st *context);                    // default streams are of every context
void sim_work(CUstream stream, uint64_t addr, uint64_t bytes, bool writes);  // queues work; nothing while the stream is captured

// work.c: what comes before the next work of a stream, or before an event: by a stream's number, how much of its work.
struct sim_past {
  uint64_t *upto;
  size_t count;
};
struct sim_queue {
  struct sim_past past;
  size_t number;  // of the stream, if it has one: from its first unfinished work on
  bool numbered;
};
void sim_past_add(struct sim_past *to, const struct sim_past *from);
void sim_past_set(struct sim_past *to, const struct sim_past *from);
void sim_past_drop(struct sim_past *past);
void sim_work_queue(struct sim_queue *queue, uint64_t blocked_by, uint64_t addr, uint64_t bytes, bool writes);
void sim_work_release(uint64_t hold);                 // the bit of a hold: work that waited for it alone has finished
void sim_work_unmaps(uint64_t addr, uint64_t bytes);  // the host is about to unmap the range

// pool.c
CUresult sim_allocate_pooled(uint64_t size, uint64_t *addr);  // from the current device's default pool
void sim_freed(uint64_t addr);                                // of any plain allocation

// capture.c: streams being captured into graphs.
CUresult sim_forbidden(void);  // the result of a call that a capture in progress forbids; invalidates that capture
bool sim_in_capture(CUstream stream);
void sim_forget_capture(CUstream stream);
uint64_t sim_capture_of(CUstream stream);               // the id of the stream's capture, or 0
void sim_join_capture(CUstream stream, uint64_t id);    // the stream waits for an event of the capture; 0 is none
CUresult sim_forbidden_event(uint64_t id);              // the result of asking for an event of the capture; invalidates it
CUresult sim_forbidden_record(const struct CUctx_st *context);  // the result of recording an event of all of a context's work; invalidates its captures

// module.c: device memory of contexts and code.
CUresult sim_charge(struct CUctx_st *device, uint64_t bytes, struct sim_extent **extent);
void sim_uncharge(struct sim_extent **extent);

// runtime.c: beginning and end of a runtime call, like sim_enter and sim_leave, and the driver's
// functions by name.
CUresult sim_runtime_begin(const char *name);            // with a current context
CUresult sim_runtime_end(const char *name, CUresult result, uint64_t pointer, uint64_t value);
void sim_runtime_driver(const char *name, void *target);  // stores the function at target

// inject.c
void sim_inject_init(const char *specification);
CUresult sim_inject(const char *name);

// log.c
void sim_log_init(const char *path);
void sim_log(const char *name, CUresult result, const char *arguments);

// vault.c: the memfd of a device, or -1 if the program has closed it and it cannot be opened again.
int sim_memfd(struct CUctx_st *device);

// extent.c: physical memory.
CUresult sim_extent_create(struct CUctx_st *device, uint64_t size, struct sim_extent **out);
CUresult sim_extent_import(int device, int file, uint64_t offset, struct sim_extent **out);  // of another process
int sim_extent_file(const struct sim_extent *extent);  // the memfd that has it
void sim_extent_release(struct sim_extent *extent);  // frees it when nothing refers to it
CUmemGenericAllocationHandle sim_handle(const struct sim_extent *extent);
struct sim_extent *sim_extent_of(CUmemGenericAllocationHandle handle);  // NULL: no such handle
struct sim_extent *sim_extent_at(int device, uint64_t offset);          // NULL: none alive starts there

// space.c: address reservations and mappings.
CUresult sim_reserve(uint64_t size, uint64_t alignment, uint64_t hint, uint64_t *addr);
CUresult sim_unreserve(uint64_t addr, uint64_t size);
CUresult sim_map(uint64_t addr, struct sim_extent *extent);
CUresult sim_unmap(uint64_t addr, uint64_t size);
CUresult sim_protect(uint64_t addr, uint64_t size, int device, int flags);
bool sim_accessible(uint64_t addr, uint64_t size, bool write);  // to any device
bool sim_reserved(uint64_t addr);                               // addr lies in a reservation
struct sim_extent *sim_mapping(uint64_t addr, uint64_t *start, uint64_t *size);
int sim_access_of(uint64_t addr, int device);  // CUmemAccess_flags, or -1: not mapped

#endif
