// simcuda.h - the part of the CUDA driver's and runtime's ABI that the simulated GPU
// implements, and functions for tests.
//
// Values, layouts and names are those of NVIDIA's cuda.h, so programs built against the real
// header, and programs that look symbols up at run time, work unchanged.
//
// Environment, read at the first call of the process:
//   MEMPROF_SIM_MEMORY       bytes of device memory, default 80 GiB; k, m, g suffixes are binary
//   MEMPROF_SIM_DEVICES      number of devices, default 1, at most 16
//   MEMPROF_SIM_GRANULARITY  bytes, a power of two of at least 64 KiB, default 2 MiB
//   MEMPROF_SIM_CONTEXT      bytes of device memory that a context uses, default 0; suffixes as above
//   MEMPROF_SIM_FAIL         "cuMemCreate:3,cuMemMap:7+,cuInit:1=100": see inject.c
//   MEMPROF_SIM_LOG          file that gets one line for each call: see log.c
#ifndef SIMCUDA_H
#define SIMCUDA_H

#include <stddef.h>
#include <stdint.h>

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUmod_st *CUmodule;
typedef struct CUlib_st *CUlibrary;
typedef struct CUfunc_st *CUfunction;  // a CUkernel, too
typedef struct CUarray_st *CUarray;
typedef struct CUmemPoolHandle_st *CUmemoryPool;

typedef enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_DEINITIALIZED = 4,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_MAP_FAILED = 205,
  CUDA_ERROR_UNMAP_FAILED = 206,
  CUDA_ERROR_ALREADY_MAPPED = 208,
  CUDA_ERROR_NOT_MAPPED = 211,
  CUDA_ERROR_OPERATING_SYSTEM = 304,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_ILLEGAL_STATE = 401,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
  CUDA_ERROR_PEER_ACCESS_NOT_ENABLED = 705,
  CUDA_ERROR_NOT_PERMITTED = 800,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
  CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
  CUDA_ERROR_CAPTURED_EVENT = 907,
  CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
  CUDA_ERROR_UNKNOWN = 999,
} CUresult;

enum {
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING = 41,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102,
  CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED = 103,
  CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED = 110,
  CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED = 115,
};

enum { CU_MEM_ALLOCATION_TYPE_PINNED = 1, CU_MEM_ALLOCATION_TYPE_MANAGED = 2 };
enum { CU_MEM_LOCATION_TYPE_DEVICE = 1, CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN = 6 };
enum { CU_MEM_HANDLE_TYPE_NONE = 0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1 };
enum {
  CU_MEM_ACCESS_FLAGS_PROT_NONE = 0,
  CU_MEM_ACCESS_FLAGS_PROT_READ = 1,
  CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3,
};
enum { CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED = 1 };
enum { CU_STREAM_NON_BLOCKING = 1 };
enum { CU_EVENT_DISABLE_TIMING = 2 };
enum {
  CU_STREAM_CAPTURE_STATUS_NONE = 0,
  CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
  CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2,
};
enum {
  CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
  CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
  CU_STREAM_CAPTURE_MODE_RELAXED = 2,
};
enum { CU_GET_PROC_ADDRESS_SUCCESS = 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1 };
enum { CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM = 2 };
enum { CU_LIMIT_MALLOC_HEAP_SIZE = 2 };

typedef struct {
  int type;  // CUmemLocationType
  int id;    // of a locality domain: the device in the lowest byte, the domain in the next
} CUmemLocation;

typedef struct {
  int type;                  // CUmemAllocationType
  int requestedHandleTypes;  // CUmemAllocationHandleType
  CUmemLocation location;
  void *win32HandleMetaData;
  struct {
    unsigned char compressionType;
    unsigned char gpuDirectRDMACapable;
    unsigned short usage;
    unsigned char reserved[4];
  } allocFlags;
} CUmemAllocationProp;

typedef struct {
  CUmemLocation location;
  int flags;  // CUmemAccess_flags
} CUmemAccessDesc;

typedef struct {
  int allocType;
  int handleTypes;
  CUmemLocation location;
  void *win32SecurityAttributes;
  size_t maxSize;
  unsigned short usage;
  unsigned char reserved[54];
} CUmemPoolProps;

typedef struct {
  size_t Width, Height;
  int Format;
  unsigned int NumChannels;
} CUDA_ARRAY_DESCRIPTOR;

typedef struct {
  size_t Width, Height, Depth;
  int Format;
  unsigned int NumChannels, Flags;
} CUDA_ARRAY3D_DESCRIPTOR;

_Static_assert(sizeof(CUmemPoolProps) == 88, "layout of cuda.h");
_Static_assert(sizeof(CUDA_ARRAY3D_DESCRIPTOR) == 40, "layout of cuda.h");
_Static_assert(sizeof(CUmemAllocationProp) == 32, "layout of cuda.h");
_Static_assert(offsetof(CUmemAllocationProp, win32HandleMetaData) == 16, "layout of cuda.h");
_Static_assert(offsetof(CUmemAllocationProp, allocFlags) == 24, "layout of cuda.h");
_Static_assert(sizeof(CUmemAccessDesc) == 12, "layout of cuda.h");

// Holds `stream`: work queued there from now on does not finish, events recorded there are "not
// ready", and synchronising waits. Returns 0, or -1 if 64 streams are held already.
int simcuda_hold_stream(CUstream stream);

// Holds `stream` until a call waits for its work, as if the host were ahead of the device. Returns 0, or -1 as above.
int simcuda_lag_stream(CUstream stream);

// How many threads wait in a call for work that does not finish.
int simcuda_waiting(void);

// Releases `stream`: all work queued there finishes. Returns 0, or -1 if it was not held.
int simcuda_release_stream(CUstream stream);

// Queues work on `stream` that reads, or writes, [addr, addr + bytes). If memory changes under it before it has finished, the
// program ends: see work.c. Returns 0, or -1 if there is no such stream or memory.
int simcuda_reads(CUstream stream, CUdeviceptr addr, uint64_t bytes);
int simcuda_writes(CUstream stream, CUdeviceptr addr, uint64_t bytes);

// Work has failed with that error, as an illegal address: from now on all calls that reach a context fail with it.
void simcuda_fault(CUresult error);

// How many calls so far had to wait for work of a stream.
uint64_t simcuda_waits(void);

#endif
