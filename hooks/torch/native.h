// native.h - observes torch's own allocator through its trace tracker.
//
// Torch calls the tracker for every decision of the allocator, and holds the allocator's lock
// of the device meanwhile. So the tracker takes no lock that others may hold for long, never
// the GIL, and allocates nothing from torch. It makes one call into the allocator,
// getDeviceStats: the allocator's lock is recursive, since callbacks that torch makes when
// memory is short free blocks under it.
//
// The size of an entry is, for blocks, the bytes requested, never the block's size; for
// segments, their size; for a failed request, the bytes rounded up. A block that torch hands
// out again for a graph's checkpoint counts as a request of its whole size, as it does in
// torch's statistics.
//
// The tracker can be attached once CUDA is initialised. C++ gets no notice of that; Python
// does (memprof/_watch.py). `record_existing` records the memory that is there by then: of code other than
// Python, or of a job that runs for long (memprof.watch). Torch has no way to detach a tracker, so it stays when the
// recording ends, ignores what it is told, and serves the next one.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <string>
#include <type_traits>
#include <utility>

#include "memprof.h"

namespace memprof {

namespace native = c10::cuda::CUDACachingAllocator;

// What happens to a device's entries: `ignored` until its snapshot has been taken, which has
// them; `waiting` from then until the snapshot has been recorded; then `recorded`.
enum class Entries { ignored, waiting, recorded };
struct ObservedDevice {
  memprof_watch* watch = nullptr;
  std::atomic<Entries> entries{Entries::ignored};
};

// The progress of the attaching thread: sums of what it has recorded of the snapshot of one
// device, and how many devices torch has taken a snapshot of.
struct Existing {
  memprof_watch_sums sums{};
  int snapshots = 0;
};

class NativeWatch {
 public:
  // Attaches the tracker. Returns nullptr or the reason why not; throws torch's exceptions.
  static const char* attach() {
    if (allocator_ == nullptr) allocator_ = native::get();
    if (allocator_ != native::get()) return "the job has exchanged torch's allocator since it was observed";
    if (!allocator_->initialized()) return "torch's allocator cannot be observed before CUDA is initialised";
    const int count = c10::cuda::device_count();
    for (int device = 0; device < count && device < most_devices; device++) {
      devices_[device].watch = memprof_watch_device(device, "native", &read_sums);
      if (devices_[device].watch == nullptr) return "this process is not recorded";
    }
    if (!attached_) allocator_->attachAllocatorTraceTracker(&on_entry);
    attached_ = true;
    record_existing();
    return nullptr;
  }

  // From its return on no thread records an entry. A tracker runs under the allocator's lock, which reading the sums takes.
  static void detach() {
    for (ObservedDevice& device : devices_) device.entries.store(Entries::ignored, std::memory_order_release);
    for (int device = 0; attached_ && device < most_devices && devices_[device].watch != nullptr; device++) {
      memprof_watch_sums sums;
      read_sums(device, &sums);
    }
  }

 private:
  using Entry = native::TraceEntry;
  static constexpr int most_devices = 64;

  // Entries may come while static objects are destroyed: these have no destructor.
  inline static ObservedDevice devices_[most_devices];
  inline static native::CUDAAllocator* allocator_ = nullptr;
  inline static bool attached_ = false;

  inline static thread_local Existing* existing_ = nullptr;  // not null in the thread that attaches

  static void read_sums(int device, memprof_watch_sums* sums) {
    *sums = {};
    if (existing_ != nullptr) {
      *sums = existing_->sums;
      return;
    }
    try {
      const auto stats = allocator_->getDeviceStats(static_cast<c10::DeviceIndex>(device));
      sums->provided = static_cast<uint64_t>(stats.allocated_bytes[0].current);
      sums->provided_peak = static_cast<uint64_t>(stats.allocated_bytes[0].peak);
      sums->active = static_cast<uint64_t>(stats.active_bytes[0].current);
      sums->reserved = static_cast<uint64_t>(stats.reserved_bytes[0].current);
    } catch (const std::exception&) {
      // The sums stay 0. The analysis sees that they do not match, and ignores them.
    }
  }

  // Older versions of torch do not give the pool of an entry. Then segments get none either.
  using Pool = std::pair<uint64_t, uint64_t>;
  template <typename T, typename = void>
  struct TellsPools : std::false_type {};
  template <typename T>
  struct TellsPools<T, std::void_t<decltype(std::declval<const T&>().mempool_)>> : std::true_type {};

  template <typename T>
  static Pool pool_of(const T& entry) {
    if constexpr (TellsPools<T>::value) return {entry.mempool_.first, entry.mempool_.second};
    return {0, 0};
  }

  // The processor's time stamp counter, if torch has read it for the entry; else 0.
  static uint64_t tick_of(const Entry& entry) {
    using Time = decltype(entry.time_.approx_t_);
    return std::is_same_v<Time, uint64_t> ? static_cast<uint64_t>(entry.time_.approx_t_) : 0;
  }

  static void on_entry(const Entry& entry) {
    if (entry.action_ == Entry::SNAPSHOT) {  // the entry does not name the device: they come in order
      if (existing_ != nullptr) snapshot_taken();
      return;
    }
    const auto device = static_cast<size_t>(entry.device_);
    if (device >= most_devices) return;
    ObservedDevice& to = devices_[device];
    if (to.entries.load(std::memory_order_acquire) != Entries::recorded && !wait(to)) return;
    record(to.watch, entry);
  }

