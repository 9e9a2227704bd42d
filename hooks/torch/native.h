// native.h - torch's own allocator, left alone and watched through its trace tracker.
//
// The tracker is called for every decision of the allocator, under the allocator's lock of
// the device: it takes no lock that others may hold for long, never the GIL, and allocates
// nothing from torch. One call into the allocator is made from there, getDeviceStats: its
// lock is recursive and has to be, since the callbacks that torch calls when memory is short
// free blocks under it.
//
// What torch tells of an entry: of blocks the bytes that were asked for, never the block's; of
// segments their own; of a failed request the rounded bytes. Blocks it has handed out again
// for a graph's checkpoint count as requests of their whole size, here as in its statistics.
//
// The tracker can be attached when CUDA has been initialised, which nothing else announces
// to C++; memprof/_watch.py knows when. Code that is not Python may have allocated before
// (see `restate`).
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

// A device is asleep until the moment of the snapshot that is restated, and held from then
// until that has been done.
enum class Watching { asleep, held, awake };
struct WatchedDevice {
  memprof_watch* watch = nullptr;
  std::atomic<Watching> state{Watching::asleep};
};

// What the attaching thread is doing: the sums of what it has restated of a device, and how
// many devices have taken their part of the snapshot.
struct Restating {
  memprof_watch_sums sums{};
  int snapshots = 0;
};

class NativeWatch {
 public:
  // Attaches the tracker. Throws what torch has against it.
  static const char* attach() {
    allocator_ = native::get();
    if (!allocator_->initialized()) return "torch's allocator cannot be watched before CUDA is initialised";
    const int count = c10::cuda::device_count();
    for (int device = 0; device < count && device < most_devices; device++) {
      devices_[device].watch = memprof_watch_device(device, "native", &read_sums);
      if (devices_[device].watch == nullptr) return "this process is not recorded";
    }
    allocator_->attachAllocatorTraceTracker(&told);
    restate();
    return nullptr;
  }

 private:
  using Entry = native::TraceEntry;
  static constexpr int most_devices = 64;

  // Entries may come while static objects are destroyed: these have nothing to destroy.
  inline static WatchedDevice devices_[most_devices];
  inline static native::CUDAAllocator* allocator_ = nullptr;

  inline static thread_local Restating* restating_ = nullptr;

  static void read_sums(int device, memprof_watch_sums* sums) {
    *sums = {};
    if (restating_ != nullptr) {
      *sums = restating_->sums;
      return;
    }
    try {
      const auto stats = allocator_->getDeviceStats(static_cast<c10::DeviceIndex>(device));
      sums->provided = static_cast<uint64_t>(stats.allocated_bytes[0].current);
      sums->provided_peak = static_cast<uint64_t>(stats.allocated_bytes[0].peak);
      sums->active = static_cast<uint64_t>(stats.active_bytes[0].current);
      sums->reserved = static_cast<uint64_t>(stats.reserved_bytes[0].current);
    } catch (const std::exception&) {
      // Zeros: readers see that they do not fit.
    }
  }

  // Not every torch tells the pool of an entry; without it segments have none either.
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

  // Torch has read the time stamp counter for the entry already, where it has one.
  static uint64_t tick_of(const Entry& entry) {
    using Time = decltype(entry.time_.approx_t_);
    return std::is_same_v<Time, uint64_t> ? static_cast<uint64_t>(entry.time_.approx_t_) : 0;
  }

  static void told(const Entry& entry) {
    if (entry.action_ == Entry::SNAPSHOT) {  // of which device it does not say
      if (restating_ != nullptr) hold_next();
      return;
    }
    const auto device = static_cast<size_t>(entry.device_);
    if (device >= most_devices) return;
    WatchedDevice& to = devices_[device];
    if (to.state.load(std::memory_order_acquire) != Watching::awake && !wait(to)) return;
    tell(to.watch, entry);
  }

  static void tell(memprof_watch* watch, const Entry& entry) {
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

  // The snapshot of the next device has been taken: what happens to it from now on comes
  // after what is restated.
  static void hold_next() {
    const int device = restating_->snapshots++;
    if (device < most_devices) devices_[device].state.store(Watching::held, std::memory_order_release);
  }

  // False for what the snapshot will have. The thread that restates waits for nobody here.
  static bool wait(WatchedDevice& device) {
    while (device.state.load(std::memory_order_acquire) == Watching::held) sched_yield();
    return device.state.load(std::memory_order_acquire) == Watching::awake;
  }

  // Tells what was there before the tracker. Usually that is nothing.
  static void restate() {
    Restating mine;
    restating_ = &mine;
    try {
      const auto snapshot = allocator_->snapshot();
      int device = -1;
      for (const auto& segment : snapshot.segments) {
        if (segment.device != device) mine.sums = {};
        device = segment.device;
        if (device >= 0 && device < most_devices) restate(devices_[device].watch, segment, mine.sums);
      }
    } catch (const std::exception& error) {
      memprof_problem((std::string("torch's memory before the first event is not known: ") + error.what()).c_str());
    }
    restating_ = nullptr;
    for (WatchedDevice& device : devices_) device.state.store(Watching::awake, std::memory_order_release);
  }

  template <typename Segment>
  static void restate(memprof_watch* watch, const Segment& segment, memprof_watch_sums& sums) {
    const Pool pool = TellsPools<Entry>::value ? Pool(segment.owner_private_pool_id) : Pool(0, 0);
    void* stream = segment.stream;
    auto addr = static_cast<uint64_t>(segment.address);
    sums.reserved += segment.total_size;
    if (!segment.is_expandable) memprof_watch_adopt(watch, addr);
    memprof_watch_map(watch, 0, addr, segment.total_size, stream, pool.first, pool.second, segment.is_expandable);
    for (const auto& block : segment.blocks) {
      if (block.active) {
        memprof_watch_alloc(watch, 0, addr, block.requested_size, stream, pool.first, pool.second);
        sums.active += block.size;
        if (block.allocated) sums.provided += block.size;
      }
      if (block.active && !block.allocated) memprof_watch_free(watch, 0, addr, block.requested_size, stream, pool.first, pool.second);
      addr += block.size;
    }
  }
};

}  // namespace memprof

// Has torch's own allocator watched, which goes on serving. Returns nullptr, or why it
// cannot be: CUDA is not initialised, or the allocator is one without a tracker.
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
