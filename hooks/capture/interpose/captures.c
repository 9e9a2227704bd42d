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

WRAPPER(cudaStreamBeginCapture, (void *stream, int mode), RUNTIME) { return begin_mode(CALL(cudaStreamBeginCapture), stream, mode); }
WRAPPER(cudaStreamBeginCapture_ptsz, (void *stream, int mode), RUNTIME_PER_THREAD) { return begin_mode(CALL(cudaStreamBeginCapture_ptsz), stream, mode); }
WRAPPER(cuStreamBeginCapture_v2, (void *stream, int mode), DRIVER(cuStreamBeginCapture, 10010)) { return begin_mode(CALL(cuStreamBeginCapture_v2), stream, mode); }
WRAPPER(cuStreamBeginCapture_v2_ptsz, (void *stream, int mode), DRIVER_PER_THREAD(cuStreamBeginCapture, 10010)) { return begin_mode(CALL(cuStreamBeginCapture_v2_ptsz), stream, mode); }

static cuda_error begin_plain(struct call *call, void *stream) {
  cuda_error (*real)(void *) = begin(call);
  return began(call, stream, real == NULL ? CUDA_NOT_FOUND : real(stream));
}

WRAPPER(cuStreamBeginCapture, (void *stream), DRIVER(cuStreamBeginCapture, 10000)) { return begin_plain(CALL(cuStreamBeginCapture), stream); }
WRAPPER(cuStreamBeginCapture_ptsz, (void *stream), DRIVER_PER_THREAD(cuStreamBeginCapture, 10000)) { return begin_plain(CALL(cuStreamBeginCapture_ptsz), stream); }

typedef cuda_error to_graph(void *stream, void *graph, const void *nodes, const void *edges, size_t count, int mode);

static cuda_error begin_to_graph(struct call *call, void *stream, void *graph, const void *nodes, const void *edges, size_t count, int mode) {
  to_graph *real = begin(call);
  return began(call, stream, real == NULL ? CUDA_NOT_FOUND : real(stream, graph, nodes, edges, count, mode));
}

WRAPPER(cudaStreamBeginCaptureToGraph, (void *stream, void *graph, const void *nodes, const void *edges, size_t count, int mode), RUNTIME) {
  return begin_to_graph(CALL(cudaStreamBeginCaptureToGraph), stream, graph, nodes, edges, count, mode);
}
WRAPPER(cudaStreamBeginCaptureToGraph_ptsz, (void *stream, void *graph, const void *nodes, const void *edges, size_t count, int mode), RUNTIME_PER_THREAD) {
  return begin_to_graph(CALL(cudaStreamBeginCaptureToGraph_ptsz), stream, graph, nodes, edges, count, mode);
}
WRAPPER(cuStreamBeginCaptureToGraph, (void *stream, void *graph, const void *nodes, const void *edges, size_t count, int mode), DRIVER(cuStreamBeginCaptureToGraph, 12030)) {
  return begin_to_graph(CALL(cuStreamBeginCaptureToGraph), stream, graph, nodes, edges, count, mode);
}
WRAPPER(cuStreamBeginCaptureToGraph_ptsz, (void *stream, void *graph, const void *nodes, const void *edges, size_t count, int mode), DRIVER_PER_THREAD(cuStreamBeginCaptureToGraph, 12030)) {
  return begin_to_graph(CALL(cuStreamBeginCaptureToGraph_ptsz), stream, graph, nodes, edges, count, mode);
}

static cuda_error end_capture(struct call *call, void *stream, void **graph) {
  cuda_error (*real)(void *, void **) = call_enter(call);
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(stream, graph);
  if (call->outermost && out_of_capture(stream_of(call, stream), error)) end(stream_of(call, stream));
  call_leave();
  return error;
}

WRAPPER(cudaStreamEndCapture, (void *stream, void **graph), RUNTIME) { return end_capture(CALL(cudaStreamEndCapture), stream, graph); }
WRAPPER(cudaStreamEndCapture_ptsz, (void *stream, void **graph), RUNTIME_PER_THREAD) { return end_capture(CALL(cudaStreamEndCapture_ptsz), stream, graph); }
WRAPPER(cuStreamEndCapture, (void *stream, void **graph), DRIVER(cuStreamEndCapture, 10000)) { return end_capture(CALL(cuStreamEndCapture), stream, graph); }
WRAPPER(cuStreamEndCapture_ptsz, (void *stream, void **graph), DRIVER_PER_THREAD(cuStreamEndCapture, 10000)) { return end_capture(CALL(cuStreamEndCapture_ptsz), stream, graph); }

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

WRAPPER(cudaStreamDestroy, (void *stream), RUNTIME) { return destroy(CALL(cudaStreamDestroy), stream); }
WRAPPER(cuStreamDestroy, (void *stream), DRIVER(cuStreamDestroy, 2000)) { return destroy(CALL(cuStreamDestroy), stream); }
WRAPPER(cuStreamDestroy_v2, (void *stream), DRIVER(cuStreamDestroy, 4000)) { return destroy(CALL(cuStreamDestroy_v2), stream); }