  static void record(memprof_watch* watch, const Entry& entry) {
    const uint64_t tick = tick_of(entry);
    const auto addr = static_cast<uint64_t>(entry.addr_);
    const auto size = static_cast<uint64_t>(entry.size_);
    void* stream = entry.stream_;
    const auto pool = pool_of(entry);
    switch (entry.action_) {
      case Entry::ALLOC: return memprof_watch_alloc(watch, tick, addr, size, stream, pool.first, pool.second);
      case Entry::FREE_REQUESTED: return memprof_watch_free(watch, tick, addr, size, stream, pool.first, pool.second);
      case Entry::FREE_COMPLETED: return memprof_watch_free_done(watch, tick, addr, size, stream, pool.first, pool.second);
      case Entry::SEGMENT_ALLOC: return memprof_watch_map(watch, tick, addr, size, stream, pool.first, pool.second, 0);
      case Entry::SEGMENT_FREE: return memprof_watch_unmap(watch, tick, addr, size, stream, pool.first, pool.second, 0);
      case Entry::SEGMENT_MAP: return memprof_watch_map(watch, tick, addr, size, stream, pool.first, pool.second, 1);
      case Entry::SEGMENT_UNMAP: return memprof_watch_unmap(watch, tick, addr, size, stream, pool.first, pool.second, 1);
      case Entry::OOM: return memprof_watch_oom(watch, tick, size, stream, pool.first, pool.second);
      default: return;
    }
  }

  // Torch has taken the snapshot of the next device. Later entries of that device must be
  // recorded after the snapshot.
  static void snapshot_taken() {
    const int device = existing_->snapshots++;
    if (device < most_devices) devices_[device].entries.store(Entries::waiting, std::memory_order_release);
  }

  // Waits until an entry of the device may be recorded. Returns false if the snapshot will
  // have the entry.
  static bool wait(ObservedDevice& device) {
    while (device.entries.load(std::memory_order_acquire) == Entries::waiting) sched_yield();
    return device.entries.load(std::memory_order_acquire) == Entries::recorded;
  }

  // Records the memory that existed before the tracker was attached, in the order that memprof_watch_adopt asks for.
  static void record_existing() {
    Existing mine;
    existing_ = &mine;
    try {
      const auto snapshot = allocator_->snapshot();
      for (int device = 0; device < most_devices && devices_[device].watch != nullptr; device++) {
        mine.sums = {};
        for (const auto& segment : snapshot.segments) {
          if (segment.device == device) record_segment(devices_[device].watch, segment, mine.sums);
        }
        for (const auto& segment : snapshot.segments) {
          if (segment.device == device) record_blocks(devices_[device].watch, segment, mine.sums);
        }
      }
    } catch (const std::exception& error) {
      memprof_problem((std::string("torch's memory from before the first event is not recorded: ") + error.what()).c_str());
    }
    existing_ = nullptr;
    for (ObservedDevice& device : devices_) device.entries.store(Entries::recorded, std::memory_order_release);
  }

  template <typename Segment>
  static Pool pool_of_segment(const Segment& segment) {
    return TellsPools<Entry>::value ? Pool(segment.owner_private_pool_id) : Pool(0, 0);
  }

  template <typename Segment>
  static void record_segment(memprof_watch* watch, const Segment& segment, memprof_watch_sums& sums) {
    const Pool pool = pool_of_segment(segment);
    const auto addr = static_cast<uint64_t>(segment.address);
    sums.reserved += segment.total_size;
    memprof_watch_adopt(watch, addr, !segment.is_large);
    memprof_watch_map(watch, 0, addr, segment.total_size, segment.stream, pool.first, pool.second, segment.is_expandable);
  }

  template <typename Segment>
  static void record_blocks(memprof_watch* watch, const Segment& segment, memprof_watch_sums& sums) {
    const Pool pool = pool_of_segment(segment);
    auto addr = static_cast<uint64_t>(segment.address) + segment.total_size;
    for (auto block = segment.blocks.rbegin(); block != segment.blocks.rend(); ++block) {
      addr -= block->size;
      if (!block->active) continue;
      memprof_watch_adopt_block(watch, addr, block->size);
      memprof_watch_alloc(watch, 0, addr, block->requested_size, segment.stream, pool.first, pool.second);
      sums.active += block->size;
      if (block->allocated) sums.provided += block->size;
      if (!block->allocated) memprof_watch_free(watch, 0, addr, block->requested_size, segment.stream, pool.first, pool.second);
    }
  }
};

}  // namespace memprof

// Observes torch's own allocator, which continues to serve. Returns nullptr, or the reason
// why that failed: CUDA is not initialised, or the allocator has no tracker.
extern "C" __attribute__((visibility("default"))) const char* memprof_torch_watch() {
  static thread_local std::string why;
  if (memprof_abi() != MEMPROF_ABI) return "the shim was built for another version of the capture hook";
  try {
    return memprof::NativeWatch::attach();
  } catch (const std::exception& error) {
    why = error.what();
    why.resize(std::min(why.size(), why.find('\n')));  // torch's backtrace follows
    return why.c_str();
  }
}

// Ends that, until memprof_torch_watch is called again. Call it before memprof_end.
extern "C" __attribute__((visibility("default"))) void memprof_torch_unwatch() { memprof::NativeWatch::detach(); }
