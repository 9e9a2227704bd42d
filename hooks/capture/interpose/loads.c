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

static void *ask_begin(struct ask *ask, struct entry *entry, const void *handle, const char *name) {
  ask->use = (struct code_use){handle, -1, name};
  ask->first = may_load(&ask->use);
  if (ask->first) overhead_begin(&ask->window);
  return entry_real(entry);
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

WRAPPER(cuCtxSetLimit, (int limit, size_t value), DRIVER(cuCtxSetLimit, 3010)) {
  struct load load;
  cuda_error (*real)(int, size_t) = load_begin(&load, CALL(cuCtxSetLimit));
  return load_end(&load, real == NULL ? CUDA_NOT_FOUND : real(limit, value), spool_string("what=context\tname=limit"));
}

// LOADS wraps a function that loads *code, a "module" or "library", from an image or a file. PARAMETERS and ARGUMENTS are those of
// the function, in parentheses.
#define LOADS(function, kind, PARAMETERS, ARGUMENTS, what, image, path, code)                      \
  WRAPPER(function, PARAMETERS, kind) {                                                            \
    struct load load;                                                                              \
    cuda_error(*real) PARAMETERS = load_begin(&load, CALL(function));                              \
    return loaded(&load, real == NULL ? CUDA_NOT_FOUND : real ARGUMENTS, what, image, path, code); \
  }

#define SETTINGS_PARAMETERS void *options, void **values, unsigned count, void *library_options, void **library_values, unsigned library_count
#define SETTINGS options, values, count, library_options, library_values, library_count
LOADS(cuModuleLoad, DRIVER(cuModuleLoad, 2000), (void **module, const char *path), (module, path), "module", NULL, path, module)
LOADS(cuModuleLoadData, DRIVER(cuModuleLoadData, 2000), (void **module, const void *image), (module, image), "module", image, NULL, module)
LOADS(cuModuleLoadDataEx, DRIVER(cuModuleLoadDataEx, 2010), (void **module, const void *image, unsigned count, void *options, void **values), (module, image, count, options, values), "module", image, NULL, module)
LOADS(cuModuleLoadFatBinary, DRIVER(cuModuleLoadFatBinary, 2000), (void **module, const void *image), (module, image), "module", image, NULL, module)
LOADS(cuLibraryLoadData, DRIVER(cuLibraryLoadData, 12000), (void **library, const void *image, SETTINGS_PARAMETERS), (library, image, SETTINGS), "library", image, NULL, library)
LOADS(cuLibraryLoadFromFile, DRIVER(cuLibraryLoadFromFile, 12000), (void **library, const char *path, SETTINGS_PARAMETERS), (library, path, SETTINGS), "library", NULL, path, library)

static cuda_error unload(struct call *call, void *code) {
  struct load load;
  cuda_error (*real)(void *) = load_begin(&load, call);
  return load_end(&load, real == NULL ? CUDA_NOT_FOUND : real(code), code_of(code));
}

WRAPPER(cuModuleUnload, (void *module), DRIVER(cuModuleUnload, 2000)) { return unload(CALL(cuModuleUnload), module); }
WRAPPER(cuLibraryUnload, (void *library), DRIVER(cuLibraryUnload, 12000)) { return unload(CALL(cuLibraryUnload), library); }

WRAPPER(cuModuleGetFunction, (void **function, void *module, const char *name), DRIVER(cuModuleGetFunction, 2000)) {
  struct ask ask;
  cuda_error (*real)(void **, void *, const char *) = ask_begin(&ask, &cuModuleGetFunction_entry, module, name);
  return ask_end_with(&ask, real == NULL ? CUDA_NOT_FOUND : real(function, module, name), function);
}

WRAPPER(cuLibraryGetModule, (void **module, void *library), DRIVER(cuLibraryGetModule, 12000)) {
  struct ask ask;
  cuda_error (*real)(void **, void *) = ask_begin(&ask, &cuLibraryGetModule_entry, library, NULL);
  return ask_end_with(&ask, real == NULL ? CUDA_NOT_FOUND : real(module, library), module);
}

// Loads nothing: a library belongs to no context, and a kernel is loaded when it is used.
WRAPPER(cuLibraryGetKernel, (void **kernel, void *library, const char *name), DRIVER(cuLibraryGetKernel, 12000)) {
  cuda_error (*real)(void **, void *, const char *) = entry_real(&cuLibraryGetKernel_entry);
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(kernel, library, name);
  derive(error, kernel, library);
  return error;
}

WRAPPER(cuKernelGetFunction, (void **function, void *kernel), DRIVER(cuKernelGetFunction, 12000)) {
  struct ask ask;
  cuda_error (*real)(void **, void *) = ask_begin(&ask, &cuKernelGetFunction_entry, kernel, NULL);
  return ask_end_with(&ask, real == NULL ? CUDA_NOT_FOUND : real(function, kernel), function);
}

WRAPPER(cuFuncLoad, (void *function), DRIVER(cuFuncLoad, 12040)) {
  struct ask ask;
  cuda_error (*real)(void *) = ask_begin(&ask, &cuFuncLoad_entry, function, NULL);
  return ask_end(&ask, real == NULL ? CUDA_NOT_FOUND : real(function));
}

