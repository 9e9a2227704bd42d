// attach.cpp - the watcher is attached to an allocator that is at work already.
//
// The allocator is a stand-in with torch's order of telling and counting: two devices, a
// recursive lock each, blocks of 512 bytes in one segment of 64 MiB, placed as torch
// places small ones.
//
// It is a library, as the shim is: `native load attach.so WHAT`.
//
//   early   1,700 bytes live and 300 pending, then a thread that allocates and frees
//           all the while; in the end 2,200 bytes are live on device 0
//   none    before the allocator is initialised: the watcher refuses
#include "native.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

namespace native = c10::cuda::CUDACachingAllocator;
using native::TraceEntry;

namespace {

constexpr size_t segment_bytes = size_t{64} << 20, devices = 2;

struct Block {
  size_t requested;
  bool allocated;
};

struct Device {
  std::recursive_mutex lock;
  c10::DeviceIndex index;
  size_t base;
  std::map<size_t, Block> blocks;  // live and pending
  native::DeviceStats stats;
  std::vector<native::AllocatorTraceTracker> trackers;

  size_t bytes() const { return index == 0 ? segment_bytes : size_t{2} << 20; }  // of its segment; torch's for small blocks is the latter

  void report(TraceEntry::Action action, size_t addr, size_t size) {
    TraceEntry entry{action, action == TraceEntry::SNAPSHOT ? c10::DeviceIndex(0) : index, addr, nullptr, size, {0, 0}, {__builtin_ia32_rdtsc()}};
    for (const auto& tracker : trackers) tracker(entry);
  }
};

Device all[devices];
bool initialized = false;

size_t rounded(size_t size) { return (size + 511) / 512 * 512; }

void count(std::array<native::Stat, 3>& stat, int64_t amount) {
  stat[0].current += amount;
  if (stat[0].current > stat[0].peak) stat[0].peak = stat[0].current;
}

size_t take(Device& device, size_t size) {
  std::lock_guard<std::recursive_mutex> guard(device.lock);
  if (device.stats.reserved_bytes[0].current == 0) {
    count(device.stats.reserved_bytes, device.bytes());
    device.report(TraceEntry::SEGMENT_ALLOC, device.base, device.bytes());
  }
  size_t at = device.base, addr = 0, fits = 2 * device.bytes();  // the smallest free block that fits, the first of equal ones
  const auto look = [&](size_t end) {
    if (end - at >= rounded(size) && end - at < fits) addr = at, fits = end - at;
  };
  for (const auto& [start, block] : device.blocks) {
    look(start);
    at = start + rounded(block.requested);
  }
  look(device.base + device.bytes());
  device.blocks[addr] = {size, true};
  device.report(TraceEntry::ALLOC, addr, size);
  count(device.stats.allocated_bytes, static_cast<int64_t>(rounded(size)));
  count(device.stats.active_bytes, static_cast<int64_t>(rounded(size)));
  return addr;
}

void complete(Device& device, size_t addr) {
  std::lock_guard<std::recursive_mutex> guard(device.lock);
  const size_t size = device.blocks.at(addr).requested;
  device.report(TraceEntry::FREE_COMPLETED, addr, size);
  device.blocks.erase(addr);
  count(device.stats.active_bytes, -static_cast<int64_t>(rounded(size)));
}

void give(Device& device, size_t addr, bool pending) {
  std::lock_guard<std::recursive_mutex> guard(device.lock);
  Block& block = device.blocks.at(addr);
  block.allocated = false;
  count(device.stats.allocated_bytes, -static_cast<int64_t>(rounded(block.requested)));
  device.report(TraceEntry::FREE_REQUESTED, addr, block.requested);
  if (!pending) complete(device, addr);
}

class Allocator final : public native::CUDAAllocator {
 public:
  bool initialized() override { return ::initialized; }

  void attachAllocatorTraceTracker(native::AllocatorTraceTracker tracker) override {
    for (Device& device : all) {
      std::lock_guard<std::recursive_mutex> guard(device.lock);
      device.trackers.push_back(tracker);
    }
  }

  native::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    std::lock_guard<std::recursive_mutex> guard(all[index].lock);
    return all[index].stats;
  }

  native::SnapshotInfo snapshot() override {
    native::SnapshotInfo result;
    for (Device& device : all) {
      {
        std::lock_guard<std::recursive_mutex> guard(device.lock);
        if (device.stats.reserved_bytes[0].current > 0) result.segments.push_back(segment_of(device));
        device.report(TraceEntry::SNAPSHOT, 0, 0);
      }
      // Whoever waits for the lock gets it now, before anything has been restated.
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return result;
  }

 private:
  static native::SegmentInfo segment_of(const Device& device) {
    native::SegmentInfo segment{device.index, device.base, device.bytes(), nullptr, false, false, {0, 0}, {}};
    size_t at = device.base;
    for (const auto& [addr, block] : device.blocks) {
      if (addr > at) segment.blocks.push_back({addr - at, 0, false, false});
      segment.blocks.push_back({rounded(block.requested), block.requested, block.allocated, true});
      at = addr + rounded(block.requested);
    }
    segment.blocks.push_back({device.base + device.bytes() - at, 0, false, false});
    return segment;
  }
};

}  // namespace

native::CUDAAllocator* native::get() {
  static Allocator allocator;
  return &allocator;
}

c10::DeviceIndex c10::cuda::device_count() { return devices; }

extern "C" int run(const char* what) {
  if (std::strcmp(what, "none") == 0) {
    const char* refusal = memprof_torch_watch();
    std::puts(refusal == nullptr ? "attached" : refusal);
    return 0;
  }
  for (size_t i = 0; i < devices; i++) {
    all[i].index = static_cast<c10::DeviceIndex>(i);
    all[i].base = (size_t{1} << 40) * (i + 1);
  }
  initialized = true;
  Device& device = all[0];
  take(device, 1000);
  const size_t freed = take(device, 3000), waits = take(device, 300);
  take(device, 700);
  give(device, freed, false);
  give(device, waits, true);
  std::atomic<bool> started{false}, attached{false};
  std::thread other([&] {
    size_t live[32] = {};
    const auto drop = [&](size_t& addr, bool pending) {
      if (addr != 0) give(device, addr, pending);
      if (addr != 0 && pending) complete(device, addr);
      addr = 0;
    };
    for (size_t i = 0, after = 0; after < 2000; i++, after += attached) {
      drop(live[i % 32], i % 7 == 0);
      live[i % 32] = take(device, 100 + i % 5000);
      started = i >= 32;
    }
    for (size_t& addr : live) drop(addr, false);
  });
  while (!started) std::this_thread::yield();
  const char* refusal = memprof_torch_watch();
  if (refusal != nullptr) {
    std::puts(refusal);
    std::_Exit(1);
  }
  attached = true;
  other.join();
  complete(device, waits);
  take(device, 500);
  take(all[1], 4000);
  memprof_iteration("");
  return 0;
}
