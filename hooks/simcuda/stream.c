// stream.c - streams and events.
//
// Work finishes as soon as it is queued, unless a test holds the stream: then events recorded
// there are "not ready" until the stream is released. Each hold has one of 64 bits. A stream has
// the bits of all holds that it waits for: its own, and those of events by cuStreamWaitEvent. An
// event has the bits that its stream had when it was recorded. Releasing a hold clears its bit in
// all streams and events, and runs the host functions that waited for it alone. The legacy default stream does not wait for other streams. A held stream that is
// destroyed is at work until it is released, and its handle is not given out again. What the work reads and writes is in work.c.
#define _GNU_SOURCE
#include "internal.h"

#include <stdlib.h>

struct CUstream_st {
  struct CUstream_st *next;
  uint64_t blocked_by;
  int hold;  // number of the bit of its own hold, or -1
  bool destroyed;
  struct CUctx_st *context;
  struct sim_queue queue;
};

struct CUevent_st {
  struct CUevent_st *previous, *next;
  uint64_t blocked_by;
  uint64_t capture;  // the id of the capture that it was recorded in last; 0: none
  struct sim_past past;
};

// A function that the host is to run in a stream's order.
struct host_function {
  struct host_function *next;
  uint64_t blocked_by;
  void (*run)(void *data);
  void *data;
};

// Default streams: that of a context (NULL or 1) and the per-thread one (2). Those of all devices
// share one hold.
static struct CUstream_st legacy = {.hold = -1}, per_thread = {.next = &legacy, .hold = -1};
static struct CUstream_st *streams = &per_thread;
static struct CUevent_st *events;
static struct host_function *host_functions;  // that wait for holds, in the order of queueing
static uint64_t holds;
static uint64_t lags;   // those of the holds that end when a call waits for one of them
static uint64_t waits;  // calls so far that had to wait for work

// Also a destroyed one that is held.
static struct CUstream_st *any_stream(CUstream handle) {
  if ((uintptr_t)handle <= 1) return &legacy;
  if ((uintptr_t)handle == 2) return &per_thread;
  for (struct CUstream_st *stream = streams; stream != NULL; stream = stream->next)
    if (stream == handle) return stream;
  return NULL;
}

static struct CUstream_st *stream_of(CUstream handle) {
  struct CUstream_st *stream = any_stream(handle);
  return stream != NULL && stream->destroyed ? NULL : stream;
}

static void drop_stream(struct CUstream_st *stream) {
  struct CUstream_st **link = &streams;
  while (*link != stream) link = &(*link)->next;
  *link = stream->next;
  sim_past_drop(&stream->queue.past);
  free(stream);
}

bool sim_is_of(CUstream handle, const struct CUctx_st *context) {
  const struct CUstream_st *stream = any_stream(handle);
  return stream != NULL && (stream->context == NULL || stream->context == context);
}

void sim_work(CUstream handle, uint64_t addr, uint64_t bytes, bool writes) {
  struct CUstream_st *stream = stream_of(handle);
  if (stream != NULL && !sim_in_capture(handle)) sim_work_queue(&stream->queue, stream->blocked_by, addr, bytes, writes);
}

static int tell(CUstream handle, CUdeviceptr addr, uint64_t bytes, bool writes) {
  sim_lock();
  const bool told = stream_of(handle) != NULL && sim_accessible(addr, bytes, writes);
  if (told) sim_work(handle, addr, bytes, writes);
  sim_unlock();
  return told ? 0 : -1;
}

SIM_API int simcuda_reads(CUstream stream, CUdeviceptr addr, uint64_t bytes) { return tell(stream, addr, bytes, false); }
SIM_API int simcuda_writes(CUstream stream, CUdeviceptr addr, uint64_t bytes) { return tell(stream, addr, bytes, true); }

SIM_API uint64_t simcuda_waits(void) {
  sim_lock();
  const uint64_t count = waits;
  sim_unlock();
  return count;
}

bool sim_is_stream(CUstream handle) { return stream_of(handle) != NULL; }

static bool known(CUevent handle) {
  for (struct CUevent_st *event = events; event != NULL; event = event->next)
    if (event == handle) return true;
  return false;
}

