// pools.h - the private pool of an allocation, and the allocator that a pool takes memory from.
#pragma once

#include <c10/core/Device.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "memprof.h"

// Torch 2.6 and 2.7 define it: the MemPool that the calling thread uses.
namespace c10::cuda {
struct MemPoolContext;
}

namespace memprof {

using c10::DeviceIndex;
using PoolId = c10::cuda::MempoolId_t;

// The pools that allocations go to now: those of graph captures, which have a filter on
// streams, and those of use_mem_pool. Memory freed in a pool may be reused only there, since
// the replay of a graph uses it without a request.
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

  // The pool for an allocation: the one opened last whose filter accepts the stream, or {0, 0}.
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

template <typename T, typename = void>
struct HasActivePool : std::false_type {};
template <typename T>
struct HasActivePool<T, std::void_t<decltype(T::getActiveMemPool())>> : std::true_type {};

// The MemPool that the calling thread uses, where torch says so: its id, else {0, 0}, and its allocator or nullptr.
template <typename T>
std::pair<PoolId, c10::cuda::CUDACachingAllocator::CUDAAllocator*> active_pool() {
  if constexpr (HasActivePool<T>::value) {
    if (auto* pool = T::getActiveMemPool()) return {pool->id(), pool->allocator()};
  }
  return {PoolId(0, 0), nullptr};
}

// A MemPool that was made with an allocator, for instance NCCL's, takes its memory from that
// allocator. The hook may allocate and free there until the process ends, so the reference is
// never dropped. Returns false if the pool has memory already.
inline bool set_pool_source(DeviceIndex device, PoolId id, std::shared_ptr<c10::cuda::CUDACachingAllocator::CUDAAllocator> allocator) {
  using Reference = std::shared_ptr<c10::cuda::CUDACachingAllocator::CUDAAllocator>;
  auto* reference = new Reference(std::move(allocator));
  const auto allocate = [](void* self, size_t bytes) -> void* {
    try {
      return (*static_cast<Reference*>(self))->raw_alloc(bytes);
    } catch (...) {
      return nullptr;  // the hook reports that the pool has no memory
    }
  };
  const auto release = [](void* self, void* ptr) {
    try {
      (*static_cast<Reference*>(self))->raw_delete(ptr);
    } catch (...) {
      memprof_problem("the allocator of a memory pool failed to free its memory");
    }
  };
  if (memprof_pool_source(device, id.first, id.second, reference, allocate, release) != 0) return true;
  delete reference;
  return false;
}

}  // namespace memprof
