// library.c - a library with a name that means something to the hook. Built without calls
// that are jumps, whose caller would be ours.
int cudaMalloc(void **ptr, unsigned long bytes);
int cudaFree(void *ptr);

int cuMemGetAddressRange_v2(unsigned long long *start, unsigned long *size, unsigned long long addr);

int library_range(unsigned long long *start, unsigned long *size, unsigned long long addr) {
  const int error = cuMemGetAddressRange_v2(start, size, addr);
  return error;
}

int library_malloc(void **ptr, unsigned long bytes) {
  const int error = cudaMalloc(ptr, bytes);
  return error;
}

int library_free(void *ptr) {
  const int error = cudaFree(ptr);
  return error;
}
