// announce.h - tells torch's GPU trace and its profiler of allocations, as torch's own allocator does.
//
// The GPU trace (torch.cuda._gpu_trace) calls Python for each allocation; the CUDA sanitizer is built on
// it. The profiler (torch.profiler with profile_memory) draws its memory timeline from the reports. While
// neither is in use, an allocation and its free cost two loads each.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/impl/GPUTrace.h>

#include <cstdint>

#include "memprof.h"

namespace memprof {

namespace announce {

inline bool wanted() { return c10::impl::GPUTrace::get_trace() != nullptr || c10::memoryProfilingEnabled(); }

inline void to_profiler(void* ptr, int device, int64_t bytes) {
  if (!c10::memoryProfilingEnabled()) return;
  memprof_stats stats;
  memprof_get_stats(device, &stats);
  c10::reportMemoryUsageToProfiler(ptr, bytes, static_cast<size_t>(stats.torch_bytes.current), static_cast<size_t>(stats.reserved_bytes.current),
                                   c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device)));
}

inline void to_trace_alloc(void* ptr) {
  if (const auto* trace = c10::impl::GPUTrace::get_trace()) (*trace)->trace_gpu_memory_allocation(c10::DeviceType::CUDA, reinterpret_cast<uintptr_t>(ptr));
}

inline void to_trace_free(void* ptr) {
  if (const auto* trace = c10::impl::GPUTrace::get_trace()) (*trace)->trace_gpu_memory_deallocation(c10::DeviceType::CUDA, reinterpret_cast<uintptr_t>(ptr));
}

// After the allocation.
inline void allocated(void* ptr) {
  int device = 0;
  size_t bytes = 0;
  to_trace_alloc(ptr);
  if (memprof_torch_block(ptr, &device, &bytes)) to_profiler(ptr, device, static_cast<int64_t>(bytes));
}

// Frees the block, between the two announcements: the trace learns of it before, the profiler after.
inline void freed(void* ptr) {
  int device = 0;
  size_t bytes = 0;
  const bool known = memprof_torch_block(ptr, &device, &bytes) != 0;
  to_trace_free(ptr);
  memprof_free(ptr, 0, 0, nullptr);
  if (known) to_profiler(ptr, device, -static_cast<int64_t>(bytes));
}

inline void out_of_memory(int device, size_t bytes) {
  if (!c10::memoryProfilingEnabled()) return;
  memprof_stats stats;
  memprof_get_stats(device, &stats);
  c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(bytes), static_cast<size_t>(stats.torch_bytes.current), static_cast<size_t>(stats.reserved_bytes.current),
                                   c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device)));
}

}  // namespace announce

}  // namespace memprof
