// calls.c - failure injection, the log, streams, the runtime, threads, forked children.
#define _GNU_SOURCE
#include "check.h"
#include "driver.h"

#include <pthread.h>
#include <string.h>

static CUresult create(CUmemGenericAllocationHandle *handle) {
  CUmemAllocationProp prop = on_device(0);
  return cuMemCreate(handle, 2 * MiB, &prop, 0);
}

TEST(chosen_calls_fail, "MEMPROF_SIM_FAIL", "cuMemCreate:3,cuMemMap:2+=801,cudaMalloc:1") {
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr base = 0;
  size_t all = start();
  CHECK(create(&handle) == CUDA_SUCCESS && create(&handle) == CUDA_SUCCESS);
  CHECK(create(&handle) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(free_now() == all - 4 * MiB);
  CHECK(create(&handle) == CUDA_SUCCESS);
  CHECK(cuMemAddressReserve(&base, 4 * MiB, 0, 0, 0) == CUDA_SUCCESS);
  CHECK(cuMemMap(base, 2 * MiB, 0, handle, 0) == CUDA_SUCCESS);
  CHECK(cuMemMap(base + 2 * MiB, 2 * MiB, 0, handle, 0) == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(cuMemMap(base + 2 * MiB, 2 * MiB, 0, handle, 0) == CUDA_ERROR_NOT_SUPPORTED);
  void *pointer = NULL;
  CHECK(cudaMalloc(&pointer, 256) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(strcmp(cudaGetErrorName(cudaGetLastError()), "cudaErrorMemoryAllocation") == 0);
  CHECK(cudaMalloc(&pointer, 256) == CUDA_SUCCESS);
}

static char log_path[64];

TEST(the_log_has_each_call) {
  CUmemGenericAllocationHandle handle = 0;
  CUmemAllocationProp prop = on_device(0);
  setenv("MEMPROF_SIM_LOG", log_path, 1);
  CHECK(cuInit(0) == CUDA_SUCCESS);
  CHECK(cuMemCreate(&handle, 2 * MiB, &prop, 0) == CUDA_SUCCESS);
  CHECK(cuMemRelease(handle) == CUDA_SUCCESS);
  CHECK(cuMemRelease(handle) == CUDA_ERROR_INVALID_VALUE);
  char want[512], got[512] = {0};
  int pid = (int)getpid();
  snprintf(want, sizeof want,
           "%d cuInit flags=0 = 0\n%d cuMemCreate size=2097152 device=0 handle=%llu = 0\n"
           "%d cuMemRelease handle=%llu = 0\n%d cuMemRelease handle=%llu = 1\n",
           pid, pid, handle, pid, handle, pid, handle);
  FILE *file = fopen(log_path, "r");
  CHECK(file != NULL);
  CHECK(fread(got, 1, sizeof got - 1, file) == strlen(want));
  CHECK(strcmp(want, got) == 0);
  fclose(file);
  unlink(log_path);
}

static void *release_later(void *stream) {
  for (int i = 0; i < 60000 && simcuda_waiting() == 0; i++) usleep(1000);
  CHECK(simcuda_waiting() == 1);
  CHECK(simcuda_release_stream(stream) == 0);
  return NULL;
}

TEST(held_streams_hold_their_events) {
  CUstream one, two;
  CUevent before, after, joined;
  start();
  CHECK(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  CHECK(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  CHECK(cuEventCreate(&before, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  CHECK(cuEventCreate(&after, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  CHECK(cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  CHECK(cuEventRecord(before, one) == CUDA_SUCCESS);
  CHECK(simcuda_release_stream(one) == -1);
  CHECK(simcuda_hold_stream(one) == 0);
  CHECK(cuEventRecord(after, one) == CUDA_SUCCESS);
  CHECK(cuEventQuery(before) == CUDA_SUCCESS);
  CHECK(cuEventQuery(after) == CUDA_ERROR_NOT_READY);
  CHECK(cuStreamQuery(one) == CUDA_ERROR_NOT_READY && cuStreamQuery(two) == CUDA_SUCCESS);
  CHECK(cuStreamWaitEvent(two, after, 0) == CUDA_SUCCESS);
  CHECK(cuEventRecord(joined, two) == CUDA_SUCCESS);
  CHECK(cuEventQuery(joined) == CUDA_ERROR_NOT_READY);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, release_later, one) == 0);
  CHECK(cuEventSynchronize(joined) == CUDA_SUCCESS);
  CHECK(cuEventQuery(after) == CUDA_SUCCESS && cuStreamQuery(two) == CUDA_SUCCESS);
  pthread_join(thread, NULL);
  CHECK(simcuda_hold_stream(NULL) == 0);
  CHECK(pthread_create(&thread, NULL, release_later, NULL) == 0);
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
  pthread_join(thread, NULL);
  CHECK(simcuda_hold_stream(one) == 0);
  CHECK(cuEventRecord(after, one) == CUDA_SUCCESS);
  CHECK(cuStreamDestroy_v2(one) == CUDA_SUCCESS);
  CHECK(cuStreamQuery(one) == CUDA_ERROR_INVALID_HANDLE && cuEventQuery(after) == CUDA_ERROR_NOT_READY);
  CHECK(simcuda_release_stream(one) == 0 && cuEventQuery(after) == CUDA_SUCCESS);
  CHECK(simcuda_hold_stream(one) == -1 && simcuda_release_stream(one) == -1);
  CHECK(cuStreamSynchronize(two) == CUDA_SUCCESS && cuStreamDestroy_v2(two) == CUDA_SUCCESS);
  CHECK(cuEventDestroy_v2(before) == CUDA_SUCCESS && cuEventDestroy_v2(after) == CUDA_SUCCESS);
  CHECK(cuEventDestroy_v2(joined) == CUDA_SUCCESS);
}

TEST(a_stream_that_lags_is_waited_for) {
  CUstream one, two;
  CUevent of_one, of_two;
  start();
  CHECK(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS && cuStreamCreate(&two, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  CHECK(cuEventCreate(&of_one, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS && cuEventCreate(&of_two, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  CHECK(simcuda_lag_stream(one) == 0 && simcuda_lag_stream(one) == 0 && simcuda_lag_stream(two) == 0);
  CHECK(cuEventRecord(of_one, one) == CUDA_SUCCESS && cuEventRecord(of_two, two) == CUDA_SUCCESS);
  CHECK(cuEventQuery(of_one) == CUDA_ERROR_NOT_READY && cuStreamQuery(one) == CUDA_ERROR_NOT_READY);
  CHECK(cuEventSynchronize(of_one) == CUDA_SUCCESS && cuEventQuery(of_one) == CUDA_SUCCESS && cuEventQuery(of_two) == CUDA_ERROR_NOT_READY);
  CHECK(cuStreamSynchronize(two) == CUDA_SUCCESS && cuEventQuery(of_two) == CUDA_SUCCESS);
  CHECK(simcuda_lag_stream(one) == 0 && cuEventRecord(of_one, one) == CUDA_SUCCESS && cuStreamDestroy_v2(one) == CUDA_SUCCESS);
  CHECK(cuEventQuery(of_one) == CUDA_ERROR_NOT_READY && cuCtxSynchronize() == CUDA_SUCCESS && cuEventQuery(of_one) == CUDA_SUCCESS);
  CHECK(cuStreamDestroy_v2(two) == CUDA_SUCCESS && cuEventDestroy_v2(of_one) == CUDA_SUCCESS && cuEventDestroy_v2(of_two) == CUDA_SUCCESS);
}

TEST(contexts_wait_for_their_own_streams) {
  CUcontext primary, made, found;
  CUstream one, two;
  start();
  CHECK(cuCtxGetCurrent(&primary) == CUDA_SUCCESS && cuStreamCreate(&one, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  CHECK(cuCtxCreate_v2(&made, 0, 0) == CUDA_SUCCESS && made != primary);
  CHECK(cuCtxGetCurrent(&found) == CUDA_SUCCESS && found == made);
  CHECK(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  CHECK(cuStreamGetCtx(one, &found) == CUDA_SUCCESS && found == primary);
  CHECK(cuStreamGetCtx(two, &found) == CUDA_SUCCESS && found == made);
  CHECK(simcuda_hold_stream(one) == 0 && cuCtxSynchronize() == CUDA_SUCCESS && simcuda_release_stream(one) == 0);
  CHECK(cuCtxPushCurrent_v2(primary) == CUDA_SUCCESS && simcuda_hold_stream(two) == 0);
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS && simcuda_release_stream(two) == 0);
  CHECK(cuCtxPopCurrent_v2(NULL) == CUDA_SUCCESS && cuCtxDestroy_v2(made) == CUDA_SUCCESS);
  CHECK(cuCtxGetCurrent(&found) == CUDA_SUCCESS && found == primary);
  CHECK(cuCtxPushCurrent_v2(made) == CUDA_ERROR_INVALID_CONTEXT && cuCtxDestroy_v2(primary) == CUDA_ERROR_INVALID_CONTEXT);
}

TEST(the_runtime_needs_no_init, "MEMPROF_SIM_DEVICES", "2") {
  char *device = NULL, back[4] = {0};
  int count = 0, current = -1;
  CHECK(cudaGetDeviceCount(&count) == CUDA_SUCCESS && count == 2);
  CHECK(cudaMalloc((void **)&device, 1000) == CUDA_SUCCESS);
  CHECK(cudaMemset(device, 'x', 1000) == CUDA_SUCCESS);
  CHECK(cudaMemcpy(device + 1, "abc", 3, 1) == CUDA_SUCCESS);
  CHECK(cudaMemcpy(back, device, 4, 2) == CUDA_SUCCESS && memcmp(back, "xabc", 4) == 0);
  CHECK(cudaFree(device) == CUDA_SUCCESS);
  CHECK(cudaFree(device) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cudaGetLastError() == CUDA_ERROR_INVALID_VALUE && cudaGetLastError() == CUDA_SUCCESS);
  CHECK(cudaMalloc((void **)&device, 0) == CUDA_SUCCESS && device == NULL);
  CHECK(cudaSetDevice(2) == CUDA_ERROR_INVALID_DEVICE);
  CHECK(cudaSetDevice(1) == CUDA_SUCCESS && cudaGetDevice(&current) == CUDA_SUCCESS && current == 1);
  CHECK(cudaDeviceEnablePeerAccess(0, 0) == CUDA_SUCCESS);
  CHECK(cudaDeviceEnablePeerAccess(0, 0) == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  size_t other = free_now();
  CHECK(cudaMalloc((void **)&device, 4 * MiB) == CUDA_SUCCESS);
  CHECK(free_now() == other - 4 * MiB);
  CHECK(cudaSetDevice(0) == CUDA_SUCCESS && free_now() == other);
}

TEST(a_forked_child_has_no_gpu) {
  start();
  pid_t child = fork();
  if (child == 0) {
    size_t free_bytes;
    _exit(cuMemGetInfo_v2(&free_bytes, NULL) == CUDA_ERROR_NOT_INITIALIZED && cuInit(0) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(free_now() > 0);
}

TEST(no_device_is_said_at_init, "MEMPROF_SIM_DEVICES", "0") { CHECK(cuInit(0) == CUDA_ERROR_NO_DEVICE); }

static void *churn(void *argument) {
  unsigned char mark = (unsigned char)(uintptr_t)argument, back = 0;
  start();
  for (int i = 0; i < 300; i++) {
    CUdeviceptr plain, base;
    CUmemGenericAllocationHandle handle;
    CUmemAccessDesc access = open_to(0);
    CHECK(cuMemAlloc_v2(&plain, 1000 + (size_t)i) == CUDA_SUCCESS);
    CHECK(cuMemAddressReserve(&base, 4 * MiB, 0, 0, 0) == CUDA_SUCCESS);
    CHECK(create(&handle) == CUDA_SUCCESS);
    CHECK(cuMemMap(base + 2 * MiB, 2 * MiB, 0, handle, 0) == CUDA_SUCCESS);
    CHECK(cuMemRelease(handle) == CUDA_SUCCESS);
    CHECK(cuMemSetAccess(base + 2 * MiB, 2 * MiB, &access, 1) == CUDA_SUCCESS);
    CHECK(cuMemsetD8_v2(plain, mark, 1000) == CUDA_SUCCESS);
    CHECK(cuMemcpyHtoD_v2(base + 2 * MiB, &mark, 1) == CUDA_SUCCESS);
    CHECK(cuMemcpyDtoH_v2(&back, base + 2 * MiB, 1) == CUDA_SUCCESS && back == mark);
    CHECK(cuMemUnmap(base, 4 * MiB) == CUDA_SUCCESS);
    CHECK(cuMemAddressFree(base, 4 * MiB) == CUDA_SUCCESS);
    CHECK(cuMemcpyDtoH_v2(&back, plain + 999, 1) == CUDA_SUCCESS && back == mark);
    CHECK(cuMemFree_v2(plain) == CUDA_SUCCESS);
  }
  return NULL;
}

TEST(threads_do_not_disturb_each_other) {
  pthread_t threads[4];
  size_t all = start();
  for (size_t i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, churn, (void *)(uintptr_t)(i + 1)) == 0);
  for (size_t i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  CHECK(free_now() == all);
}

int main(int argc, char **argv) {
  snprintf(log_path, sizeof log_path, "/tmp/simcuda-log-%d", (int)getpid());
  return run_tests(argc, argv);
}
