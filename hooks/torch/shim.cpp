// shim.cpp - makes the capture hook torch's CUDA allocator.
//
// It is compiled at first use against the user's own torch (memprof/_shim.py has the
// command) and cached. It installs one CUDAAllocator, which allocates all memory through
// libmemprof.so and answers torch's memory queries from the hook's counters.
//
// It derives from torch's pluggable allocator, because that class throws a clear error for
// each method that is not overridden here. The calls on the hot path are overridden, since
// the base class keeps a map of all pointers under a mutex.
//
// Torch's interface changes between versions. Members below without `override` exist in
// some versions only, or with other parameters. Where the base class has the virtual
// function, they override it; elsewhere nobody calls them. No code here compares version
// numbers.
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>

#include <c10/core/Allocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "announce.h"
#include "history.h"
#include "memprof.h"
#include "native.h"
#include "notes.h"
#include "pools.h"
#include "snapshot.h"
#include "uncached.h"

namespace {

using memprof::Cause;
using memprof::History;
using memprof::Notes;
using memprof::OpenPools;
using memprof::PoolId;
using memprof::PoolState;
using Base = torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator;
using c10::DeviceIndex;
namespace torch_cuda = c10::cuda::CUDACachingAllocator;
using DeviceStats = decltype(std::declval<Base&>().getDeviceStats(0));

// Never destroyed: tensors may be allocated and freed while static objects are destroyed.
OpenPools& open_pools = *new OpenPools;
History& history = *new History;

void free_block(void* ptr) {
  // Before memprof_free, after which the hook may give the address to another thread.
  if (history.on() || history.tracked()) history.freed(ptr, history.gather(torch_cuda::RecordContext::ALL), memprof_used_elsewhere(ptr) != 0);
  if (memprof::announce::wanted()) {
    memprof::announce::freed(ptr);
  } else {
    memprof_free(ptr, 0, 0, nullptr);
  }
}

std::mutex observers_lock;
std::vector<torch_cuda::OutOfMemoryObserver>& observers = *new std::vector<torch_cuda::OutOfMemoryObserver>;

[[noreturn]] void out_of_memory(size_t size, DeviceIndex device, cudaStream_t stream) {
  C10_CUDA_CHECK(static_cast<cudaError_t>(memprof_oom_error()));  // the GPU has failed before: what torch's own allocator would throw
  const std::string why = memprof_oom_message();
  size_t free_bytes = 0, total = 0;
  cudaMemGetInfo(&free_bytes, &total);
  if (history.on()) history.out_of_memory(device, free_bytes, size, stream, history.gather(torch_cuda::RecordContext::STATE));
  std::vector<torch_cuda::OutOfMemoryObserver> to_call;  // copied, so that the lock is free while they run
  {
    std::lock_guard<std::mutex> guard(observers_lock);
    to_call = observers;
  }
  for (const auto& observer : to_call) observer(device, size, total, free_bytes);
  memprof::announce::out_of_memory(device, size);
  TORCH_CHECK_WITH(OutOfMemoryError, false, why);
}

// Has torch free memory that it keeps without need, such as tensors that another process
// has released. Returns nonzero if it freed any.
int run_free_memory_callbacks() {
  int freed = 0;
  try {
    for (const auto& name : c10::FreeCudaMemoryCallbacksRegistry()->Keys()) {
      freed |= c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute();
    }
  } catch (const std::exception& error) {
    memprof_problem(error.what());
  }
  return freed;
}

// Returns nullptr for 0 bytes, as torch allows. Throws torch.OutOfMemoryError, or the error of a GPU whose work has failed.
void* allocate_or_throw(size_t size, DeviceIndex device, cudaStream_t stream) {
  if (size == 0) return nullptr;
  const PoolId pool = open_pools.find(device, stream);
  if (!history.on() && !history.tracked()) {
    void* ptr = memprof_malloc_in_pool(size, device, stream, pool.first, pool.second);
    if (ptr == nullptr) out_of_memory(size, device, stream);
    if (memprof::announce::wanted()) memprof::announce::allocated(ptr);
    return ptr;
  }
  const auto context = history.gather(torch_cuda::RecordContext::STATE);
  const Cause cause(context);
  void* ptr = memprof_malloc_in_pool(size, device, stream, pool.first, pool.second);
  if (ptr == nullptr) out_of_memory(size, device, stream);
  history.allocated(device, ptr, size, stream, pool, context);
  if (memprof::announce::wanted()) memprof::announce::allocated(ptr);
  return ptr;
}

// Allocations of other processes, mapped into this one for as long as a tensor uses them.
class SharedBlocks {
 public:
  std::shared_ptr<void> open(const std::string& name, DeviceIndex device) {
    std::lock_guard<std::mutex> guard(mutex_);
    auto& known = blocks_[name];
    if (auto block = known.lock()) return block;
    void* ptr = memprof_open_shared(name.c_str(), device);
    TORCH_CHECK(ptr != nullptr, "memprof: cannot map the tensor's memory (", name, "): its process has ended, or does not run under memprof record");
    std::shared_ptr<void> block(ptr, [device](void* opened) { memprof_close_shared(opened, device); });
    known = block;
    return block;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, std::weak_ptr<void>> blocks_;
};
SharedBlocks& shared_blocks = *new SharedBlocks;

// Copies one of the hook's counters to torch's. Torch has three of each: all, small pool,
// large pool. BFC has no such pools, so list_segments says of all memory that it is of the
// large one, and the statistics agree.
template <typename StatArray>
void set_stat(StatArray& to, const memprof_stat& from) {
  for (auto* one : {&to[0], &to[2]}) {
    one->current = from.current;
    one->peak = from.peak;
    one->allocated = from.allocated;
    one->freed = from.freed;
  }
}

class Allocator final : public Base {
 public:
  // The base class uses these two functions for calls of its malloc(), if there are any.
  Allocator()
      : Base(
            [](size_t size, int device, cudaStream_t stream) { return memprof_malloc(size, device, stream); },
            [](void* ptr, size_t, int, cudaStream_t) { free_block(ptr); }) {
    for (auto& fraction : fractions_) fraction.store(-1);
  }