static int hold(CUstream handle, bool lags_behind) {
  sim_lock();
  struct CUstream_st *stream = stream_of(handle);
  int bit = ~holds != 0 ? __builtin_ctzll(~holds) : -1;
  bool held = stream != NULL && (stream->hold >= 0 || bit >= 0);
  if (held && stream->hold < 0) {
    stream->hold = bit;
    stream->blocked_by |= (uint64_t)1 << bit;
    holds |= (uint64_t)1 << bit;
    if (lags_behind) lags |= (uint64_t)1 << bit;
  }
  sim_unlock();
  return held ? 0 : -1;
}

SIM_API int simcuda_hold_stream(CUstream handle) { return hold(handle, false); }
SIM_API int simcuda_lag_stream(CUstream handle) { return hold(handle, true); }

static void release_hold(struct CUstream_st *stream) {
  uint64_t keep = ~((uint64_t)1 << stream->hold);
  holds &= keep;
  lags &= keep;
  stream->hold = -1;
  for (struct CUstream_st *other = streams; other != NULL; other = other->next) other->blocked_by &= keep;
  for (struct CUevent_st *event = events; event != NULL; event = event->next) event->blocked_by &= keep;
  for (struct host_function *each = host_functions; each != NULL; each = each->next) each->blocked_by &= keep;
  sim_work_release(~keep);
  sim_wake();
}

// The device catches up with a host that waits for work behind these holds.
static void catch_up(uint64_t blocked_by) {
  for (struct CUstream_st *stream = streams, *next; stream != NULL && (lags & blocked_by) != 0; stream = next) {
    next = stream->next;
    if (stream->hold < 0 || (lags & blocked_by & (uint64_t)1 << stream->hold) == 0) continue;
    release_hold(stream);
    if (stream->destroyed) drop_stream(stream);
  }
}

// Takes the first host function out of the list that waits for no hold. NULL: there is none.
static struct host_function *take_ready(void) {
  for (struct host_function **link = &host_functions, *each; (each = *link) != NULL; link = &each->next) {
    if (each->blocked_by != 0) continue;
    *link = each->next;
    return each;
  }
  return NULL;
}

// Without the lock, since the functions may wait for whatever they like.
static void run_host_functions(void) {
  for (;;) {
    sim_lock();
    struct host_function *ready = take_ready();
    sim_unlock();
    if (ready == NULL) return;
    ready->run(ready->data);
    free(ready);
  }
}

SIM_API int simcuda_release_stream(CUstream handle) {
  sim_lock();
  struct CUstream_st *stream = any_stream(handle);
  bool held = stream != NULL && stream->hold >= 0;
  if (held) release_hold(stream);
  if (held && stream->destroyed) drop_stream(stream);
  sim_unlock();
  run_host_functions();
  return held ? 0 : -1;
}

static CUresult context_call(const char *name) {
  CUresult result = sim_enter(name, true);
  return result == CUDA_SUCCESS && sim_current() == NULL ? CUDA_ERROR_INVALID_CONTEXT : result;
}

static CUresult stream_call(const char *name, CUstream handle) {
  CUresult result = context_call(name);
  return result == CUDA_SUCCESS && stream_of(handle) == NULL ? CUDA_ERROR_INVALID_HANDLE : result;
}

static CUresult event_call(const char *name, CUevent event) {
  CUresult result = context_call(name);
  return result == CUDA_SUCCESS && !known(event) ? CUDA_ERROR_INVALID_HANDLE : result;
}

static unsigned long long id(const void *handle) { return (unsigned long long)(uintptr_t)handle; }

SIM_API CUresult cuStreamCreate(CUstream *out, unsigned int flags) {
  CUresult result = context_call("cuStreamCreate");
  struct CUstream_st *stream = NULL;
  if (result == CUDA_SUCCESS && (out == NULL || flags > CU_STREAM_NON_BLOCKING)) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS && (stream = calloc(1, sizeof *stream)) == NULL) result = CUDA_ERROR_OUT_OF_MEMORY;
  if (result == CUDA_SUCCESS) {
    *stream = (struct CUstream_st){.next = streams, .hold = -1, .context = sim_context()};
    streams = stream;
    *out = stream;
  }
  return sim_leave("cuStreamCreate", result, "flags=%u stream=0x%llx", flags, id(stream));
}

