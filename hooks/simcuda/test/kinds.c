// kinds.c - captures, what contexts and code take, pools, arrays, attributes of pointers.
#define _GNU_SOURCE
#include "check.h"
#include "driver.h"

#include <pthread.h>

CUresult cuGetProcAddress(const char *symbol, void **out, int version, uint64_t flags);
CUresult cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags, int *status);
CUresult cuStreamIsCapturing(CUstream stream, int *status);
CUresult cuThreadExchangeStreamCaptureMode(int *mode);
CUresult cuGraphDestroy(CUgraph graph);
CUresult cuModuleLoadData(CUmodule *module, const void *image);
CUresult cuModuleUnload(CUmodule module);
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
CUresult cuLibraryLoadData(CUlibrary *library, const void *image, void *options, void **values, unsigned int count, void *library_options,
                           void **library_values, unsigned int library_count);
CUresult cuLibraryUnload(CUlibrary library);
CUresult cuLibraryGetKernel(CUfunction *kernel, CUlibrary library, const char *name);
CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
                        unsigned int block_y, unsigned int block_z, unsigned int shared, CUstream stream, void **parameters, void **extra);
CUresult cuCtxSetLimit(int limit, size_t value);
CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props);
CUresult cuMemPoolDestroy(CUmemoryPool pool);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *addr, size_t size, CUmemoryPool pool, CUstream stream);
CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *wanted);
CUresult cuArrayDestroy(CUarray array);
CUresult cuPointerGetAttribute(void *out, int attribute, CUdeviceptr addr);

static int status_of(CUstream stream) {
  int status = -1;
  CHECK(cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS);
  return status;
}

TEST(a_capture_forbids_to_wait) {
  CUstream stream;
  CUevent event;
  CUgraph graph;
  CUdeviceptr addr;
  start();
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  CHECK(cuEventCreate(&event, 0) == CUDA_SUCCESS && cuEventRecord(event, NULL) == CUDA_SUCCESS);
  CHECK(cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_ILLEGAL_STATE);
  CHECK(status_of(stream) == CU_STREAM_CAPTURE_STATUS_NONE);
  CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_ERROR_ILLEGAL_STATE);
  CHECK(status_of(stream) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  CHECK(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS && cuGraphDestroy(graph) == CUDA_SUCCESS);
  CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  CHECK(cuEventQuery(event) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(cuMemAlloc_v2(&addr, MiB) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(status_of(stream) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK(cuMemAlloc_v2(&addr, MiB) == CUDA_SUCCESS);
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device);
CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value);
CUresult cuMemHostAlloc(void **out, size_t size, unsigned int flags);
CUresult cuMemFreeHost(void *pointer);
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream stream);

// Begins a capture, makes a call on another stream, and says whether that has ended the capture.
#define ENDS_A_CAPTURE(call)                                                                            \
  (CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS), result = (call), \
   ended = cuStreamEndCapture(stream, &graph), CHECK((result != CUDA_SUCCESS) == (ended != CUDA_SUCCESS)), ended != CUDA_SUCCESS)

