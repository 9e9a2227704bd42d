// shim.cpp - torch's view of the capture hook.
//
// Compiled at first use against the user's own torch (memprof/_shim.py has the command)
// and cached. It installs one object, a CUDAAllocator that takes every byte from
// libmemprof.so and answers torch's questions about memory from the hook's counters.
//
// It derives from torch's pluggable allocator because that class implements, as a
// clear error, each method this one does not; but it overrides the calls on the
// hot path, since the base class keeps a map of all pointers under a mutex.
//
// Torch's interface moves between versions. Members below that are not marked
// `override` exist in some versions only, or with other parameters: where the base
// class has the virtual function they override it, elsewhere they are never called.
// Nothing here compares version numbers.
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>

#include <c10/core/Allocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "memprof.h"
#include "pools.h"

namespace {

using memprof::OpenPools;
using memprof::PoolId;
using Base = torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator;
using c10::DeviceIndex;
using DeviceStats = decltype(std::declval<Base&>().getDeviceStats(0));

void free_block(void* ptr) {
  memprof_free(ptr, 0, 0, nullptr);
}

// Tensors may be made and freed while static objects are destroyed: this one never is.
OpenPools& open_pools = *new OpenPools;

// Zero bytes need no memory, and torch accepts a null pointer for them.
void* allocate_or_throw(size_t size, DeviceIndex device, cudaStream_t stream) {
  if (size == 0) return nullptr;
  const PoolId pool = open_pools.find(device, stream);
  void* ptr = memprof_malloc_in_pool(size, device, stream, pool.first, pool.second);
  TORCH_CHECK_WITH(OutOfMemoryError, ptr != nullptr, memprof_oom_message());
  return ptr;
}

// Torch keeps three figures of each kind: all, small pool, large pool. BFC has no
// such pools, so only the first is told.
template <typename StatArray>
void tell(StatArray& to, const memprof_stat& from) {
  auto& all = to[0];
  all.current = from.current;
  all.peak = from.peak;
  all.allocated = from.allocated;
  all.freed = from.freed;
}

class Allocator final : public Base {
 public:
  // The functions given to the base class serve its own callers of malloc(), if any.
  Allocator()
      : Base(
            [](size_t size, int device, cudaStream_t stream) { return memprof_malloc(size, device, stream); },
            [](void* ptr, size_t, int, cudaStream_t) { free_block(ptr); }) {}