SIM_API CUresult cuStreamDestroy_v2(CUstream handle) {
  CUresult result = stream_call("cuStreamDestroy", handle);
  if (result == CUDA_SUCCESS && (uintptr_t)handle <= 2) result = CUDA_ERROR_INVALID_HANDLE;
  if (result == CUDA_SUCCESS) {
    sim_forget_capture(handle);
    if (handle->hold >= 0)
      handle->destroyed = true;
    else
      drop_stream(handle);
  }
  return sim_leave("cuStreamDestroy", result, "stream=0x%llx", id(handle));
}

SIM_API CUresult cuStreamDestroy(CUstream handle) { return cuStreamDestroy_v2(handle); }

SIM_API CUresult cuLaunchHostFunc(CUstream handle, void (*run)(void *), void *data) {
  CUresult result = stream_call("cuLaunchHostFunc", handle);
  struct host_function *function = NULL;
  if (result == CUDA_SUCCESS && run == NULL) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS && (function = malloc(sizeof *function)) == NULL) result = CUDA_ERROR_OUT_OF_MEMORY;
  if (result == CUDA_SUCCESS) {
    *function = (struct host_function){.blocked_by = stream_of(handle)->blocked_by, .run = run, .data = data};
    struct host_function **last = &host_functions;
    while (*last != NULL) last = &(*last)->next;
    *last = function;
  }
  result = sim_leave("cuLaunchHostFunc", result, "stream=0x%llx", id(handle));
  run_host_functions();
  return result;
}

SIM_API CUresult cuStreamQuery(CUstream handle) {
  CUresult result = stream_call("cuStreamQuery", handle);
  if (result == CUDA_SUCCESS) result = sim_forbidden();
  if (result == CUDA_SUCCESS && stream_of(handle)->blocked_by != 0) result = CUDA_ERROR_NOT_READY;
  return sim_leave("cuStreamQuery", result, "stream=0x%llx", id(handle));
}

SIM_API CUresult cuStreamSynchronize(CUstream handle) {
  CUresult result = stream_call("cuStreamSynchronize", handle);
  if (result == CUDA_SUCCESS) result = sim_forbidden();
  if (result == CUDA_SUCCESS) waits += stream_of(handle)->blocked_by != 0;
  if (result == CUDA_SUCCESS) catch_up(stream_of(handle)->blocked_by);
  while (result == CUDA_SUCCESS && stream_of(handle) != NULL && stream_of(handle)->blocked_by != 0) sim_wait();
  return sim_leave("cuStreamSynchronize", result, "stream=0x%llx", id(handle));
}

static bool context_busy(const struct CUctx_st *context) {
  for (struct CUstream_st *stream = streams; stream != NULL; stream = stream->next)
    if (stream->blocked_by != 0 && (stream->context == NULL || stream->context == context)) return true;
  return false;
}

SIM_API CUresult cuCtxSynchronize(void) {
  CUresult result = context_call("cuCtxSynchronize");
  if (result == CUDA_SUCCESS) result = sim_forbidden();
  if (result == CUDA_SUCCESS) waits += context_busy(sim_context());
  if (result == CUDA_SUCCESS) catch_up(~(uint64_t)0);
  while (result == CUDA_SUCCESS && context_busy(sim_context())) sim_wait();
  return sim_leave("cuCtxSynchronize", result, "%s", "");
}

SIM_API CUresult cuStreamGetCtx(CUstream handle, CUcontext *context) {
  CUresult result = stream_call("cuStreamGetCtx", handle);
  if (result == CUDA_SUCCESS && context == NULL) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) {
    struct CUctx_st *own = stream_of(handle)->context;
    *context = own != NULL ? own : sim_context();
  }
  return sim_leave("cuStreamGetCtx", result, "stream=0x%llx", id(handle));
}

SIM_API CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned int flags) {
  CUresult result = stream_call("cuStreamWaitEvent", handle);
  if (result == CUDA_SUCCESS && !known(event)) result = CUDA_ERROR_INVALID_HANDLE;
  if (result == CUDA_SUCCESS) {
    stream_of(handle)->blocked_by |= event->blocked_by;
    sim_past_add(&stream_of(handle)->queue.past, &event->past);
    sim_join_capture(handle, event->capture);
  }
  return sim_leave("cuStreamWaitEvent", result, "stream=0x%llx event=0x%llx flags=%u", id(handle), id(event), flags);
}

