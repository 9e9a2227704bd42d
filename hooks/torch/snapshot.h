// snapshot.h - makes torch's segments, blocks and pool states of the hook's chunks.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <algorithm>
#include <memory>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include "history.h"
#include "memprof.h"
#include "pools.h"

namespace memprof {

using torch_cuda::SegmentInfo;

// Older versions of torch do not number their segments.
template <typename Segment>
auto set_number(Segment& segment, int32_t number, int) -> decltype(segment.registration_counter, void()) {
  segment.registration_counter = number;
}
template <typename Segment>
void set_number(Segment&, int32_t, long) {}

inline bool is_pool(const memprof_segment& segment, PoolId id) { return segment.pool[0] == id.first && segment.pool[1] == id.second; }

// The bytes of a block that torch's own allocator would hand out for a request: memprof_stats.torch_bytes are sums of them.
constexpr size_t torch_bytes(size_t requested) { return (requested + 511) / 512 * 512; }

// Appends a torch segment for each mapped range of a device; of the pool `only`, unless that is
// {0, 0}. A range ends where memory is unmapped, so all memory of a segment is mapped.
inline void list_segments(DeviceIndex device, PoolId only, std::vector<SegmentInfo>& out) {
  struct Listing {
    DeviceIndex device;
    PoolId only;
    std::vector<SegmentInfo>* segments;
    bool wanted;
  } listing{device, only, &out, false};
  memprof_visitor visitor{};
  visitor.self = &listing;
  visitor.segment = [](void* self, const memprof_segment* found) {
    auto& to = *static_cast<Listing*>(self);
    to.wanted = to.only == PoolId{0, 0} || is_pool(*found, to.only);
    if (!to.wanted) return;
    SegmentInfo segment;
    segment.device = to.device;
    segment.address = found->addr;
    segment.stream = static_cast<cudaStream_t>(found->stream);
    segment.is_large = true;
    set_number(segment, found->number, 0);
    segment.is_expandable = found->from_source == 0;
    segment.owner_private_pool_id = {found->pool[0], found->pool[1]};
    to.segments->push_back(std::move(segment));
  };
  visitor.chunk = [](void* self, const memprof_chunk* chunk) {
    auto& to = *static_cast<Listing*>(self);
    if (!to.wanted) return;
    SegmentInfo& segment = to.segments->back();
    torch_cuda::BlockInfo block;
    block.size = chunk->size;
    block.requested_size = chunk->state == MEMPROF_CHUNK_FREE ? 0 : chunk->requested;
    block.allocated = chunk->state == MEMPROF_CHUNK_LIVE;
    block.active = chunk->state != MEMPROF_CHUNK_FREE;
    segment.total_size += block.size;
    segment.requested_size += block.requested_size;
    // As torch's statistics have them, which are compared with these sums; blocks have the bytes of their chunks.
    const size_t counted = torch_bytes(chunk->requested);
    segment.allocated_size += block.allocated ? counted : 0;
    segment.active_size += block.active ? counted : 0;
    segment.blocks.push_back(std::move(block));
  };
  memprof_walk(device, &visitor);
}

// What getExpandableSegmentSizes of an allocator returns; int where torch has no such function.
template <typename Allocator, typename = void>
struct SegmentSizes {
  using type = int;
};
template <typename Allocator>
struct SegmentSizes<Allocator, std::void_t<decltype(std::declval<Allocator&>().getExpandableSegmentSizes(0))>> {
  using type = decltype(std::declval<Allocator&>().getExpandableSegmentSizes(0));
};

// The mapped bytes of each stream.
template <typename Sizes>
Sizes segment_sizes(DeviceIndex device) {
  Sizes sizes{};
  if constexpr (!std::is_same_v<Sizes, int>) {
    std::vector<SegmentInfo> segments;
    list_segments(device, {0, 0}, segments);
    for (const SegmentInfo& segment : segments) {
      const auto stream = static_cast<cudaStream_t>(segment.stream);
      const auto known = std::find_if(sizes.begin(), sizes.end(), [stream](const auto& one) { return one.stream == stream; });
      if (known == sizes.end()) {
        sizes.emplace_back(stream, false, segment.total_size);
      } else {
        known->total_size += segment.total_size;
      }
    }
  }
  return sizes;
}

// Adds the stacks of segments and of live blocks. Call it after the walk: the history has a lock of its own.
inline void add_contexts(std::vector<SegmentInfo>& segments, History& history) {
  for (SegmentInfo& segment : segments) {
    size_t at = segment.address;
    segment.context_when_allocated = history.context_of_mapping(at, segment.total_size);
    for (auto& block : segment.blocks) {
      if (block.active) block.context_when_allocated = history.context_of(reinterpret_cast<void*>(at));
      at += block.size;
    }
  }
}

// The live allocations of a pool.
struct PoolState final : torch_cuda::AllocatorState {
  PoolId id{0, 0};
  std::vector<memprof_restored> blocks;
};

inline std::shared_ptr<PoolState> state_of_pool(DeviceIndex device, PoolId id) {
  struct Noting {
    PoolState* state;
    void* stream;
    bool wanted;
  };
  auto state = std::make_shared<PoolState>();
  state->id = id;
  Noting noting{state.get(), nullptr, false};
  memprof_visitor visitor{};
  visitor.self = &noting;
  visitor.segment = [](void* self, const memprof_segment* segment) {
    auto& to = *static_cast<Noting*>(self);
    to.wanted = is_pool(*segment, to.state->id);
    to.stream = segment->stream;
  };
  visitor.chunk = [](void* self, const memprof_chunk* chunk) {
    auto& to = *static_cast<Noting*>(self);
    if (to.wanted && chunk->state == MEMPROF_CHUNK_LIVE) {
      to.state->blocks.push_back({to.stream, chunk->addr, chunk->size, chunk->requested});
    }
  };
  memprof_walk(device, &visitor);
  return state;
}

inline uint64_t bytes_of(const PoolState& state) {
  uint64_t sum = 0;
  for (const auto& block : state.blocks) sum += block.size;
  return sum;
}

inline bool has_exactly(const PoolState& state, const std::unordered_set<void*>& expected) {
  if (state.blocks.size() != expected.size()) return false;
  for (const auto& block : state.blocks) {
    if (expected.count(reinterpret_cast<void*>(block.addr)) == 0) return false;
  }
  return true;
}

}  // namespace memprof
