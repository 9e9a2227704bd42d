// loads.c - calls by which the driver loads code or sets limits, and takes memory of the device for it: see
// device/overhead.h.
//
// Modules may be loaded lazily: then memory is taken when a function is first looked up or launched.
// Libraries look up the same function before each of its launches. Only the first lookup is measured:
// asking the driver how much is in use takes microseconds.
#include "base/hook.h"
#include "device/captures.h"
#include "device/driver.h"
#include "device/overhead.h"
#include "device/own_calls.h"
#include "interpose/interpose.h"
#include "spool/spool.h"
#include "watch/code.h"

enum {
  SET_LIMIT,
  LOAD,
  LOAD_DATA,
  LOAD_DATA_EX,
  LOAD_FAT_BINARY,
  UNLOAD,
  GET_FUNCTION,
  LIBRARY_LOAD_DATA,
  LIBRARY_LOAD_FILE,
  LIBRARY_UNLOAD,
  LIBRARY_GET_MODULE,
  LIBRARY_GET_KERNEL,
  KERNEL_GET_FUNCTION,
  FUNCTION_LOAD,
};
#define CALL(which) (&(struct call){.entry = &interpose_loads[which], .from = __builtin_return_address(0)})

// A call and its window. It is no allocation itself, so allocations within it are recorded.
struct load {
  const struct call *call;
  struct overhead window;
};

static void *load_begin(struct load *load, struct call *call) {
  load->call = call;
  overhead_begin(&load->window);
  return entry_real(call->entry);
}

static cuda_error load_end(const struct load *load, cuda_error error, uint32_t context) {
  overhead_end(&load->window, context);
  return error;
}

// The end of a call that made a handle of code.
static cuda_error loaded(const struct load *load, cuda_error error, const char *what, const void *image, const char *path, void *const *made) {
  uint32_t context = 0;
  // A library may be loaded before there is a context.
  if (error == CUDA_OK && hook_on()) {
    context = code_context(what, image, path, load->call->from);
    code_remember(*made, context);
  }
  return load_end(load, error, context);
}

// Whether a lookup is the first one of a handle and may load code. During a capture nothing can be measured,
// so the first lookup after it counts.
static bool may_load(struct code_use *use) {
  const struct driver *driver = hook_on() && !own_calls() && !capturing() ? driver_get() : NULL;
  return driver != NULL && driver->context_device(&use->device) == DRIVER_OK && code_first(use);
}

// A call that looks something up in a handle, and its window if it may load code.
struct ask {
  struct code_use use;
  bool first;
  struct overhead window;
};

static void *ask_begin(struct ask *ask, int which, const void *handle, const char *name) {
  ask->use = (struct code_use){handle, -1, name};
  ask->first = may_load(&ask->use);
  if (ask->first) overhead_begin(&ask->window);
  return entry_real(&interpose_loads[which]);
}

static void derive(cuda_error error, void *const *made, const void *of) {
  if (error == CUDA_OK && *made != of && hook_on()) code_derive(*made, of);
}

static cuda_error ask_end(const struct ask *ask, cuda_error error) {
  if (ask->first && error != CUDA_OK) code_undo(&ask->use);  // it may be asked again when there is memory
  if (ask->first) overhead_end(&ask->window, code_of(ask->use.handle));
  return error;
}

// The same for a call that made one handle of another.
static cuda_error ask_end_with(const struct ask *ask, cuda_error error, void *const *made) {
  derive(error, made, ask->use.handle);
  return ask_end(ask, error);
}

EXPORT cuda_error cuCtxSetLimit(int limit, size_t value) {
  struct load load;
  cuda_error (*real)(int, size_t) = load_begin(&load, CALL(SET_LIMIT));
  return load_end(&load, real == NULL ? CUDA_NOT_FOUND : real(limit, value), spool_string("what=context\tname=limit"));
}

EXPORT cuda_error cuModuleLoad(void **module, const char *path) {
  struct load load;
  cuda_error (*real)(void **, const char *) = load_begin(&load, CALL(LOAD));
  return loaded(&load, real == NULL ? CUDA_NOT_FOUND : real(module, path), "module", NULL, path, module);
}

EXPORT cuda_error cuModuleLoadData(void **module, const void *image) {
  struct load load;
  cuda_error (*real)(void **, const void *) = load_begin(&load, CALL(LOAD_DATA));
  return loaded(&load, real == NULL ? CUDA_NOT_FOUND : real(module, image), "module", image, NULL, module);
}

EXPORT cuda_error cuModuleLoadDataEx(void **module, const void *image, unsigned count, void *options, void **values) {
  struct load load;
  cuda_error (*real)(void **, const void *, unsigned, void *, void **) = load_begin(&load, CALL(LOAD_DATA_EX));
  return loaded(&load, real == NULL ? CUDA_NOT_FOUND : real(module, image, count, options, values), "module", image, NULL, module);
}

EXPORT cuda_error cuModuleLoadFatBinary(void **module, const void *image) {
  struct load load;
  cuda_error (*real)(void **, const void *) = load_begin(&load, CALL(LOAD_FAT_BINARY));
  return loaded(&load, real == NULL ? CUDA_NOT_FOUND : real(module, image), "module", image, NULL, module);
}