SIM_API CUresult cuEventCreate(CUevent *out, unsigned int flags) {
  CUresult result = context_call("cuEventCreate");
  struct CUevent_st *event = NULL;
  if (result == CUDA_SUCCESS && out == NULL) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS && (event = calloc(1, sizeof *event)) == NULL) result = CUDA_ERROR_OUT_OF_MEMORY;
  if (result == CUDA_SUCCESS) {
    event->next = events;
    if (events != NULL) events->previous = event;
    events = event;
    *out = event;
  }
  return sim_leave("cuEventCreate", result, "flags=%u event=0x%llx", flags, id(event));
}

SIM_API CUresult cuEventRecord(CUevent event, CUstream handle) {
  CUresult result = event_call("cuEventRecord", event);
  if (result == CUDA_SUCCESS && stream_of(handle) == NULL) result = CUDA_ERROR_INVALID_HANDLE;
  if (result == CUDA_SUCCESS) {
    event->blocked_by = stream_of(handle)->blocked_by;
    sim_past_set(&event->past, &stream_of(handle)->queue.past);
    event->capture = sim_capture_of(handle);
  }
  return sim_leave("cuEventRecord", result, "event=0x%llx stream=0x%llx", id(event), id(handle));
}

// As on a card, work of a context's streams that were destroyed counts, and one that is captured makes the call fail.
SIM_API CUresult cuCtxRecordEvent(CUcontext context, CUevent event) {
  CUresult result = event_call("cuCtxRecordEvent", event);
  if (result == CUDA_SUCCESS && context == NULL) result = CUDA_ERROR_INVALID_CONTEXT;
  if (result == CUDA_SUCCESS) result = sim_forbidden_record(context);
  if (result == CUDA_SUCCESS) {
    event->blocked_by = 0;
    event->capture = 0;
    sim_past_drop(&event->past);
    for (const struct CUstream_st *stream = streams; stream != NULL; stream = stream->next) {
      if (stream->context != NULL && stream->context != context) continue;
      event->blocked_by |= stream->blocked_by;
      sim_past_add(&event->past, &stream->queue.past);
    }
  }
  return sim_leave("cuCtxRecordEvent", result, "event=0x%llx", id(event));
}

SIM_API CUresult cuEventQuery(CUevent event) {
  CUresult result = event_call("cuEventQuery", event);
  if (result == CUDA_SUCCESS) result = sim_forbidden_event(event->capture);
  if (result == CUDA_SUCCESS) result = sim_forbidden();
  if (result == CUDA_SUCCESS && event->blocked_by != 0) result = CUDA_ERROR_NOT_READY;
  return sim_leave("cuEventQuery", result, "event=0x%llx", id(event));
}

SIM_API CUresult cuEventSynchronize(CUevent event) {
  CUresult result = event_call("cuEventSynchronize", event);
  if (result == CUDA_SUCCESS) result = sim_forbidden_event(event->capture);
  if (result == CUDA_SUCCESS) result = sim_forbidden();
  if (result == CUDA_SUCCESS) waits += event->blocked_by != 0;
  if (result == CUDA_SUCCESS) catch_up(event->blocked_by);
  while (result == CUDA_SUCCESS && known(event) && event->blocked_by != 0) sim_wait();
  return sim_leave("cuEventSynchronize", result, "event=0x%llx", id(event));
}

SIM_API CUresult cuEventDestroy_v2(CUevent event) {
  CUresult result = event_call("cuEventDestroy", event);
  if (result == CUDA_SUCCESS) {
    if (event->previous != NULL)
      event->previous->next = event->next;
    else
      events = event->next;
    if (event->next != NULL) event->next->previous = event->previous;
    sim_past_drop(&event->past);
    free(event);
  }
  return sim_leave("cuEventDestroy", result, "event=0x%llx", id(event));
}

SIM_API CUresult cuEventDestroy(CUevent event) { return cuEventDestroy_v2(event); }