  c10::DataPtr allocate(size_t size) override {
    const DeviceIndex device = c10::cuda::current_device();
    void* ptr = allocate_or_throw(size, device, c10::cuda::getCurrentCUDAStream(device));
    return {ptr, ptr, &free_block, c10::Device(c10::DeviceType::CUDA, device)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }

  void* raw_alloc(size_t size) override {
    const DeviceIndex device = c10::cuda::current_device();
    return allocate_or_throw(size, device, c10::cuda::getCurrentCUDAStream(device));
  }

  void* raw_alloc_with_stream(size_t size, cudaStream_t stream) override {
    return allocate_or_throw(size, c10::cuda::current_device(), stream);
  }

  void raw_delete(void* ptr) override { free_block(ptr); }

  void recordStream(const c10::DataPtr& data, c10::cuda::CUDAStream stream) override {
    // A pointer with another deleter came from elsewhere (IPC, from_blob): not ours to track.
    if (data.get() != nullptr && data.get_deleter() == &free_block) {
      memprof_record_stream(data.get(), stream.stream());
    }
  }

  void* getBaseAllocation(void* ptr, size_t* size) override {
    void* start = ptr;
    size_t provided = 0;
    if (memprof_block_of(ptr, &start, &provided) == 0) return ptr;
    if (size != nullptr) *size = provided;
    return start;
  }

  void emptyCache(PoolId) { empty_all(); }
  void emptyCache() { empty_all(); }

  void setMemoryFraction(double fraction, DeviceIndex device) override {
    TORCH_CHECK(fraction >= 0 && fraction <= 1, "memory fraction must lie in [0, 1], not ", fraction);
    memprof_set_limit(device, static_cast<uint64_t>(fraction * static_cast<double>(total_memory(device))));
  }

  double getMemoryFraction(DeviceIndex device) {
    const uint64_t limit = memprof_limit(device);
    return limit == 0 ? 1.0 : static_cast<double>(limit) / static_cast<double>(total_memory(device));
  }

  // cudnn.benchmark picks algorithms by the largest workspace that could be had.
  void cacheInfo(DeviceIndex device, size_t* largest) override {
    const size_t free_chunk = memprof_largest_free(device);
    if (*largest < free_chunk) *largest = free_chunk;
  }

  DeviceStats getDeviceStats(DeviceIndex device) override {
    memprof_stats ours;
    memprof_get_stats(device, &ours);
    DeviceStats stats;
    tell(stats.allocation, ours.allocation);
    tell(stats.requested_bytes, ours.requested_bytes);
    tell(stats.allocated_bytes, ours.allocated_bytes);
    tell(stats.active, ours.active);
    tell(stats.active_bytes, ours.active_bytes);
    tell(stats.segment, ours.segment);
    tell(stats.reserved_bytes, ours.reserved_bytes);
    tell(stats.inactive_split_bytes, ours.inactive_bytes);
    stats.num_alloc_retries = ours.retries;
    stats.num_ooms = ours.ooms;
    stats.num_sync_all_streams = ours.syncs;
    stats.num_device_alloc = ours.device_allocs;
    stats.num_device_free = ours.device_frees;
    stats.max_split_size = std::numeric_limits<int64_t>::max();  // every chunk may be split
    return stats;
  }

  void resetPeakStats(DeviceIndex device) override { memprof_reset_peak(device); }
  void resetAccumulatedStats(DeviceIndex device) override { memprof_reset_accumulated(device); }

  void beginAllocateToPool(DeviceIndex device, PoolId id, std::function<bool(cudaStream_t)> filter) override {
    open_pools.open(device, id, std::move(filter));
  }
  void endAllocateToPool(DeviceIndex device, PoolId id) override { open_pools.close(device, id); }
  void releasePool(DeviceIndex device, PoolId id) override { memprof_release_pool(device, id.first, id.second); }

  // `device` may read and write what lies on `owner`.
  void enablePeerAccess(DeviceIndex device, DeviceIndex owner) override {
    Base::enablePeerAccess(device, owner);
    memprof_enable_peer(owner, device);
  }

  bool isHistoryEnabled() { return false; }

 private:
  static void empty_all() {
    const DeviceIndex count = c10::cuda::device_count();
    for (DeviceIndex device = 0; device < count; device++) memprof_empty_cache(device);
  }

  static size_t total_memory(DeviceIndex device) {
    c10::DeviceIndex previous = c10::cuda::current_device();
    c10::cuda::set_device(device);
    size_t free_bytes = 0, total = 0;
    const cudaError_t error = cudaMemGetInfo(&free_bytes, &total);
    c10::cuda::set_device(previous);
    TORCH_CHECK(error == cudaSuccess, "cudaMemGetInfo: ", cudaGetErrorString(error));
    return total;
  }
};

thread_local std::string last_error;

}  // namespace

// Makes the hook torch's CUDA allocator. Returns nullptr, or why it could not be done:
// torch refuses once its own allocator has been used.
extern "C" __attribute__((visibility("default"))) const char* memprof_torch_install() {
  if (memprof_abi() != MEMPROF_ABI) {
    return "the shim was built for another version of the capture hook";
  }
  try {
    // Tensors may outlive every static object, so nothing may destroy the allocator.
    static auto* allocator = new std::shared_ptr<Allocator>(std::make_shared<Allocator>());
    torch::cuda::CUDAPluggableAllocator::changeCurrentAllocator(*allocator);
    // torch.accelerator asks the allocator registered for the device type.
    c10::SetAllocator(c10::DeviceType::CUDA, allocator->get());
  } catch (const std::exception& error) {
    last_error = error.what();
    return last_error.c_str();
  }
  return nullptr;
}
