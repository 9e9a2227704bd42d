// pools.h - which private pool an allocation belongs to, and where a pool's memory comes from.
#pragma once

#include <c10/core/Device.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "memprof.h"

namespace memprof {

using c10::DeviceIndex;
using PoolId = c10::cuda::MempoolId_t;

// Pools that allocations go to at the moment: those of graph captures, told by a filter on
// streams, and of use_mem_pool. What is freed in a pool must be reused only there, since a
// replayed graph uses its memory without asking.
class OpenPools {
 public:
  void open(DeviceIndex device, PoolId id, std::function<bool(cudaStream_t)> filter) {
    std::lock_guard<std::mutex> guard(mutex_);
    pools_.push_back({device, id, std::move(filter)});
    count_.fetch_add(1, std::memory_order_release);
  }

  void close(DeviceIndex device, PoolId id) {
    std::lock_guard<std::mutex> guard(mutex_);
    for (auto pool = pools_.rbegin(); pool != pools_.rend(); ++pool) {
      if (pool->device != device || pool->id != id) continue;
      pools_.erase(std::next(pool).base());
      count_.fetch_sub(1, std::memory_order_release);
      return;
    }
  }

  // The pool for an allocation, {0, 0} if it belongs to none. The newest that wants it.
  PoolId find(DeviceIndex device, cudaStream_t stream) {
    if (count_.load(std::memory_order_acquire) == 0) return {0, 0};
    std::lock_guard<std::mutex> guard(mutex_);
    for (auto pool = pools_.rbegin(); pool != pools_.rend(); ++pool) {
      if (pool->device == device && pool->filter(stream)) return pool->id;
    }
    return {0, 0};
  }

 private:
  struct Open {
    DeviceIndex device;
    PoolId id;
    std::function<bool(cudaStream_t)> filter;
  };
  std::atomic<int> count_{0};
  std::mutex mutex_;
  std::vector<Open> pools_;
};

// A MemPool made with an allocator takes its memory from there (NCCL's, for one). The hook
// may ask for and return memory as long as the process lives, so the reference is never
// dropped.
inline bool set_pool_source(DeviceIndex device, PoolId id, std::shared_ptr<c10::cuda::CUDACachingAllocator::CUDAAllocator> allocator) {
  using Reference = std::shared_ptr<c10::cuda::CUDACachingAllocator::CUDAAllocator>;
  auto* reference = new Reference(std::move(allocator));
  const auto allocate = [](void* self, size_t bytes) -> void* {
    try {
      return (*static_cast<Reference*>(self))->raw_alloc(bytes);
    } catch (...) {
      return nullptr;  // no memory: the hook says so in its own words
    }
  };
  const auto release = [](void* self, void* ptr) {
    try {
      (*static_cast<Reference*>(self))->raw_delete(ptr);
    } catch (...) {
      memprof_problem("the allocator of a memory pool did not take its memory back");
    }
  };
  if (memprof_pool_source(device, id.first, id.second, reference, allocate, release) != 0) return true;
  delete reference;
  return false;
}

}  // namespace memprof
