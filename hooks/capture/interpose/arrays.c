// arrays.c - pitched memory and arrays, recorded with the bytes of their elements.
//
// What the driver adds for alignment is not known, but for the pitch. An array has no address that a program
// sees: its handle stands for it in the trace.
#include "interpose/interpose.h"

enum {
  PITCH, CU_PITCH, PITCHED_3D, FREE_ARRAY, CU_FREE_ARRAY, FREE_MIPMAPPED, CU_FREE_MIPMAPPED,
  ARRAY, ARRAY_3D, MIPMAPPED, CU_ARRAY, CU_ARRAY_3D, CU_MIPMAPPED,
};
#define CALL(which) (&(struct call){.entry = &interpose_arrays[which], .from = __builtin_return_address(0)})

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

EXPORT cuda_error cudaMallocPitch(void **ptr, size_t *pitch, size_t width, size_t height) {
  struct call *call = CALL(PITCH);
  cuda_error (*real)(void **, size_t *, size_t, size_t) = call_enter(call);
  cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(ptr, pitch, width, height);
  if (call_again(call, error, width * height)) error = real(ptr, pitch, width, height);
  allocated(call, error, error == CUDA_OK ? *ptr : NULL, error == CUDA_OK ? *pitch * height : 0);
  return error;
}

EXPORT cuda_error cuMemAllocPitch_v2(void **ptr, size_t *pitch, size_t width, size_t height, unsigned element) {
  struct call *call = CALL(CU_PITCH);
  cuda_error (*real)(void **, size_t *, size_t, size_t, unsigned) = call_enter(call);
  cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(ptr, pitch, width, height, element);
  if (call_again(call, error, width * height)) error = real(ptr, pitch, width, height, element);
  allocated(call, error, error == CUDA_OK ? *ptr : NULL, error == CUDA_OK ? *pitch * height : 0);
  return error;
}

EXPORT cuda_error cudaMalloc3D(struct pitched *pitched, struct extent extent) {
  struct call *call = CALL(PITCHED_3D);
  cuda_error (*real)(struct pitched *, struct extent) = call_enter(call);
  cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(pitched, extent);
  if (call_again(call, error, extent.width * rows(extent))) error = real(pitched, extent);
  allocated(call, error, error == CUDA_OK ? pitched->ptr : NULL, error == CUDA_OK ? pitched->pitch * rows(extent) : 0);
  return error;
}

EXPORT cuda_error cudaMallocArray(void **array, const struct channels *channels, size_t width, size_t height, unsigned flags) {
  struct call *call = CALL(ARRAY);
  cuda_error (*real)(void **, const struct channels *, size_t, size_t, unsigned) = call_enter(call);
  const size_t bytes = channels == NULL ? 0 : element_bytes(channels) * width * (height == 0 ? 1 : height);
  cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(array, channels, width, height, flags);
  if (call_again(call, error, bytes)) error = real(array, channels, width, height, flags);
  allocated(call, error, error == CUDA_OK ? *array : NULL, bytes);
  return error;
}

EXPORT cuda_error cudaMalloc3DArray(void **array, const struct channels *channels, struct extent extent, unsigned flags) {
  struct call *call = CALL(ARRAY_3D);
  cuda_error (*real)(void **, const struct channels *, struct extent, unsigned) = call_enter(call);
  const size_t bytes = channels == NULL ? 0 : element_bytes(channels) * extent.width * rows(extent);
  cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(array, channels, extent, flags);
  if (call_again(call, error, bytes)) error = real(array, channels, extent, flags);
  allocated(call, error, error == CUDA_OK ? *array : NULL, bytes);
  return error;
}

EXPORT cuda_error cudaMallocMipmappedArray(void **array, const struct channels *channels, struct extent extent, unsigned levels,
                                           unsigned flags) {
  struct call *call = CALL(MIPMAPPED);
  cuda_error (*real)(void **, const struct channels *, struct extent, unsigned, unsigned) = call_enter(call);
  const size_t bytes = channels == NULL ? 0 : all_levels(extent, element_bytes(channels), levels);
  cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(array, channels, extent, levels, flags);
  if (call_again(call, error, bytes)) error = real(array, channels, extent, levels, flags);
  allocated(call, error, error == CUDA_OK ? *array : NULL, bytes);
  return error;
}

