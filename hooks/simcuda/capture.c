// capture.c - streams being captured into graphs.
//
// No work is captured; a graph is an empty object. Only the state is simulated: which streams
// are in capture, and which calls that forbids. As on a card, a capture in global mode forbids
// calls that may wait, allocate or free on every thread, one in thread-local mode on its own
// thread, and one in relaxed mode none. A thread may relax this for itself by its interaction
// mode. A forbidden call fails and invalidates the capture, whose end then fails, too.
//
// A stream that waits for an event of a capture joins it, until its end. Nobody may ask whether
// such an event has finished: that invalidates the capture in every mode.
#define _GNU_SOURCE
#include "internal.h"

#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST_CAPTURES = 64, MOST_JOINED = 16 };

struct capture {
  CUstream stream;
  CUstream joined[MOST_JOINED];
  int joined_count;
  uint64_t id;  // from 1, in the order of their begins
  int mode;
  pid_t thread;
  bool spoiled;
};

struct CUgraph_st {
  int nodes;
};

static struct capture captures[MOST_CAPTURES];
static int capture_count;
static uint64_t capture_ids;
static _Thread_local int interaction = CU_STREAM_CAPTURE_MODE_GLOBAL;

// gettid is in glibc from 2.30 on, and this library runs from 2.28 on.
static pid_t this_thread(void) { return (pid_t)syscall(SYS_gettid); }

static struct capture *capture_of(CUstream stream) {
  for (int i = 0; i < capture_count; i++) {
    if (captures[i].stream == stream) return &captures[i];
    for (int k = 0; k < captures[i].joined_count; k++)
      if (captures[i].joined[k] == stream) return &captures[i];
  }
  return NULL;
}

uint64_t sim_capture_of(CUstream stream) {
  const struct capture *found = capture_of(stream);
  return found != NULL ? found->id : 0;
}

static struct capture *capture_with(uint64_t id) {
  for (int i = 0; i < capture_count; i++)
    if (captures[i].id == id) return &captures[i];
  return NULL;
}

void sim_join_capture(CUstream stream, uint64_t id) {
  struct capture *capture = id != 0 ? capture_with(id) : NULL;
  if (capture != NULL && capture_of(stream) == NULL && capture->joined_count < MOST_JOINED) capture->joined[capture->joined_count++] = stream;
}

CUresult sim_forbidden_event(uint64_t id) {
  struct capture *capture = id != 0 ? capture_with(id) : NULL;
  if (capture == NULL) return CUDA_SUCCESS;
  capture->spoiled = true;
  return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult sim_forbidden_record(const struct CUctx_st *context) {
  CUresult result = CUDA_SUCCESS;
  for (int i = 0; i < capture_count; i++) {
    if (!sim_is_of(captures[i].stream, context)) continue;
    captures[i].spoiled = true;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

bool sim_in_capture(CUstream stream) { return capture_of(stream) != NULL; }

void sim_forget_capture(CUstream stream) {
  struct capture *found = capture_of(stream);
  if (found != NULL && found->stream == stream) *found = captures[--capture_count];
}

CUresult sim_forbidden(void) {
  CUresult result = CUDA_SUCCESS;
  if (interaction == CU_STREAM_CAPTURE_MODE_RELAXED) return result;
  for (int i = 0; i < capture_count; i++) {
    struct capture *capture = &captures[i];
    const bool everybody = capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && interaction == CU_STREAM_CAPTURE_MODE_GLOBAL;
    const bool own = capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread == this_thread();
    if (!everybody && !own) continue;
    capture->spoiled = true;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

static CUresult stream_call(const char *name, CUstream stream) {
  CUresult result = sim_enter(name, true);
  if (result == CUDA_SUCCESS && sim_current() == NULL) result = CUDA_ERROR_INVALID_CONTEXT;
  return result == CUDA_SUCCESS && !sim_is_stream(stream) ? CUDA_ERROR_INVALID_HANDLE : result;
}

SIM_API CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) {
  CUresult result = stream_call("cuStreamBeginCapture", stream);
  if (result == CUDA_SUCCESS && (mode < 0 || mode > CU_STREAM_CAPTURE_MODE_RELAXED)) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS && (uintptr_t)stream <= 1) result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (result == CUDA_SUCCESS && (sim_in_capture(stream) || capture_count == MOST_CAPTURES)) result = CUDA_ERROR_ILLEGAL_STATE;
  if (result == CUDA_SUCCESS) captures[capture_count++] = (struct capture){.stream = stream, .id = ++capture_ids, .mode = mode, .thread = this_thread()};
  return sim_leave("cuStreamBeginCapture", result, "stream=0x%llx mode=%d", (unsigned long long)(uintptr_t)stream, mode);
}

SIM_API CUresult cuStreamBeginCapture(CUstream stream) { return cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL); }

// The default stream of the calling thread, if `stream` names none.
SIM_API CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, int mode) {
  return cuStreamBeginCapture_v2(stream == NULL ? (CUstream)2 : stream, mode);
}

SIM_API CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const void *nodes, const void *edges, size_t count, int mode) {
  (void)graph, (void)nodes, (void)edges, (void)count;
  return cuStreamBeginCapture_v2(stream, mode);
}

