// api_cxx.h - what the plug-in allocator needs of C++, without a C++ compiler.
//
// Torch hands a plug-in a std::function, and expects a failed request to throw c10::OutOfMemoryError: a null
// pointer would become a tensor without memory. Both are done by the C++ ABI: the layout of std::function in
// libstdc++, the same since GCC 7, and the constructor that torch's libraries export.
#ifndef MEMPROF_API_CXX_H
#define MEMPROF_API_CXX_H

#include <stdbool.h>

// std::function<bool(cudaStream_t)>.
struct cxx_filter {
  void *state[2];
  bool (*manage)(void *to, const void *from, int operation);
  bool (*call)(const void *state, void **stream);
};

// Makes *to a copy that the caller owns, until cxx_filter_end. An empty filter accepts every stream.
void cxx_filter_copy(struct cxx_filter *to, const struct cxx_filter *from);
void cxx_filter_end(struct cxx_filter *filter);

// May throw: torch's filters ask the driver about the stream.
bool cxx_filter_accepts(const struct cxx_filter *filter, void *stream);

// Looks up what a throw needs in a library of torch's and all that it is linked with. False: it is not there.
bool cxx_find_exception(const char *library);

// Throws c10::OutOfMemoryError, or c10::Error where memory is not what lacks, with that text through the caller's frames, which must hold nothing.
// Returns only if cxx_find_exception has not succeeded.
void cxx_throw(const char *text, bool out_of_memory);

#endif