EXPORT cuda_error cuArrayCreate_v2(void **array, const struct array *wanted) {
  struct call *call = CALL(CU_ARRAY);
  cuda_error (*real)(void **, const struct array *) = call_enter(call);
  cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(array, wanted);
  const size_t bytes =
      wanted == NULL ? 0 : wanted->width * (wanted->height == 0 ? 1 : wanted->height) * wanted->channels * format_bytes(wanted->format);
  if (call_again(call, error, bytes)) error = real(array, wanted);
  allocated(call, error, error == CUDA_OK ? *array : NULL, bytes);
  return error;
}

static size_t bytes_of(const struct array_3d *wanted, unsigned levels) {
  if (wanted == NULL) return 0;
  return all_levels((struct extent){wanted->width, wanted->height, wanted->depth}, wanted->channels * format_bytes(wanted->format), levels);
}

EXPORT cuda_error cuArray3DCreate_v2(void **array, const struct array_3d *wanted) {
  struct call *call = CALL(CU_ARRAY_3D);
  cuda_error (*real)(void **, const struct array_3d *) = call_enter(call);
  cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(array, wanted);
  if (call_again(call, error, bytes_of(wanted, 1))) error = real(array, wanted);
  allocated(call, error, error == CUDA_OK ? *array : NULL, bytes_of(wanted, 1));
  return error;
}

EXPORT cuda_error cuMipmappedArrayCreate(void **array, const struct array_3d *wanted, unsigned levels) {
  struct call *call = CALL(CU_MIPMAPPED);
  cuda_error (*real)(void **, const struct array_3d *, unsigned) = call_enter(call);
  cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(array, wanted, levels);
  if (call_again(call, error, bytes_of(wanted, levels))) error = real(array, wanted, levels);
  allocated(call, error, error == CUDA_OK ? *array : NULL, bytes_of(wanted, levels));
  return error;
}

EXPORT cuda_error cudaFreeArray(void *array) { return call_release(CALL(FREE_ARRAY), MEMORY_DEVICE, array); }
EXPORT cuda_error cuArrayDestroy(void *array) { return call_release(CALL(CU_FREE_ARRAY), MEMORY_DEVICE, array); }
EXPORT cuda_error cudaFreeMipmappedArray(void *array) { return call_release(CALL(FREE_MIPMAPPED), MEMORY_DEVICE, array); }
EXPORT cuda_error cuMipmappedArrayDestroy(void *array) { return call_release(CALL(CU_FREE_MIPMAPPED), MEMORY_DEVICE, array); }

#define RUNTIME(function) {.name = #function, .ours = function}
#define DRIVER(function, base, version) {.name = #function, .ours = function, .asked = #base, .since = version}
struct entry interpose_arrays[] = {
    [PITCH] = RUNTIME(cudaMallocPitch),
    [CU_PITCH] = DRIVER(cuMemAllocPitch_v2, cuMemAllocPitch, 3020),
    [PITCHED_3D] = RUNTIME(cudaMalloc3D),
    [FREE_ARRAY] = RUNTIME(cudaFreeArray),
    [CU_FREE_ARRAY] = DRIVER(cuArrayDestroy, cuArrayDestroy, 2000),
    [FREE_MIPMAPPED] = RUNTIME(cudaFreeMipmappedArray),
    [CU_FREE_MIPMAPPED] = DRIVER(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000),
    [ARRAY] = RUNTIME(cudaMallocArray),
    [ARRAY_3D] = RUNTIME(cudaMalloc3DArray),
    [MIPMAPPED] = RUNTIME(cudaMallocMipmappedArray),
    [CU_ARRAY] = DRIVER(cuArrayCreate_v2, cuArrayCreate, 3020),
    [CU_ARRAY_3D] = DRIVER(cuArray3DCreate_v2, cuArray3DCreate, 3020),
    [CU_MIPMAPPED] = DRIVER(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000),
    {0},
};

INTERPOSED(interpose_arrays);
