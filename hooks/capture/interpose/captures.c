// captures.c - the job begins and ends captures of streams into graphs.
//
// device/captures.c counts them, since no thread may wait, query or unmap during a capture. The runtime's
// calls lead to the driver's, so only the outermost call of a thread counts. A capture ends with its end
// call, even with a failed one if the stream is not captured any more, or when its stream is destroyed.
#include <stdbool.h>

#include "arena/capture_name.h"
#include "base/hook.h"
#include "base/lock.h"
#include "device/captures.h"
#include "device/driver.h"
#include "interpose/interpose.h"
#include "interpose/serve.h"
#include "spool/spool.h"

enum {
  BEGIN,
  BEGIN_PTSZ,
  CU_BEGIN,
  CU_BEGIN_PTSZ,
  CU_BEGIN_V2,
  CU_BEGIN_V2_PTSZ,
  TO_GRAPH,
  TO_GRAPH_PTSZ,
  CU_TO_GRAPH,
  CU_TO_GRAPH_PTSZ,
  END,
  END_PTSZ,
  CU_END,
  CU_END_PTSZ,
  DESTROY,
  CU_DESTROY,
  CU_DESTROY_V2,
};
#define CALL(which) (&(struct call){.entry = &interpose_captures[which], .from = __builtin_return_address(0)})

enum { MOST_CAPTURES = 256 };

static struct lock lock;
struct begun {
  const void *stream;  // the default stream of a thread may be here once for each thread
  uint32_t context;    // string id: name, pool and inputs of the capture
};
static struct begun begun[MOST_CAPTURES];
static int begun_count;

static const void *stream_of(const struct call *call, const void *stream) {
  return stream == NULL && call->entry->per_thread ? (const void *)STREAM_PER_THREAD : stream;
}

static void note(enum memprof_kind kind, const void *stream, int now, uint32_t context) {
  if (!hook_on()) return;
  hook_start();
  spool_write(&(struct spool_event){
      .kind = kind,
      .device = call_stream_device(stream),
      .arena = MEMPROF_NO_ARENA,
      .stream = (int64_t)(intptr_t)stream,
      .requested = (uint64_t)now,
      .context = context,
  });
}

// Counted before the call, so that no thread queries an event in between.
static void *begin(struct call *call) {
  void *real = call_enter(call);
  if (call->outermost) captures_begin();
  return real;
}

static cuda_error began(const struct call *call, const void *stream, cuda_error error) {
  if (call->outermost) {
    const uint32_t context = error == CUDA_OK && hook_on() ? capture_context() : 0;
    lock_take(&lock);
    const bool counted = error == CUDA_OK && begun_count < MOST_CAPTURES;
    if (counted) begun[begun_count++] = (struct begun){stream_of(call, stream), context};
    const int now = counted ? captures_count() : captures_end();
    if (counted) note(MEMPROF_CAPTURE_BEGIN, stream_of(call, stream), now, context);
    lock_give(&lock);
  }
  call_leave();
  return error;
}

// Whether the stream's capture has ended, even though its end call may have failed.
static bool out_of_capture(const void *stream, cuda_error error) {
  int status = 0;
  const struct driver *driver = driver_get();
  if (error == CUDA_OK || driver == NULL) return true;
  return driver->stream_capturing((void *)(uintptr_t)stream, &status) == DRIVER_OK && status == 0;
}

// The capture of a stream has ended. One that was begun by a call that was not seen was not counted.
static void end(const void *stream) {
  lock_take(&lock);
  for (int i = begun_count; i-- > 0;) {
    if (begun[i].stream != stream) continue;
    const uint32_t context = begun[i].context;
    begun[i] = begun[--begun_count];
    note(MEMPROF_CAPTURE_END, stream, captures_end(), context);
    break;
  }
  lock_give(&lock);
}

static cuda_error begin_mode(struct call *call, void *stream, int mode) {
  cuda_error (*real)(void *, int) = begin(call);
  return began(call, stream, real == NULL ? CUDA_NOT_FOUND : real(stream, mode));
}

EXPORT cuda_error cudaStreamBeginCapture(void *stream, int mode) { return begin_mode(CALL(BEGIN), stream, mode); }
EXPORT cuda_error cudaStreamBeginCapture_ptsz(void *stream, int mode) { return begin_mode(CALL(BEGIN_PTSZ), stream, mode); }
EXPORT cuda_error cuStreamBeginCapture_v2(void *stream, int mode) { return begin_mode(CALL(CU_BEGIN_V2), stream, mode); }
EXPORT cuda_error cuStreamBeginCapture_v2_ptsz(void *stream, int mode) { return begin_mode(CALL(CU_BEGIN_V2_PTSZ), stream, mode); }

static cuda_error begin_plain(struct call *call, void *stream) {
  cuda_error (*real)(void *) = begin(call);
  return began(call, stream, real == NULL ? CUDA_NOT_FOUND : real(stream));
}

EXPORT cuda_error cuStreamBeginCapture(void *stream) { return begin_plain(CALL(CU_BEGIN), stream); }
EXPORT cuda_error cuStreamBeginCapture_ptsz(void *stream) { return begin_plain(CALL(CU_BEGIN_PTSZ), stream); }

typedef cuda_error to_graph(void *stream, void *graph, const void *nodes, const void *edges, size_t count, int mode);

