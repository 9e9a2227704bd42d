// history.h - implements torch.cuda.memory._record_memory_history over the hook.
//
// It keeps a bounded list of the newest entries, with the stacks that torch gathers, and the
// stack of each live allocation. Scripts that use torch's history get what torch's own allocator
// would give them; memprof's recording does not depend on it. While it is off it costs one load
// an allocation.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/ApproximateClock.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "notes.h"
#include "pools.h"

namespace memprof {

namespace torch_cuda = c10::cuda::CUDACachingAllocator;
using torch_cuda::TraceEntry;
using AnnotationEntry = decltype(torch_cuda::SnapshotInfo::external_annotations)::value_type;

class History {
 public:
  bool on() const { return on_.load(std::memory_order_relaxed); }
  bool tracked() const { return tracked_.load(std::memory_order_relaxed); }

  // `when` is what torch wants stacks of: nothing, live allocations, allocations, or all entries.
  void set(bool on, torch_cuda::CreateContextFn gather, size_t most, torch_cuda::RecordContext when, bool clear,
           const std::vector<std::string>& skip) {
    std::lock_guard<std::mutex> guard(mutex_);
    on_ = on;
    gather_ = gather;
    most_ = most == 0 ? 1 : most;
    when_ = on ? when : torch_cuda::RecordContext::NEVER;
    skip_ = skip;
    if (clear || !on) {
      entries_.clear();
      blocks_.clear();
      freed_.clear();
      mappings_.clear();
      annotations_.clear();
    }
  }

  void attach(torch_cuda::AllocatorTraceTracker tracker) {
    std::lock_guard<std::mutex> guard(mutex_);
    trackers_.push_back(std::move(tracker));
    tracked_ = true;
  }

  // Gathers the stack; null if torch wants none. Call it before the hook: gathering needs the
  // interpreter's lock, and waiting for that under the hook's lock could deadlock.
  Context gather(torch_cuda::RecordContext level) const {
    const auto when = when_.load(std::memory_order_relaxed);
    const auto gather = gather_.load(std::memory_order_relaxed);
    return when >= level && gather != nullptr ? gather() : nullptr;
  }

  void allocated(DeviceIndex device, void* ptr, size_t size, cudaStream_t stream, PoolId pool, Context context) {
    std::lock_guard<std::mutex> guard(mutex_);
    blocks_[ptr] = {device, size, stream, pool, context};
    forget_cut(reinterpret_cast<size_t>(ptr), size);
    add(TraceEntry::ALLOC, device, ptr, size, stream, pool, std::move(context));
  }

  // Adds entries for the free of an allocation that was made while the history was on. A block that other
  // streams use completes its free later: see reusable.
  void freed(void* ptr, Context context, bool later) {
    std::lock_guard<std::mutex> guard(mutex_);
    const auto found = blocks_.find(ptr);
    if (found == blocks_.end()) return;
    const Block block = found->second;
    blocks_.erase(found);
    add(TraceEntry::FREE_REQUESTED, block.device, ptr, block.size, block.stream, block.pool, std::move(context));
    if (later) {
      freed_[ptr] = block;
      return;
    }
    add(TraceEntry::FREE_COMPLETED, block.device, ptr, block.size, block.stream, block.pool, nullptr);
  }

  void reusable(void* ptr) {
    std::lock_guard<std::mutex> guard(mutex_);
    const auto found = freed_.find(ptr);
    if (found == freed_.end()) return;
    const Block block = found->second;
    freed_.erase(found);
    add(TraceEntry::FREE_COMPLETED, block.device, ptr, block.size, block.stream, block.pool, nullptr);
  }

  // Memory was mapped or unmapped on the calling thread, for the cause that it has noted.
  void mapped(const memprof_mapping& mapping) {
    const Context cause = Notes::of_thread().cause_or_null();
    const auto start = static_cast<size_t>(mapping.addr), size = static_cast<size_t>(mapping.bytes);
    std::lock_guard<std::mutex> guard(mutex_);
    if (mapping.mapped != 0) {
      mappings_[start] = {size, cause};
    } else {
      mappings_.erase(mappings_.lower_bound(start), mappings_.lower_bound(start + size));
    }
    add(action_of(mapping), static_cast<DeviceIndex>(mapping.device), reinterpret_cast<void*>(mapping.addr), size, static_cast<cudaStream_t>(mapping.stream),
        PoolId(mapping.pool[0], mapping.pool[1]), cause);
  }

