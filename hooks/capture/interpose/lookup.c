// lookup.c - functions by which programs look up functions of the driver without dlsym.
//
// cuGetProcAddress takes a name without the suffix of its variant, and the CUDA version that the caller was
// written for. Both together determine the variant: the answer tells which.
#include "base/hook.h"
#include "interpose/interpose.h"

static cuda_error exchange(cuda_error error, const char *name, void **found) {
  if (error == CUDA_OK && found != NULL && *found != NULL && hook_on()) *found = entry_exchange_asked(name, *found);
  return error;
}

WRAPPER(cuGetProcAddress, (const char *name, void **found, int version, uint64_t flags), DRIVER(cuGetProcAddress, 11030)) {
  cuda_error (*real)(const char *, void **, int, uint64_t) = entry_real(&cuGetProcAddress_entry);
  return real == NULL ? CUDA_NOT_FOUND : exchange(real(name, found, version, flags), name, found);
}

WRAPPER(cuGetProcAddress_v2, (const char *name, void **found, int version, uint64_t flags, int *status), DRIVER(cuGetProcAddress, 12000)) {
  cuda_error (*real)(const char *, void **, int, uint64_t, int *) = entry_real(&cuGetProcAddress_v2_entry);
  return real == NULL ? CUDA_NOT_FOUND : exchange(real(name, found, version, flags, status), name, found);
}

static cuda_error entry_point(struct entry *entry, const char *name, void **found, unsigned long long flags, int *status) {
  cuda_error (*real)(const char *, void **, unsigned long long, int *) = entry_real(entry);
  return real == NULL ? CUDA_NOT_FOUND : exchange(real(name, found, flags, status), name, found);
}

WRAPPER(cudaGetDriverEntryPoint, (const char *name, void **found, unsigned long long flags, int *status), RUNTIME) {
  return entry_point(&cudaGetDriverEntryPoint_entry, name, found, flags, status);
}

WRAPPER(cudaGetDriverEntryPoint_ptsz, (const char *name, void **found, unsigned long long flags, int *status), RUNTIME_PER_THREAD) {
  return entry_point(&cudaGetDriverEntryPoint_ptsz_entry, name, found, flags, status);
}

static cuda_error entry_point_by_version(struct entry *entry, const char *name, void **found, unsigned version, unsigned long long flags,
                                         int *status) {
  cuda_error (*real)(const char *, void **, unsigned, unsigned long long, int *) = entry_real(entry);
  return real == NULL ? CUDA_NOT_FOUND : exchange(real(name, found, version, flags, status), name, found);
}

WRAPPER(cudaGetDriverEntryPointByVersion, (const char *name, void **found, unsigned version, unsigned long long flags, int *status), RUNTIME) {
  return entry_point_by_version(&cudaGetDriverEntryPointByVersion_entry, name, found, version, flags, status);
}

WRAPPER(cudaGetDriverEntryPointByVersion_ptsz, (const char *name, void **found, unsigned version, unsigned long long flags, int *status), RUNTIME_PER_THREAD) {
  return entry_point_by_version(&cudaGetDriverEntryPointByVersion_ptsz_entry, name, found, version, flags, status);
}