  // torch.cuda.get_allocator_backend() answers this. The name of the base class would tell a script that
  // its allocator was replaced, and some scripts then refuse what works here.
  std::string name() override { return "native"; }

  // While caching is off, each allocation is a cudaMalloc of its own.
  void enable(bool on) override {
    if (!on) was_off_.store(true, std::memory_order_relaxed);
    caching_.store(on, std::memory_order_relaxed);
  }
  bool isEnabled() const override { return caching_.load(std::memory_order_relaxed); }

  c10::DataPtr allocate(size_t size) override {
    const DeviceIndex device = c10::cuda::current_device();
    if (!isEnabled()) {
      void* ptr = memprof::uncached::allocate(size);
      return {ptr, ptr, &memprof::uncached::free, c10::Device(c10::DeviceType::CUDA, device)};
    }
    void* ptr = allocate_or_throw(size, device, c10::cuda::getCurrentCUDAStream(device));
    return {ptr, ptr, &free_block, c10::Device(c10::DeviceType::CUDA, device)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return isEnabled() ? &free_block : &memprof::uncached::free; }

  void* raw_alloc(size_t size) override {
    if (!isEnabled()) return memprof::uncached::allocate(size);
    const DeviceIndex device = c10::cuda::current_device();
    return allocate_or_throw(size, device, c10::cuda::getCurrentCUDAStream(device));
  }

  void* raw_alloc_with_stream(size_t size, cudaStream_t stream) override {
    if (!isEnabled()) return memprof::uncached::allocate(size);
    return allocate_or_throw(size, c10::cuda::current_device(), stream);
  }

  // Caching may have been switched since the allocation.
  void raw_delete(void* ptr) override {
    size_t provided = 0;
    const bool foreign = was_off_.load(std::memory_order_relaxed) && memprof_owns(ptr, &provided) == 0;
    foreign ? memprof::uncached::free(ptr) : free_block(ptr);
  }

  void recordStream(const c10::DataPtr& data, c10::cuda::CUDAStream stream) override {
    // A pointer with another deleter is not the hook's (IPC, from_blob).
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

  // Without a limit (0) all could be mapped, so a fraction of 0 is a limit of one byte.
  void setMemoryFraction(double fraction, DeviceIndex device) override {
    TORCH_CHECK(fraction >= 0 && fraction <= 1, "memory fraction must lie in [0, 1], not ", fraction);
    const auto limit = static_cast<uint64_t>(fraction * static_cast<double>(total_memory(device)));
    memprof_set_limit(device, std::max<uint64_t>(limit, 1));
    fractions_.at(static_cast<size_t>(device)).store(fraction, std::memory_order_relaxed);
  }

  double getMemoryFraction(DeviceIndex device) {
    const double fraction = fractions_.at(static_cast<size_t>(device)).load(std::memory_order_relaxed);
    return fraction < 0 ? 1.0 : fraction;
  }

  // cudnn.benchmark chooses algorithms by the largest workspace that can be allocated.
  void cacheInfo(DeviceIndex device, size_t* largest) override {
    const size_t free_chunk = memprof_largest_free(device);
    if (*largest < free_chunk) *largest = free_chunk;
  }

  DeviceStats getDeviceStats(DeviceIndex device) override {
    memprof_stats ours;
    memprof_get_stats(device, &ours);
    DeviceStats stats;
    set_stat(stats.allocation, ours.allocation);
    set_stat(stats.requested_bytes, ours.requested_bytes);
    set_stat(stats.allocated_bytes, ours.torch_bytes);
    set_stat(stats.active, ours.active);
    set_stat(stats.active_bytes, ours.torch_active);
    set_stat(stats.segment, ours.segment);
    set_stat(stats.reserved_bytes, ours.reserved_bytes);
    set_stat(stats.inactive_split_bytes, inactive_of(ours));
    stats.num_alloc_retries = ours.retries;
    stats.num_ooms = ours.ooms;
    stats.num_sync_all_streams = ours.syncs;
    stats.num_device_alloc = ours.device_allocs;
    stats.num_device_free = ours.device_frees;
    stats.max_split_size = std::numeric_limits<int64_t>::max();  // chunks of any size may be split
    return stats;
  }

  void resetPeakStats(DeviceIndex device) override { memprof_reset_peak(device); }
  void resetAccumulatedStats(DeviceIndex device) override { memprof_reset_accumulated(device); }

  void beginAllocateToPool(DeviceIndex device, PoolId id, std::function<bool(cudaStream_t)> filter) override {
    memprof_pool_begin(device, id.first, id.second);
    const auto [active, allocator] = memprof::active_pool<c10::cuda::MemPoolContext>();
    if (active == id && allocator != nullptr) {  // torch 2.6 and 2.7 do not own it either; a pool that has memory has it already
      memprof::set_pool_source(device, id, {allocator, [](auto*) {}});
    }
    open_pools.open(device, id, std::move(filter));
  }
  void endAllocateToPool(DeviceIndex device, PoolId id) override {
    open_pools.close(device, id);
    memprof_pool_end(device, id.first, id.second);
  }
  void createOrIncrefPool(DeviceIndex device, PoolId id, std::shared_ptr<torch_cuda::CUDAAllocator> allocator) {
    memprof_pool_hold(device, id.first, id.second);
    if (allocator == nullptr) return;
    TORCH_CHECK(memprof::set_pool_source(device, id, std::move(allocator)), "memprof: the memory pool has memory already, so its allocator cannot be set: set it when the pool is made");
  }
  void ensureExistsAndIncrefPool(DeviceIndex device, PoolId id) { memprof_pool_hold(device, id.first, id.second); }
  int getPoolUseCount(DeviceIndex device, PoolId id) { return static_cast<int>(memprof_pool_uses(device, id.first, id.second)); }
  void setUseOnOOM(DeviceIndex device, PoolId id, bool use) { memprof_pool_may_unmap(device, id.first, id.second, use); }
  void setUseOnOOM(DeviceIndex device, PoolId id) { setUseOnOOM(device, id, true); }
  // The policy decides about splits. torch's hint not to split is ignored.
  void setNoSplit(DeviceIndex, PoolId) {}
  void releasePool(DeviceIndex device, PoolId id) override { memprof_release_pool(device, id.first, id.second); }

  // Lets `device` read and write memory on `owner`.
  void enablePeerAccess(DeviceIndex device, DeviceIndex owner) override {
    Base::enablePeerAccess(device, owner);
    memprof_enable_peer(owner, device);
  }

  bool isHistoryEnabled() { return history.on(); }

  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& fields) {
    if (history.on()) history.annotated(c10::cuda::current_device(), fields);
  }
  void pushCompileContext(std::string& text) { Notes::of_thread().compiling.push_back(text); }
  void popCompileContext() {
    auto& compiling = Notes::of_thread().compiling;
    if (!compiling.empty()) compiling.pop_back();
  }
  bool supportsUserMetadata() { return true; }
  void setUserMetadata(const std::string& text) { Notes::of_thread().metadata = text; }
  std::string getUserMetadata() { return Notes::of_thread().metadata; }
  void annotateMemory(const void* ptr, const std::string& text) {
    if (history.on()) history.described(ptr, text, 0);
  }
  std::shared_ptr<c10::GatheredContext> getContextForPointer(const void* ptr) { return history.context_of(const_cast<void*>(ptr)); }

  void recordHistory(bool on, torch_cuda::CreateContextFn gather, size_t most, torch_cuda::RecordContext when, bool clear,
                     const std::vector<std::string>& skip) {
    history.set(on, gather, most, when, clear, skip);
    observe();
  }
  void recordHistory(bool on, torch_cuda::CreateContextFn gather, size_t most, torch_cuda::RecordContext when, bool clear) {
    recordHistory(on, gather, most, when, clear, {});
  }
  void recordHistory(bool on, torch_cuda::CreateContextFn gather, size_t most, torch_cuda::RecordContext when) {
    recordHistory(on, gather, most, when, false, {});
  }

  void attachOutOfMemoryObserver(torch_cuda::OutOfMemoryObserver observer) override {
    std::lock_guard<std::mutex> guard(observers_lock);
    observers.push_back(std::move(observer));
  }

  // Torch's allocator refuses requests ahead of the driver if throw_on_cudamalloc_oom is set. This one never does.
  void attachOomRejectionObserver(std::function<void(int64_t, size_t, size_t, size_t)>) {}

  typename memprof::SegmentSizes<Base>::type getExpandableSegmentSizes(DeviceIndex device) {
    return memprof::segment_sizes<typename memprof::SegmentSizes<Base>::type>(device);
  }

  void attachAllocatorTraceTracker(torch_cuda::AllocatorTraceTracker tracker) override {
    history.attach(std::move(tracker));
    observe();
  }

  torch_cuda::SnapshotInfo snapshot(PoolId pool, bool with_traces) {
    const DeviceIndex devices = c10::cuda::device_count();
    torch_cuda::SnapshotInfo info = settings();
    for (DeviceIndex device = 0; device < devices; device++) memprof::list_segments(device, pool, info.segments);
    memprof::add_contexts(info.segments, history);
    info.device_traces = with_traces ? history.entries(devices) : decltype(info.device_traces)(static_cast<size_t>(devices));
    info.external_annotations = history.annotations();
    for (DeviceIndex device = 0; history.on() && device < devices; device++) history.snapshot_taken(device, active_of(info.segments, device));
    return info;
  }
  torch_cuda::SnapshotInfo snapshot(PoolId pool) { return snapshot(pool, true); }
  torch_cuda::SnapshotInfo snapshot() { return snapshot(memprof::active_pool<c10::cuda::MemPoolContext>().first, true); }

  // torch's CUDA graph trees restore the state after a capture before they capture a continuation of it.
  std::shared_ptr<torch_cuda::AllocatorState> getCheckpointState(DeviceIndex device, PoolId id) override {
    auto state = memprof::state_of_pool(device, id);
    memprof_checkpoint(device, id.first, id.second, state->blocks.size(), memprof::bytes_of(*state));
    return state;
  }

  torch_cuda::CheckpointDelta setCheckpointPoolState(DeviceIndex device, std::shared_ptr<torch_cuda::AllocatorState> wanted) override {
    const auto state = std::dynamic_pointer_cast<PoolState>(wanted);
    TORCH_CHECK(state != nullptr, "memprof: this checkpoint of a memory pool is of another allocator");
    torch_cuda::CheckpointDelta delta;
    const auto freed = [](void* self, void* ptr) { static_cast<std::vector<void*>*>(self)->push_back(ptr); };
    const int ok = memprof_restore(device, state->id.first, state->id.second, state->blocks.data(), state->blocks.size(), &delta.ptrs_freed, freed);
    TORCH_CHECK(ok != 0, "memprof: an allocation of the checkpoint cannot be restored: its addresses are in use; memprof record prints the details");
    for (const auto& block : state->blocks) {
      void* ptr = reinterpret_cast<void*>(block.addr);
      delta.dataptrs_allocd.push_back({ptr, ptr, &free_block, c10::Device(c10::DeviceType::CUDA, device)});
    }
    return delta;
  }

  bool checkPoolLiveAllocations(DeviceIndex device, PoolId id, const std::unordered_set<void*>& expected) {
    return memprof::has_exactly(*memprof::state_of_pool(device, id), expected);
  }

  torch_cuda::ShareableHandle shareIpcHandle(void* ptr) override {
    void* start = ptr;
    size_t provided = 0;
    char name[128];
    const bool ok = memprof_block_of(ptr, &start, &provided) != 0 && memprof_share(start, name, sizeof name) != 0;
    TORCH_CHECK(ok, "memprof: this tensor's memory cannot be shared with another process: it is not a live allocation of memprof's, or the driver cannot export it");
    return {static_cast<char*>(ptr) - static_cast<char*>(start), name};
  }

  std::shared_ptr<void> getIpcDevPtr(std::string handle) override { return shared_blocks.open(handle, c10::cuda::current_device()); }

 private:
  // torch's history has an entry for each map and unmap and for pending frees that complete, and NCCL
  // registers the segments of its pools. Observing costs a call for each, so it is off while neither wants it.
  static void observe() {
    const auto mapped = [](const memprof_mapping* mapping) { history.mapped(*mapping); };
    const auto reusable = [](int, uint64_t addr) { history.reusable(reinterpret_cast<void*>(addr)); };
    const bool wanted = history.on() || history.tracked();
    memprof_set_mapping_observer(wanted ? +mapped : nullptr);
    memprof_set_reuse_observer(wanted ? +reusable : nullptr);
  }

  static void empty_all() {
    const auto context = history.on() ? history.gather(torch_cuda::RecordContext::ALL) : nullptr;
    const Cause cause(context);
    const DeviceIndex count = c10::cuda::device_count();
    for (DeviceIndex device = 0; device < count; device++) memprof_empty_cache(device);
  }

  // A snapshot of the allocator that this one replaces: it has no memory of the device, but the settings, and
  // since torch 2.13 pinned host memory. The one of cudaMallocAsync gives none.
  torch_cuda::SnapshotInfo settings() const {
    try {
      return replaced_->snapshot();
    } catch (const std::exception&) {
      return {};
    }
  }

  // Torch's inactive bytes are what is reserved and not active, so they are computed from the numbers it receives.
  static memprof_stat inactive_of(const memprof_stats& stats) {
    memprof_stat inactive = stats.inactive_bytes;
    inactive.current = std::max<int64_t>(0, stats.reserved_bytes.current - stats.torch_active.current);
    inactive.peak = std::max(inactive.peak, inactive.current);
    return inactive;
  }

  static size_t active_of(const std::vector<memprof::SegmentInfo>& segments, DeviceIndex device) {
    size_t active = 0;
    for (const auto& segment : segments) active += segment.device == device ? segment.active_size : 0;
    return active;
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

  static constexpr size_t most_devices = 64;
  torch_cuda::CUDAAllocator* const replaced_ = torch_cuda::get();  // torch's own, never initialised
  std::atomic<bool> caching_{true}, was_off_{false};
  std::array<std::atomic<double>, most_devices> fractions_;  // what was set last; -1: nothing
};

thread_local std::string last_error;

}  // namespace

// Makes the hook torch's CUDA allocator. Returns nullptr, or the reason why that failed:
// torch refuses after its own allocator has been used.
extern "C" __attribute__((visibility("default"))) const char* memprof_torch_install() {
  if (memprof_abi() != MEMPROF_ABI) {
    return "the shim was built for another version of the capture hook";
  }
  try {
    // Never destroyed: tensors may outlive every static object.
    static auto* allocator = new std::shared_ptr<Allocator>(std::make_shared<Allocator>());
    torch::cuda::CUDAPluggableAllocator::changeCurrentAllocator(*allocator);
    memprof_set_last_resort(&run_free_memory_callbacks);
    // torch.accelerator asks the allocator registered for the device type.
    c10::SetAllocator(c10::DeviceType::CUDA, allocator->get());
  } catch (const std::exception& error) {
    last_error = error.what();
    last_error.resize(std::min(last_error.size(), last_error.find('\n')));  // torch's backtrace follows
    return last_error.c_str();
  }
  return nullptr;
}
