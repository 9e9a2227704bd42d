// module.c - the device memory of code.
//
// An image is the text "simcuda:BYTES+LAZY". Loading a module uses BYTES of its context's device,
// and the first use of one of its functions LAZY more, as with lazy loading. A library uses the
// same on each device: BYTES on the current device when it is loaded, BYTES on another device at
// the first use there, and LAZY at the first use on each. Any other image uses no memory.
#define _GNU_SOURCE
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CUfunc_st {
  struct CUmod_st *module;
};

struct CUmod_st {
  struct CUctx_st *device;  // into which it was loaded; NULL for a library loaded before there was a context
  bool library;
  uint64_t bytes, lazy;
  struct sim_extent *loaded, *used[SIM_MAX_DEVICES];
  struct CUfunc_st function;  // stands for every function of the module
};

CUresult sim_charge(struct CUctx_st *device, uint64_t bytes, struct sim_extent **extent) {
  return bytes == 0 ? CUDA_SUCCESS : sim_extent_create(device, bytes, extent);
}

void sim_uncharge(struct sim_extent **extent) {
  if (*extent == NULL) return;
  (*extent)->handles = 0;
  sim_extent_release(*extent);
  *extent = NULL;
}

static CUresult load(const char *image, bool library, struct CUmod_st **out) {
  unsigned long long bytes = 0, lazy = 0;
  if (image == NULL || out == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (strncmp(image, "simcuda:", 8) == 0) sscanf(image + 8, "%llu+%llu", &bytes, &lazy);
  struct CUmod_st *module = calloc(1, sizeof *module);
  if (module == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  module->device = sim_current();
  CUresult result = module->device != NULL ? sim_charge(module->device, bytes, &module->loaded) : CUDA_SUCCESS;
  if (result != CUDA_SUCCESS) {
    free(module);
    return result;
  }
  module->library = library;
  module->bytes = bytes;
  module->lazy = lazy;
  module->function.module = module;
  *out = module;
  return CUDA_SUCCESS;
}

static CUresult use(struct CUmod_st *module) {
  struct CUctx_st *device = module->library ? sim_current() : module->device;
  if (module->bytes + module->lazy == 0) return CUDA_SUCCESS;
  if (device == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  struct sim_extent **used = &module->used[device->ordinal];
  return *used != NULL ? CUDA_SUCCESS : sim_charge(device, module->lazy + (device == module->device ? 0 : module->bytes), used);
}

static void unload(struct CUmod_st *module) {
  sim_uncharge(&module->loaded);
  for (int i = 0; i < SIM_MAX_DEVICES; i++) sim_uncharge(&module->used[i]);
  free(module);
}

static CUresult load_call(const char *name, CUmodule *module, const void *image, bool anywhere) {
  CUresult result = sim_enter(name, true);
  if (result == CUDA_SUCCESS && !anywhere && sim_current() == NULL) result = CUDA_ERROR_INVALID_CONTEXT;
  if (result == CUDA_SUCCESS) result = load(image, anywhere, module);
  return sim_leave(name, result, "%s", "");
}

SIM_API CUresult cuModuleLoadData(CUmodule *module, const void *image) { return load_call("cuModuleLoadData", module, image, false); }
SIM_API CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image) { return load_call("cuModuleLoadFatBinary", module, image, false); }
SIM_API CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, void *options, void **values) {
  (void)count, (void)options, (void)values;
  return load_call("cuModuleLoadDataEx", module, image, false);
}

SIM_API CUresult cuLibraryLoadData(CUlibrary *library, const void *image, void *options, void **values, unsigned int count,
                                   void *library_options, void **library_values, unsigned int library_count) {
  (void)options, (void)values, (void)count, (void)library_options, (void)library_values, (void)library_count;
  CUmodule module = NULL;
  CUresult result = load_call("cuLibraryLoadData", &module, image, true);
  if (result == CUDA_SUCCESS) *library = (CUlibrary)module;
  return result;
}

static CUresult unload_call(const char *name, CUmodule module) {
  CUresult result = sim_enter(name, true);
  if (result == CUDA_SUCCESS && module == NULL) result = CUDA_ERROR_INVALID_HANDLE;
  if (result == CUDA_SUCCESS) unload(module);
  return sim_leave(name, result, "%s", "");
}

SIM_API CUresult cuModuleUnload(CUmodule module) { return unload_call("cuModuleUnload", module); }
SIM_API CUresult cuLibraryUnload(CUlibrary library) { return unload_call("cuLibraryUnload", (CUmodule)library); }

static CUresult use_call(const char *name, CUmodule module, const void *out) {
  CUresult result = sim_enter(name, true);
  if (result == CUDA_SUCCESS && (module == NULL || out == NULL)) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) result = use(module);
  return sim_leave(name, result, "%s", "");
}

SIM_API CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  CUresult result = use_call("cuModuleGetFunction", module, name);
  if (result == CUDA_SUCCESS) *function = &module->function;
  return result;
}

SIM_API CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library) {
  CUresult result = use_call("cuLibraryGetModule", (CUmodule)library, module);
  if (result == CUDA_SUCCESS) *module = (CUmodule)library;
  return result;
}

// A kernel of a library is loaded at its first use.
SIM_API CUresult cuLibraryGetKernel(CUfunction *kernel, CUlibrary library, const char *name) {
  CUresult result = sim_enter("cuLibraryGetKernel", true);
  if (result == CUDA_SUCCESS && (kernel == NULL || library == NULL || name == NULL)) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) *kernel = &((CUmodule)library)->function;
  return sim_leave("cuLibraryGetKernel", result, "%s", "");
}

SIM_API CUresult cuKernelGetFunction(CUfunction *function, CUfunction kernel) {
  CUresult result = use_call("cuKernelGetFunction", kernel != NULL ? kernel->module : NULL, function);
  if (result == CUDA_SUCCESS) *function = kernel;
  return result;
}

SIM_API CUresult cuFuncLoad(CUfunction function) { return use_call("cuFuncLoad", function != NULL ? function->module : NULL, ""); }

// Launches run nothing.
SIM_API CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
                                unsigned int block_y, unsigned int block_z, unsigned int shared, CUstream stream, void **parameters,
                                void **extra) {
  (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y, (void)block_z, (void)shared, (void)stream;
  (void)parameters, (void)extra;
  return use_call("cuLaunchKernel", function != NULL ? function->module : NULL, "");
}

// The heap for kernels is allocated when its size is set.
SIM_API CUresult cuCtxSetLimit(int limit, size_t value) {
  static struct sim_extent *heaps[SIM_MAX_DEVICES];
  CUresult result = sim_enter("cuCtxSetLimit", true);
  if (result == CUDA_SUCCESS && sim_current() == NULL) result = CUDA_ERROR_INVALID_CONTEXT;
  if (result == CUDA_SUCCESS && limit == CU_LIMIT_MALLOC_HEAP_SIZE) {
    sim_uncharge(&heaps[sim_current()->ordinal]);
    result = sim_charge(sim_current(), value, &heaps[sim_current()->ordinal]);
  }
  return sim_leave("cuCtxSetLimit", result, "limit=%d value=%zu", limit, value);
}