static CUresult end_capture(CUstream stream, CUgraph *graph) {
  struct capture *capture = capture_of(stream);
  if (capture == NULL || capture->stream != stream) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != this_thread()) return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  const bool spoiled = capture->spoiled;
  *capture = captures[--capture_count];
  *graph = spoiled ? NULL : calloc(1, sizeof **graph);
  return spoiled ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

SIM_API CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
  CUresult result = stream_call("cuStreamEndCapture", stream);
  if (result == CUDA_SUCCESS && graph == NULL) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) result = end_capture(stream, graph);
  return sim_leave("cuStreamEndCapture", result, "stream=0x%llx", (unsigned long long)(uintptr_t)stream);
}

SIM_API CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph) {
  return cuStreamEndCapture(stream == NULL ? (CUstream)2 : stream, graph);
}

SIM_API CUresult cuGraphDestroy(CUgraph graph) {
  CUresult result = sim_enter("cuGraphDestroy", true);
  if (result == CUDA_SUCCESS && graph == NULL) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) free(graph);
  return sim_leave("cuGraphDestroy", result, "%s", "");
}

// An executable graph uses device memory when it is made, and more at its first launch.
enum { MADE_BYTES = 65536, LAUNCHED_BYTES = 131072 };

struct CUgraphExec_st {
  struct sim_extent *made, *launched;
};

SIM_API CUresult cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph, unsigned long long flags) {
  CUresult result = sim_enter("cuGraphInstantiate", true);
  if (result == CUDA_SUCCESS && (executable == NULL || graph == NULL)) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS && sim_current() == NULL) result = CUDA_ERROR_INVALID_CONTEXT;
  if (result == CUDA_SUCCESS && (*executable = calloc(1, sizeof **executable)) == NULL) result = CUDA_ERROR_OUT_OF_MEMORY;
  if (result == CUDA_SUCCESS && (result = sim_charge(sim_current(), MADE_BYTES, &(*executable)->made)) != CUDA_SUCCESS) free(*executable);
  return sim_leave("cuGraphInstantiate", result, "flags=%llu", flags);
}

SIM_API CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  CUresult result = stream_call("cuGraphLaunch", stream);
  if (result == CUDA_SUCCESS && executable == NULL) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS && executable->launched == NULL) result = sim_charge(sim_current(), LAUNCHED_BYTES, &executable->launched);
  return sim_leave("cuGraphLaunch", result, "stream=0x%llx", (unsigned long long)(uintptr_t)stream);
}

SIM_API CUresult cuGraphExecDestroy(CUgraphExec executable) {
  CUresult result = sim_enter("cuGraphExecDestroy", true);
  if (result == CUDA_SUCCESS && executable == NULL) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) {
    sim_uncharge(&executable->made);
    sim_uncharge(&executable->launched);
    free(executable);
  }
  return sim_leave("cuGraphExecDestroy", result, "%s", "");
}

SIM_API CUresult cuStreamIsCapturing(CUstream stream, int *status) {
  CUresult result = stream_call("cuStreamIsCapturing", stream);
  if (result == CUDA_SUCCESS && status == NULL) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) {
    const struct capture *capture = capture_of(stream);
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (capture != NULL) *status = capture->spoiled ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  }
  return sim_leave("cuStreamIsCapturing", result, "stream=0x%llx", (unsigned long long)(uintptr_t)stream);
}

SIM_API CUresult cuThreadExchangeStreamCaptureMode(int *mode) {
  CUresult result = sim_enter("cuThreadExchangeStreamCaptureMode", true);
  if (result == CUDA_SUCCESS && (mode == NULL || *mode < 0 || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) {
    const int old = interaction;
    interaction = *mode;
    *mode = old;
  }
  return sim_leave("cuThreadExchangeStreamCaptureMode", result, "mode=%d", interaction);
}
