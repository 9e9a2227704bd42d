// lookup.c - functions by which programs look up functions of the driver without dlsym.
//
// cuGetProcAddress takes a name without the suffix of its variant, and the CUDA version that the caller was
// written for. Both together determine the variant.
#include "base/hook.h"
#include "interpose/interpose.h"

enum { LOOKUP, LOOKUP_V2, RUNTIME, RUNTIME_PTSZ, RUNTIME_VERSION, RUNTIME_VERSION_PTSZ };
#define LOOKUPS interpose_lookups

static void exchange(cuda_error error, const char *name, int version, uint64_t flags, void **found) {
  if (error == CUDA_OK && found != NULL && *found != NULL && hook_on()) *found = entry_exchange_asked(name, version, flags, *found);
}

EXPORT cuda_error cuGetProcAddress(const char *name, void **found, int version, uint64_t flags) {
  cuda_error (*real)(const char *, void **, int, uint64_t) = entry_real(&LOOKUPS[LOOKUP]);
  if (real == NULL) return CUDA_NOT_FOUND;
  const cuda_error error = real(name, found, version, flags);
  exchange(error, name, version, flags, found);
  return error;
}

EXPORT cuda_error cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, int *status) {
  cuda_error (*real)(const char *, void **, int, uint64_t, int *) = entry_real(&LOOKUPS[LOOKUP_V2]);
  if (real == NULL) return CUDA_NOT_FOUND;
  const cuda_error error = real(name, found, version, flags, status);
  exchange(error, name, version, flags, found);
  return error;
}

// The runtime asks for the functions of its own version.
static int runtime_version(void) {
  static struct entry entry = {.name = "cudaRuntimeGetVersion"};
  cuda_error (*get)(int *) = entry_real(&entry);
  int version = 0;
  return get != NULL && get(&version) == CUDA_OK ? version : 12000;
}

static cuda_error entry_point(struct entry *entry, const char *name, void **found, unsigned long long flags, int *status) {
  cuda_error (*real)(const char *, void **, unsigned long long, int *) = entry_real(entry);
  if (real == NULL) return CUDA_NOT_FOUND;
  const cuda_error error = real(name, found, flags, status);
  // The default is what the calling variant was compiled for.
  exchange(error, name, runtime_version(), flags == 0 && entry->per_thread ? 2 : flags, found);
  return error;
}

EXPORT cuda_error cudaGetDriverEntryPoint(const char *name, void **found, unsigned long long flags, int *status) {
  return entry_point(&LOOKUPS[RUNTIME], name, found, flags, status);
}

EXPORT cuda_error cudaGetDriverEntryPoint_ptsz(const char *name, void **found, unsigned long long flags, int *status) {
  return entry_point(&LOOKUPS[RUNTIME_PTSZ], name, found, flags, status);
}

static cuda_error entry_point_by_version(struct entry *entry, const char *name, void **found, unsigned version, unsigned long long flags,
                                         int *status) {
  cuda_error (*real)(const char *, void **, unsigned, unsigned long long, int *) = entry_real(entry);
  if (real == NULL) return CUDA_NOT_FOUND;
  const cuda_error error = real(name, found, version, flags, status);
  exchange(error, name, (int)version, flags == 0 && entry->per_thread ? 2 : flags, found);
  return error;
}

EXPORT cuda_error cudaGetDriverEntryPointByVersion(const char *name, void **found, unsigned version, unsigned long long flags, int *status) {
  return entry_point_by_version(&LOOKUPS[RUNTIME_VERSION], name, found, version, flags, status);
}

EXPORT cuda_error cudaGetDriverEntryPointByVersion_ptsz(const char *name, void **found, unsigned version, unsigned long long flags,
                                                        int *status) {
  return entry_point_by_version(&LOOKUPS[RUNTIME_VERSION_PTSZ], name, found, version, flags, status);
}

struct entry interpose_lookups[] = {
    [LOOKUP] = {.name = "cuGetProcAddress", .ours = cuGetProcAddress, .asked = "cuGetProcAddress", .since = 11030},
    [LOOKUP_V2] = {.name = "cuGetProcAddress_v2", .ours = cuGetProcAddress_v2, .asked = "cuGetProcAddress", .since = 12000},
    [RUNTIME] = {.name = "cudaGetDriverEntryPoint", .ours = cudaGetDriverEntryPoint},
    [RUNTIME_PTSZ] = {.name = "cudaGetDriverEntryPoint_ptsz", .ours = cudaGetDriverEntryPoint_ptsz, .per_thread = true},
    [RUNTIME_VERSION] = {.name = "cudaGetDriverEntryPointByVersion", .ours = cudaGetDriverEntryPointByVersion},
    [RUNTIME_VERSION_PTSZ] = {.name = "cudaGetDriverEntryPointByVersion_ptsz", .ours = cudaGetDriverEntryPointByVersion_ptsz, .per_thread = true},
    {0},
};

INTERPOSED(interpose_lookups);
