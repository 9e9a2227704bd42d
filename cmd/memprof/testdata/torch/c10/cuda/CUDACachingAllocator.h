// A stand-in for torch's header: as much of its interface as the watcher uses.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace c10 {
using DeviceIndex = int8_t;
}

namespace c10::cuda::CUDACachingAllocator {

using Pool = std::pair<unsigned long long, unsigned long long>;

struct Stat {
  int64_t current = 0, peak = 0, allocated = 0, freed = 0;
};

struct DeviceStats {
  std::array<Stat, 3> allocated_bytes, active_bytes, reserved_bytes;
};

struct TraceEntry {
  enum Action { ALLOC, FREE_REQUESTED, FREE_COMPLETED, SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP, SNAPSHOT, OOM };
  Action action_;
  DeviceIndex device_;
  size_t addr_;
  void* stream_;
  size_t size_;
  Pool mempool_;
  union {
    uint64_t approx_t_;
  } time_;
};

struct BlockInfo {
  size_t size, requested_size;
  bool allocated, active;
};

struct SegmentInfo {
  DeviceIndex device;
  size_t address, total_size;
  void* stream;
  bool is_large, is_expandable;
  Pool owner_private_pool_id;
  std::vector<BlockInfo> blocks;
};

struct SnapshotInfo {
  std::vector<SegmentInfo> segments;
};

using AllocatorTraceTracker = std::function<void(const TraceEntry&)>;

class CUDAAllocator {
 public:
  virtual ~CUDAAllocator() = default;
  virtual bool initialized() = 0;
  virtual void attachAllocatorTraceTracker(AllocatorTraceTracker tracker) = 0;
  virtual DeviceStats getDeviceStats(DeviceIndex device) = 0;
  virtual SnapshotInfo snapshot() = 0;
};

CUDAAllocator* get();

}  // namespace c10::cuda::CUDACachingAllocator