static cuda_error begin_to_graph(struct call *call, void *stream, void *graph, const void *nodes, const void *edges, size_t count, int mode) {
  to_graph *real = begin(call);
  return began(call, stream, real == NULL ? CUDA_NOT_FOUND : real(stream, graph, nodes, edges, count, mode));
}

EXPORT cuda_error cudaStreamBeginCaptureToGraph(void *stream, void *graph, const void *nodes, const void *edges, size_t count, int mode) {
  return begin_to_graph(CALL(TO_GRAPH), stream, graph, nodes, edges, count, mode);
}
EXPORT cuda_error cudaStreamBeginCaptureToGraph_ptsz(void *stream, void *graph, const void *nodes, const void *edges, size_t count, int mode) {
  return begin_to_graph(CALL(TO_GRAPH_PTSZ), stream, graph, nodes, edges, count, mode);
}
EXPORT cuda_error cuStreamBeginCaptureToGraph(void *stream, void *graph, const void *nodes, const void *edges, size_t count, int mode) {
  return begin_to_graph(CALL(CU_TO_GRAPH), stream, graph, nodes, edges, count, mode);
}
EXPORT cuda_error cuStreamBeginCaptureToGraph_ptsz(void *stream, void *graph, const void *nodes, const void *edges, size_t count, int mode) {
  return begin_to_graph(CALL(CU_TO_GRAPH_PTSZ), stream, graph, nodes, edges, count, mode);
}

static cuda_error end_capture(struct call *call, void *stream, void **graph) {
  cuda_error (*real)(void *, void **) = call_enter(call);
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(stream, graph);
  if (call->outermost && out_of_capture(stream_of(call, stream), error)) end(stream_of(call, stream));
  call_leave();
  return error;
}

EXPORT cuda_error cudaStreamEndCapture(void *stream, void **graph) { return end_capture(CALL(END), stream, graph); }
EXPORT cuda_error cudaStreamEndCapture_ptsz(void *stream, void **graph) { return end_capture(CALL(END_PTSZ), stream, graph); }
EXPORT cuda_error cuStreamEndCapture(void *stream, void **graph) { return end_capture(CALL(CU_END), stream, graph); }
EXPORT cuda_error cuStreamEndCapture_ptsz(void *stream, void **graph) { return end_capture(CALL(CU_END_PTSZ), stream, graph); }

static cuda_error destroy(struct call *call, void *stream) {
  cuda_error (*real)(void *) = call_enter(call);
  if (call->outermost && (uintptr_t)stream > STREAM_PER_THREAD) {
    serve_stream_ends(stream);
    if (capturing()) end(stream);
  }
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(stream);
  call_leave();
  return error;
}

EXPORT cuda_error cudaStreamDestroy(void *stream) { return destroy(CALL(DESTROY), stream); }
EXPORT cuda_error cuStreamDestroy(void *stream) { return destroy(CALL(CU_DESTROY), stream); }
EXPORT cuda_error cuStreamDestroy_v2(void *stream) { return destroy(CALL(CU_DESTROY_V2), stream); }

#define RUNTIME(function) {.name = #function, .ours = function}
#define DRIVER(function, base, version) {.name = #function, .ours = function, .asked = #base, .since = version}
#define PER_THREAD(function, base, version) {.name = #function, .ours = function, .asked = base, .since = version, .per_thread = true}
struct entry interpose_captures[] = {
    [BEGIN] = RUNTIME(cudaStreamBeginCapture),
    [BEGIN_PTSZ] = PER_THREAD(cudaStreamBeginCapture_ptsz, NULL, 0),
    [CU_BEGIN] = DRIVER(cuStreamBeginCapture, cuStreamBeginCapture, 10000),
    [CU_BEGIN_PTSZ] = PER_THREAD(cuStreamBeginCapture_ptsz, "cuStreamBeginCapture", 10000),
    [CU_BEGIN_V2] = DRIVER(cuStreamBeginCapture_v2, cuStreamBeginCapture, 10010),
    [CU_BEGIN_V2_PTSZ] = PER_THREAD(cuStreamBeginCapture_v2_ptsz, "cuStreamBeginCapture", 10010),
    [TO_GRAPH] = RUNTIME(cudaStreamBeginCaptureToGraph),
    [TO_GRAPH_PTSZ] = PER_THREAD(cudaStreamBeginCaptureToGraph_ptsz, NULL, 0),
    [CU_TO_GRAPH] = DRIVER(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph, 12030),
    [CU_TO_GRAPH_PTSZ] = PER_THREAD(cuStreamBeginCaptureToGraph_ptsz, "cuStreamBeginCaptureToGraph", 12030),
    [END] = RUNTIME(cudaStreamEndCapture),
    [END_PTSZ] = PER_THREAD(cudaStreamEndCapture_ptsz, NULL, 0),
    [CU_END] = DRIVER(cuStreamEndCapture, cuStreamEndCapture, 10000),
    [CU_END_PTSZ] = PER_THREAD(cuStreamEndCapture_ptsz, "cuStreamEndCapture", 10000),
    [DESTROY] = RUNTIME(cudaStreamDestroy),
    [CU_DESTROY] = DRIVER(cuStreamDestroy, cuStreamDestroy, 2000),
    [CU_DESTROY_V2] = DRIVER(cuStreamDestroy_v2, cuStreamDestroy, 4000),
    {0},
};

INTERPOSED(interpose_captures);
