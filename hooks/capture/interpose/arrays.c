// arrays.c - pitched memory and arrays, recorded with the bytes of their elements.
//
// What the driver adds for alignment is not known, but for the pitch. An array has no address that a program
// sees: its handle stands for it in the trace.
#include "interpose/interpose.h"

// cudaExtent, cudaPitchedPtr, cudaChannelFormatDesc, CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR
struct extent {
  size_t width, height, depth;
};
struct pitched {
  void *ptr;
  size_t pitch, width, height;
};
struct channels {
  int bits[4];
  int kind;
};
struct array {
  size_t width, height;
  int format;
  unsigned channels;
};
struct array_3d {
  size_t width, height, depth;
  int format;
  unsigned channels;
  unsigned flags;
};

static size_t rows(struct extent extent) { return (extent.height == 0 ? 1 : extent.height) * (extent.depth == 0 ? 1 : extent.depth); }

static size_t element_bytes(const struct channels *channels) {
  int bits = 0;
  for (int i = 0; i < 4; i++) bits += channels->bits[i];
  return (size_t)(bits + 7) / 8;
}

// Of one channel. Formats that are compressed or planar are taken as one byte.
static size_t format_bytes(int format) {
  switch (format) {
    case 0x02: case 0x09: case 0x10: return 2;  // 16-bit integers, half
    case 0x03: case 0x0a: case 0x20: return 4;  // 32-bit integers, float
    default: return 1;
  }
}

// All levels of a mipmapped array: each is half as large in every dimension.
static size_t all_levels(struct extent extent, size_t element, unsigned levels) {
  size_t sum = 0;
  for (unsigned i = 0; i < levels && i < 32; i++) {
    sum += (extent.width == 0 ? 1 : extent.width) * rows(extent) * element;
    extent = (struct extent){extent.width / 2, extent.height / 2, extent.depth / 2};
  }
  return sum;
}

static void allocated(const struct call *call, cuda_error error, const void *ptr, size_t bytes) {
  if (error == CUDA_OK) call_allocated(call, MEMORY_DEVICE, ptr, bytes, -1, NULL);
  call_leave();
}

static size_t array_bytes(const struct channels *channels, struct extent extent, unsigned levels) {
  return channels == NULL ? 0 : all_levels(extent, element_bytes(channels), levels);
}

static size_t bytes_of(const struct array_3d *wanted, unsigned levels) {
  if (wanted == NULL) return 0;
  return all_levels((struct extent){wanted->width, wanted->height, wanted->depth}, wanted->channels * format_bytes(wanted->format), levels);
}

static size_t flat_bytes_of(const struct array *wanted) {
  if (wanted == NULL) return 0;
  return all_levels((struct extent){wanted->width, wanted->height, 0}, wanted->channels * format_bytes(wanted->format), 1);
}

// ALLOCATES wraps a function that allocates. PARAMETERS and ARGUMENTS are those of the function, in parentheses; wanted are the
// bytes that it asks for, ptr and bytes what it has made.
#define ALLOCATES(function, kind, PARAMETERS, ARGUMENTS, wanted, ptr, bytes)                         \
  WRAPPER(function, PARAMETERS, kind) {                                                              \
    struct call *call = CALL(function);                                                              \
    cuda_error(*real) PARAMETERS = call_enter(call);                                                 \
    cuda_error error = real == NULL ? CUDA_NOT_FOUND : real ARGUMENTS;                               \
    if (call_again(call, error, wanted)) error = real ARGUMENTS;                                     \
    allocated(call, error, error == CUDA_OK ? (ptr) : NULL, error == CUDA_OK ? (size_t)(bytes) : 0); \
    return error;                                                                                    \
  }

ALLOCATES(cudaMallocPitch, RUNTIME, (void **ptr, size_t *pitch, size_t width, size_t height), (ptr, pitch, width, height), width * height, *ptr, *pitch * height)
ALLOCATES(cuMemAllocPitch_v2, DRIVER(cuMemAllocPitch, 3020), (void **ptr, size_t *pitch, size_t width, size_t height, unsigned element), (ptr, pitch, width, height, element), width * height, *ptr, *pitch * height)
ALLOCATES(cudaMalloc3D, RUNTIME, (struct pitched *pitched, struct extent extent), (pitched, extent), extent.width * rows(extent), pitched->ptr, pitched->pitch * rows(extent))
ALLOCATES(cudaMallocArray, RUNTIME, (void **array, const struct channels *channels, size_t width, size_t height, unsigned flags), (array, channels, width, height, flags),
          array_bytes(channels, ((struct extent){width, height, 0}), 1), *array, array_bytes(channels, ((struct extent){width, height, 0}), 1))
ALLOCATES(cudaMalloc3DArray, RUNTIME, (void **array, const struct channels *channels, struct extent extent, unsigned flags), (array, channels, extent, flags),
          array_bytes(channels, extent, 1), *array, array_bytes(channels, extent, 1))
ALLOCATES(cudaMallocMipmappedArray, RUNTIME, (void **array, const struct channels *channels, struct extent extent, unsigned levels, unsigned flags),
          (array, channels, extent, levels, flags), array_bytes(channels, extent, levels), *array, array_bytes(channels, extent, levels))
ALLOCATES(cuArrayCreate_v2, DRIVER(cuArrayCreate, 3020), (void **array, const struct array *wanted), (array, wanted), flat_bytes_of(wanted), *array, flat_bytes_of(wanted))
ALLOCATES(cuArray3DCreate_v2, DRIVER(cuArray3DCreate, 3020), (void **array, const struct array_3d *wanted), (array, wanted), bytes_of(wanted, 1), *array, bytes_of(wanted, 1))
ALLOCATES(cuMipmappedArrayCreate, DRIVER(cuMipmappedArrayCreate, 5000), (void **array, const struct array_3d *wanted, unsigned levels), (array, wanted, levels), bytes_of(wanted, levels), *array, bytes_of(wanted, levels))

WRAPPER(cudaFreeArray, (void *array), RUNTIME) { return call_release(CALL(cudaFreeArray), MEMORY_DEVICE, array); }
WRAPPER(cuArrayDestroy, (void *array), DRIVER(cuArrayDestroy, 2000)) { return call_release(CALL(cuArrayDestroy), MEMORY_DEVICE, array); }
WRAPPER(cudaFreeMipmappedArray, (void *array), RUNTIME) { return call_release(CALL(cudaFreeMipmappedArray), MEMORY_DEVICE, array); }
WRAPPER(cuMipmappedArrayDestroy, (void *array), DRIVER(cuMipmappedArrayDestroy, 5000)) { return call_release(CALL(cuMipmappedArrayDestroy), MEMORY_DEVICE, array); }

