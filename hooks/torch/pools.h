// pools.h - which private pool an allocation belongs to.
#pragma once

#include <c10/core/Device.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <functional>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

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

}  // namespace memprof