// As measured on an H200: whatever waits, allocates or frees, whichever stream it is about, and to ask for
// a pool's memory.
TEST(what_ends_a_capture) {
  CUstream stream, side;
  CUevent event;
  CUgraph graph;
  CUdeviceptr addr, other;
  CUresult result, ended;
  CUmemoryPool pool;
  void *pinned, *more;
  char host[16];
  size_t left, total;
  uint64_t reserved;
  start();
  CHECK(cuDeviceGetDefaultMemPool(&pool, 0) == CUDA_SUCCESS);
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS && cuStreamCreate(&side, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  CHECK(cuEventCreate(&event, 0) == CUDA_SUCCESS && cuEventRecord(event, side) == CUDA_SUCCESS);
  CHECK(cuMemAlloc_v2(&addr, MiB) == CUDA_SUCCESS && cuMemHostAlloc(&pinned, MiB, 0) == CUDA_SUCCESS);
  CHECK(ENDS_A_CAPTURE(cuMemAlloc_v2(&other, MiB)));
  CHECK(ENDS_A_CAPTURE(cuMemFree_v2(addr)));
  CHECK(ENDS_A_CAPTURE(cuMemHostAlloc(&more, MiB, 0)));
  CHECK(ENDS_A_CAPTURE(cuMemFreeHost(pinned)));
  CHECK(ENDS_A_CAPTURE(cuMemPoolGetAttribute(pool, 5, &reserved)));
  CHECK(ENDS_A_CAPTURE(cuEventQuery(event)));
  CHECK(ENDS_A_CAPTURE(cuEventSynchronize(event)));
  CHECK(ENDS_A_CAPTURE(cuStreamQuery(side)));
  CHECK(ENDS_A_CAPTURE(cuStreamSynchronize(side)));
  CHECK(ENDS_A_CAPTURE(cuCtxSynchronize()));
  CHECK(!ENDS_A_CAPTURE(cuMemGetInfo_v2(&left, &total)));
  CHECK(!ENDS_A_CAPTURE(cuMemcpyDtoH_v2(host, addr, sizeof host)));
  CHECK(!ENDS_A_CAPTURE(cuMemcpyDtoHAsync_v2(host, addr, sizeof host, side)));
  CHECK(!ENDS_A_CAPTURE(cuEventRecord(event, side)));
}

TEST(a_stream_joins_a_capture) {
  CUstream stream, side, apart;
  CUevent event;
  CUgraph graph;
  start();
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS && cuStreamCreate(&side, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  CHECK(cuStreamCreate(&apart, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS && cuEventCreate(&event, 0) == CUDA_SUCCESS);
  CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  CHECK(cuEventRecord(event, stream) == CUDA_SUCCESS && cuStreamWaitEvent(side, event, 0) == CUDA_SUCCESS);
  CHECK(status_of(side) == CU_STREAM_CAPTURE_STATUS_ACTIVE && status_of(apart) == CU_STREAM_CAPTURE_STATUS_NONE);
  CHECK(cuStreamEndCapture(side, &graph) == CUDA_ERROR_ILLEGAL_STATE);  // it did not begin there
  CHECK(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
  CHECK(status_of(side) == CU_STREAM_CAPTURE_STATUS_NONE && cuEventQuery(event) == CUDA_SUCCESS);
  CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS && cuEventRecord(event, stream) == CUDA_SUCCESS);
  CHECK(cuEventQuery(event) == CUDA_ERROR_CAPTURED_EVENT);
  CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST(a_relaxed_thread_may) {
  CUstream stream;
  CUgraph graph;
  int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  start();
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  CHECK(cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS && mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS && mode == CU_STREAM_CAPTURE_MODE_RELAXED);
  CHECK(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
}

static void *wait_elsewhere(void *stream) {
  CUgraph graph;
  start();
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  return NULL;
}

TEST(a_thread_local_capture_binds_its_thread) {
  CUstream stream;
  CUgraph graph;
  pthread_t thread;
  start();
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS);
  CHECK(pthread_create(&thread, NULL, wait_elsewhere, stream) == 0 && pthread_join(thread, NULL) == 0);
  CHECK(cuCtxSynchronize() == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  CHECK(cuStreamDestroy_v2(stream) == CUDA_SUCCESS);
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
}

TEST(contexts_and_code_take_memory, "MEMPROF_SIM_CONTEXT", "300m", "MEMPROF_SIM_MEMORY", "1g") {
  CUcontext context;
  CUmodule module;
  CUlibrary library;
  CUfunction function;
  CHECK(start() == (1024 - 300) * MiB);
  CHECK(cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS && free_now() == 424 * MiB);
  CHECK(cuCtxDestroy_v2(context) == CUDA_SUCCESS && free_now() == 724 * MiB);
  CHECK(cuModuleLoadData(&module, "simcuda:4194304+2097152") == CUDA_SUCCESS && free_now() == 720 * MiB);
  CHECK(cuModuleGetFunction(&function, module, "f") == CUDA_SUCCESS && free_now() == 718 * MiB);
  CHECK(cuModuleGetFunction(&function, module, "g") == CUDA_SUCCESS && free_now() == 718 * MiB);
  CHECK(cuModuleUnload(module) == CUDA_SUCCESS && free_now() == 724 * MiB);
  CHECK(cuModuleLoadData(&module, "an image of a real compiler") == CUDA_SUCCESS && free_now() == 724 * MiB);
  CHECK(cuLibraryLoadData(&library, "simcuda:0+6291456", NULL, NULL, 0, NULL, NULL, 0) == CUDA_SUCCESS && free_now() == 724 * MiB);
  CHECK(cuLibraryGetKernel(&function, library, "f") == CUDA_SUCCESS && free_now() == 724 * MiB);
  CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == CUDA_SUCCESS && free_now() == 718 * MiB);
  CHECK(cuLibraryUnload(library) == CUDA_SUCCESS && free_now() == 724 * MiB);
  CHECK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 16 * MiB) == CUDA_SUCCESS && free_now() == 708 * MiB);
  CHECK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 8 * MiB) == CUDA_SUCCESS && free_now() == 716 * MiB);
}