  // The job has opened or closed a scope of torch.profiler.record_function.
  void annotated(DeviceIndex device, const std::vector<std::pair<std::string, std::string>>& fields) {
    AnnotationEntry entry(device, c10::getApproximateTime());
    for (const auto& field : fields) entry.recordUserMetadata(field.first, field.second);
    std::lock_guard<std::mutex> guard(mutex_);
    annotations_.push_back(std::move(entry));
    if (annotations_.size() > most_) annotations_.pop_front();
  }

  // `active` bytes are live or pending on the device.
  void snapshot_taken(DeviceIndex device, size_t active) {
    std::lock_guard<std::mutex> guard(mutex_);
    add(TraceEntry::SNAPSHOT, device, nullptr, active, nullptr, {0, 0}, nullptr);
  }

  // The job has described a live allocation. Torch has such entries since 2.13.
  template <typename Entry = TraceEntry>
  auto described(const void* ptr, const std::string& text, int) -> decltype(Entry::ANNOTATE, void()) {
    std::lock_guard<std::mutex> guard(mutex_);
    const auto found = blocks_.find(const_cast<void*>(ptr));
    if (found == blocks_.end()) return;
    std::string before = std::exchange(Notes::of_thread().metadata, text);
    const Block& block = found->second;
    add(Entry::ANNOTATE, block.device, found->first, block.size, block.stream, block.pool, nullptr);
    Notes::of_thread().metadata = std::move(before);
  }
  template <typename Entry = TraceEntry>
  void described(const void*, const std::string&, long) {}

  // `free` is the device's free memory in bytes, which torch puts into the address of the entry.
  void out_of_memory(DeviceIndex device, size_t free, size_t size, cudaStream_t stream, Context context) {
    std::lock_guard<std::mutex> guard(mutex_);
    add(TraceEntry::OOM, device, reinterpret_cast<void*>(free), size, stream, {0, 0}, std::move(context));
  }

  Context context_of(void* ptr) {
    std::lock_guard<std::mutex> guard(mutex_);
    const auto found = blocks_.find(ptr);
    return found == blocks_.end() ? nullptr : found->second.context;
  }

  // The stack of the first request that memory of a range was mapped for, but for parts that a block was cut from; null: of none.
  Context context_of_mapping(size_t addr, size_t size) {
    std::lock_guard<std::mutex> guard(mutex_);
    auto at = mappings_.upper_bound(addr);
    if (at != mappings_.begin() && std::prev(at)->first + std::prev(at)->second.size > addr) --at;
    while (at != mappings_.end() && at->first < addr + size && at->second.cause == nullptr) ++at;
    return at != mappings_.end() && at->first < addr + size ? at->second.cause : nullptr;
  }

  // With wall-clock times, as the entries below.
  std::vector<AnnotationEntry> annotations() {
    const auto time_of = clock_.makeConverter();
    std::lock_guard<std::mutex> guard(mutex_);
    std::vector<AnnotationEntry> out(annotations_.begin(), annotations_.end());
    for (AnnotationEntry& entry : out) entry.time_.t_ = time_of(entry.time_.approx_t_);
    return out;
  }

  // The entries of each device, with wall-clock times.
  std::vector<std::vector<TraceEntry>> entries(DeviceIndex devices) {
    std::vector<std::vector<TraceEntry>> out(static_cast<size_t>(devices));
    const auto time_of = clock_.makeConverter();
    std::lock_guard<std::mutex> guard(mutex_);
    for (const TraceEntry& entry : entries_) {
      if (entry.device_ < 0 || entry.device_ >= devices) continue;
      auto& list = out[static_cast<size_t>(entry.device_)];
      list.push_back(entry);
      list.back().time_.t_ = time_of(entry.time_.approx_t_);
    }
    return out;
  }

 private:
  // NCCL registers SEGMENT_ALLOC with the ids of its pools, whose memory comes from its own allocator.
  static TraceEntry::Action action_of(const memprof_mapping& mapping) {
    if (mapping.segment != 0) return mapping.mapped != 0 ? TraceEntry::SEGMENT_ALLOC : TraceEntry::SEGMENT_FREE;
    return mapping.mapped != 0 ? TraceEntry::SEGMENT_MAP : TraceEntry::SEGMENT_UNMAP;
  }

  struct Block {
    DeviceIndex device;
    size_t size;
    cudaStream_t stream;
    PoolId pool;
    Context context;
  };
  struct Mapping {
    size_t size;
    Context cause;
  };