static cuda_error unload(struct call *call, void *code) {
  struct load load;
  cuda_error (*real)(void *) = load_begin(&load, call);
  return load_end(&load, real == NULL ? CUDA_NOT_FOUND : real(code), code_of(code));
}

EXPORT cuda_error cuModuleUnload(void *module) { return unload(CALL(UNLOAD), module); }
EXPORT cuda_error cuLibraryUnload(void *library) { return unload(CALL(LIBRARY_UNLOAD), library); }

EXPORT cuda_error cuModuleGetFunction(void **function, void *module, const char *name) {
  struct ask ask;
  cuda_error (*real)(void **, void *, const char *) = ask_begin(&ask, GET_FUNCTION, module, name);
  return ask_end_with(&ask, real == NULL ? CUDA_NOT_FOUND : real(function, module, name), function);
}

typedef cuda_error library_load(void **library, const void *source, void *options, void **values, unsigned count, void *library_options,
                                void **library_values, unsigned library_count);

EXPORT cuda_error cuLibraryLoadData(void **library, const void *image, void *options, void **values, unsigned count, void *library_options,
                                    void **library_values, unsigned library_count) {
  struct load load;
  library_load *real = load_begin(&load, CALL(LIBRARY_LOAD_DATA));
  const cuda_error error =
      real == NULL ? CUDA_NOT_FOUND : real(library, image, options, values, count, library_options, library_values, library_count);
  return loaded(&load, error, "library", image, NULL, library);
}

EXPORT cuda_error cuLibraryLoadFromFile(void **library, const char *path, void *options, void **values, unsigned count, void *library_options,
                                        void **library_values, unsigned library_count) {
  struct load load;
  library_load *real = load_begin(&load, CALL(LIBRARY_LOAD_FILE));
  const cuda_error error =
      real == NULL ? CUDA_NOT_FOUND : real(library, path, options, values, count, library_options, library_values, library_count);
  return loaded(&load, error, "library", NULL, path, library);
}

EXPORT cuda_error cuLibraryGetModule(void **module, void *library) {
  struct ask ask;
  cuda_error (*real)(void **, void *) = ask_begin(&ask, LIBRARY_GET_MODULE, library, NULL);
  return ask_end_with(&ask, real == NULL ? CUDA_NOT_FOUND : real(module, library), module);
}

// Loads nothing: a library belongs to no context, and a kernel is loaded when it is used.
EXPORT cuda_error cuLibraryGetKernel(void **kernel, void *library, const char *name) {
  cuda_error (*real)(void **, void *, const char *) = entry_real(&interpose_loads[LIBRARY_GET_KERNEL]);
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(kernel, library, name);
  derive(error, kernel, library);
  return error;
}

EXPORT cuda_error cuKernelGetFunction(void **function, void *kernel) {
  struct ask ask;
  cuda_error (*real)(void **, void *) = ask_begin(&ask, KERNEL_GET_FUNCTION, kernel, NULL);
  return ask_end_with(&ask, real == NULL ? CUDA_NOT_FOUND : real(function, kernel), function);
}

EXPORT cuda_error cuFuncLoad(void *function) {
  struct ask ask;
  cuda_error (*real)(void *) = ask_begin(&ask, FUNCTION_LOAD, function, NULL);
  return ask_end(&ask, real == NULL ? CUDA_NOT_FOUND : real(function));
}

#define DRIVER(function, base, version) {.name = #function, .ours = function, .asked = #base, .since = version}
struct entry interpose_loads[] = {
    [SET_LIMIT] = DRIVER(cuCtxSetLimit, cuCtxSetLimit, 3010),
    [LOAD] = DRIVER(cuModuleLoad, cuModuleLoad, 2000),
    [LOAD_DATA] = DRIVER(cuModuleLoadData, cuModuleLoadData, 2000),
    [LOAD_DATA_EX] = DRIVER(cuModuleLoadDataEx, cuModuleLoadDataEx, 2010),
    [LOAD_FAT_BINARY] = DRIVER(cuModuleLoadFatBinary, cuModuleLoadFatBinary, 2000),
    [UNLOAD] = DRIVER(cuModuleUnload, cuModuleUnload, 2000),
    [GET_FUNCTION] = DRIVER(cuModuleGetFunction, cuModuleGetFunction, 2000),
    [LIBRARY_LOAD_DATA] = DRIVER(cuLibraryLoadData, cuLibraryLoadData, 12000),
    [LIBRARY_LOAD_FILE] = DRIVER(cuLibraryLoadFromFile, cuLibraryLoadFromFile, 12000),
    [LIBRARY_UNLOAD] = DRIVER(cuLibraryUnload, cuLibraryUnload, 12000),
    [LIBRARY_GET_MODULE] = DRIVER(cuLibraryGetModule, cuLibraryGetModule, 12000),
    [LIBRARY_GET_KERNEL] = DRIVER(cuLibraryGetKernel, cuLibraryGetKernel, 12000),
    [KERNEL_GET_FUNCTION] = DRIVER(cuKernelGetFunction, cuKernelGetFunction, 12000),
    [FUNCTION_LOAD] = DRIVER(cuFuncLoad, cuFuncLoad, 12040),
    {0},
};

INTERPOSED(interpose_loads);