TEST(pools_and_arrays) {
  const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  const CUDA_ARRAY_DESCRIPTOR wanted = {.Width = 512, .Height = 256, .Format = 0x20, .NumChannels = 2};
  CUmemoryPool pool;
  CUdeviceptr addr;
  CUarray array;
  const size_t all = start();
  CHECK(cuMemPoolCreate(&pool, &props) == CUDA_SUCCESS);
  CHECK(cuMemAllocFromPoolAsync(&addr, 4 * MiB, pool, NULL) == CUDA_SUCCESS && free_now() == all - 4 * MiB);
  CHECK(cuMemFree_v2(addr) == CUDA_SUCCESS && cuMemPoolDestroy(pool) == CUDA_SUCCESS);
  CHECK(cuArrayCreate_v2(&array, &wanted) == CUDA_SUCCESS && free_now() == all - MiB);
  CHECK(cuArrayDestroy(array) == CUDA_SUCCESS && free_now() == all);
}

// Each device has two locality domains, and what is in one is memory of the device.
TEST(locality_domains) {
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN, 1 << 8}};
  CUmemGenericAllocationHandle handle;
  const size_t all = start();
  CHECK(cuMemCreate(&handle, 4 * MiB, &prop, 0) == CUDA_SUCCESS && free_now() == all - 4 * MiB);
  CHECK(cuMemRelease(handle) == CUDA_SUCCESS && free_now() == all);
  prop.location.id = 2 << 8;  // there is no third
  CHECK(cuMemCreate(&handle, 4 * MiB, &prop, 0) == CUDA_ERROR_INVALID_DEVICE);
  prop.location.id = 1;  // nor a second device
  CHECK(cuMemCreate(&handle, 4 * MiB, &prop, 0) == CUDA_ERROR_INVALID_DEVICE);
}

TEST(attributes_of_pointers) {
  CUdeviceptr addr = 0, first = 0;
  CUcontext context = NULL;
  size_t size = 0;
  int on_host = 0, type = 0;
  start();
  CHECK(cuMemAlloc_v2(&addr, 3 * MiB) == CUDA_SUCCESS);
  CHECK(cuPointerGetAttribute(&type, 2, addr + 5) == CUDA_SUCCESS && type == 2);
  CHECK(cuPointerGetAttribute(&first, 11, addr + 5) == CUDA_SUCCESS && first == addr);
  CHECK(cuPointerGetAttribute(&size, 12, addr + 5) == CUDA_SUCCESS && size == 4 * MiB);
  CHECK(cuPointerGetAttribute(&context, 1, addr) == CUDA_SUCCESS && context != NULL);
  CHECK(cuPointerGetAttribute(&type, 2, (CUdeviceptr)(uintptr_t)&on_host) == CUDA_ERROR_INVALID_VALUE);
}

// A program of CUDA 11 passes four arguments to what it is given.
TEST(the_variant_a_version_means) {
  void *four = NULL, *five = NULL, *ordered = NULL, *of_thread = NULL;
  CHECK(cuGetProcAddress("cuGetProcAddress", &four, 11030, 0) == CUDA_SUCCESS);
  CHECK(cuGetProcAddress_v2("cuGetProcAddress", &five, 12000, 0, NULL) == CUDA_SUCCESS);
  CHECK(four == (void *)cuGetProcAddress && five == (void *)cuGetProcAddress_v2);
  CHECK(cuGetProcAddress("cuMemAllocAsync", &ordered, 12000, 0) == CUDA_SUCCESS);
  CHECK(cuGetProcAddress("cuMemAllocAsync", &of_thread, 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) == CUDA_SUCCESS);
  CHECK(ordered != NULL && of_thread != NULL && ordered != of_thread);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