  // Torch keeps the stack of a segment with the block that it became. Smaller blocks than this are cut from
  // segments, which then have no stack.
  static constexpr size_t least_whole = 10 << 20;

  // Drops the stacks of mappings that a new block is cut from.
  void forget_cut(size_t addr, size_t size) {
    if (size >= least_whole) return;
    for (auto at = mappings_.lower_bound(addr + size); at != mappings_.begin();) {
      Mapping& mapping = (--at)->second;
      if (at->first + mapping.size <= addr) return;
      mapping.cause = nullptr;
    }
  }

  bool skipped(TraceEntry::Action action) const {
    return std::any_of(skip_.begin(), skip_.end(), [action](const std::string& name) { return name == name_of(action); });
  }

  // The name by which torch's skip_actions calls an action of ours.
  static const char* name_of(TraceEntry::Action action) {
    switch (action) {
      case TraceEntry::ALLOC: return "alloc";
      case TraceEntry::FREE_REQUESTED: return "free_requested";
      case TraceEntry::FREE_COMPLETED: return "free_completed";
      case TraceEntry::SEGMENT_MAP: return "segment_map";
      case TraceEntry::SEGMENT_UNMAP: return "segment_unmap";
      case TraceEntry::SNAPSHOT: return "snapshot";
      case TraceEntry::OOM: return "oom";
      default: return is_description(action, 0) ? "annotate" : "";
    }
  }
  template <typename Entry = TraceEntry>
  static auto is_description(TraceEntry::Action action, int) -> decltype(action == Entry::ANNOTATE) {
    return action == Entry::ANNOTATE;
  }
  template <typename Entry = TraceEntry>
  static bool is_description(TraceEntry::Action, long) {
    return false;
  }

  // Torch 2.6's entries do not have the pool, and some versions no texts.
  template <typename Entry>
  static Entry entry_of(TraceEntry::Action action, DeviceIndex device, size_t addr, size_t size, cudaStream_t stream, PoolId pool, Context context) {
    const auto now = c10::getApproximateTime();
    const Notes& notes = Notes::of_thread();
    using Text = std::string;
    if constexpr (std::is_constructible_v<Entry, TraceEntry::Action, DeviceIndex, size_t, size_t, cudaStream_t, PoolId, decltype(now), Context, Text, Text>) {
      return Entry(action, device, addr, size, stream, pool, now, std::move(context), notes.compile_context(), notes.metadata);
    } else if constexpr (std::is_constructible_v<Entry, TraceEntry::Action, DeviceIndex, size_t, size_t, cudaStream_t, PoolId, decltype(now), Context, Text>) {
      return Entry(action, device, addr, size, stream, pool, now, std::move(context), notes.compile_context());
    } else if constexpr (std::is_constructible_v<Entry, TraceEntry::Action, DeviceIndex, size_t, size_t, cudaStream_t, PoolId, decltype(now), Context>) {
      return Entry(action, device, addr, size, stream, pool, now, std::move(context));
    } else {
      return Entry(action, device, addr, size, stream, now, std::move(context));
    }
  }

  void add(TraceEntry::Action action, DeviceIndex device, void* addr, size_t size, cudaStream_t stream, PoolId pool, Context context) {
    const bool with_stack = when_.load() >= torch_cuda::RecordContext::ALLOC;
    const auto entry = entry_of<TraceEntry>(action, device, reinterpret_cast<size_t>(addr), size, stream, pool, with_stack ? std::move(context) : nullptr);
    for (const auto& tracker : trackers_) tracker(entry);
    if (!on() || skipped(action)) return;
    entries_.push_back(entry);
    if (entries_.size() > most_) entries_.pop_front();
  }

  std::atomic<bool> on_{false}, tracked_{false};
  std::atomic<torch_cuda::CreateContextFn> gather_{nullptr};
  std::atomic<torch_cuda::RecordContext> when_{torch_cuda::RecordContext::NEVER};
  std::mutex mutex_;  // guards all members below
  size_t most_ = 1;
  std::vector<std::string> skip_;
  std::deque<TraceEntry> entries_;
  std::deque<AnnotationEntry> annotations_;
  std::unordered_map<void*, Block> blocks_;  // live
  std::unordered_map<void*, Block> freed_;   // whose free is pending
  std::map<size_t, Mapping> mappings_;  // by address, those that were mapped while the history was on
  std::vector<torch_cuda::AllocatorTraceTracker> trackers_;
  c10::ApproximateClockToUnixTimeConverter clock_;
};

}  // namespace memprof
