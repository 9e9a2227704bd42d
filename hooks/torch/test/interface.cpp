// interface.cpp - calls each virtual function of torch's allocator through the shim, on the simulated GPU.
//
// The base class raises for all that the shim does not override (torch.h). The shim has no way to override a
// function whose name or parameters it does not know, so each version of torch has such calls of its own.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "memprof.h"
#include "torch.h"

extern "C" const char* memprof_torch_install();
extern "C" int cuStreamCreate(cudaStream_t* stream, unsigned flags);
extern "C" void simcuda_fault(int error);

namespace {

using c10::DeviceIndex;
using c10::MempoolId_t;
namespace torch_cuda = c10::cuda::CUDACachingAllocator;
using torch_cuda::TraceEntry;

constexpr size_t MiB = 1 << 20;
int failures = 0;

void check(bool ok, const char* what, int line) {
  if (ok) return;
  std::printf("interface.cpp:%d: torch %d: %s\n", line, TORCH, what);
  failures++;
}

template <typename Condition>
void check_of(const Condition& holds, const char* what, int line) {
  try {
    check(holds(), what, line);
  } catch (const std::exception& error) {
    check(false, (what + std::string(": ") + error.what()).c_str(), line);
  }
}

#define CHECK(condition) check_of([&]() -> bool { return (condition); }, #condition, __LINE__)
#define CALL(call) CHECK(((void)(call), true))

torch_cuda::CUDAAllocator& served() { return *torch_cuda::get(); }

const torch_cuda::SegmentInfo* segment_of(const torch_cuda::SnapshotInfo& info, const void* ptr) {
  const auto at = reinterpret_cast<size_t>(ptr);
  for (const auto& segment : info.segments) {
    if (at >= segment.address && at < segment.address + segment.total_size) return &segment;
  }
  return nullptr;
}

MempoolId_t pool_of(const void* ptr) {
  const auto info = served().snapshot();
  const auto* segment = segment_of(info, ptr);
  return segment == nullptr ? MempoolId_t(99, 99) : segment->owner_private_pool_id;
}

void allocations() {
  auto& torch = served();
  {
    auto data = torch.allocate(4 * MiB);
    CHECK(data.get() != nullptr && data.get_deleter() == torch.raw_deleter());
    CHECK(torch.getDeviceStats(0).requested_bytes[0].current == 4 * MiB);
    size_t size = 0;
    CHECK(torch.getBaseAllocation(static_cast<char*>(data.get()) + 100, &size) == data.get() && size >= 4 * MiB);
    CALL(torch.recordStream(data, {reinterpret_cast<cudaStream_t>(16)}));
  }
  void* ptr = torch.raw_alloc(MiB);
  torch.raw_delete(ptr);
  torch.raw_delete(torch.raw_alloc_with_stream(MiB, nullptr));
  CHECK(torch.raw_alloc(0) == nullptr);
  CHECK(torch.getDeviceStats(0).num_ooms == 0);
  bool thrown = false, observed = false;
  CALL(torch.attachOutOfMemoryObserver([&](int64_t, size_t bytes, size_t, size_t) { observed = bytes == 1ULL << 50; }));
  try {
    torch.raw_alloc(1ULL << 50);
  } catch (const c10::OutOfMemoryError& error) {
    thrown = std::strncmp(error.what(), "CUDA out of memory. Tried to allocate", 37) == 0;
  }
  CHECK(thrown && observed);
  size_t largest = 0;
  CALL(torch.cacheInfo(0, &largest));
  CHECK(torch.getMemoryFraction(0) == 1.0);
  CALL(torch.setMemoryFraction(0.5, 0));
  CHECK(torch.getMemoryFraction(0) == 0.5);
  CALL(torch.setMemoryFraction(1.0, 0));
  CALL(torch.emptyCache());
  CALL(torch.resetPeakStats(0));
  CALL(torch.resetAccumulatedStats(0));
  CHECK(torch.name() == "native");
  CHECK(torch.isEnabled());
  CALL(torch.enable(true));
  CHECK(c10::registered == &torch);
}

bool any_stream(cudaStream_t) { return true; }

// A pool's life by the functions that this torch has for it.
void pools() {
  auto& torch = served();
  const MempoolId_t id(0, 7);
#if TORCH >= 211
  CALL(torch.createOrIncrefPool(0, id));
  CALL(torch.setUseOnOOM(0, id, false));
  CALL(torch.setNoSplit(0, id));
#else
  CALL(torch.ensureExistsAndIncrefPool(0, id));
#endif
  CHECK(torch.getPoolUseCount(0, id) == 1);
  torch.beginAllocateToPool(0, id, any_stream);
  void* inside = torch.raw_alloc(MiB);
  torch.endAllocateToPool(0, id);
  void* outside = torch.raw_alloc(MiB);
  CHECK(pool_of(inside) == id && pool_of(outside) == MempoolId_t(0, 0));
  CHECK(torch.checkPoolLiveAllocations(0, id, {inside}));
  const auto state = torch.getCheckpointState(0, id);
  torch.raw_delete(inside);
  const auto delta = torch.setCheckpointPoolState(0, state);
  CHECK(delta.dataptrs_allocd.size() == 1 && delta.dataptrs_allocd[0].get() == inside);
#if TORCH >= 211
  CHECK(torch.snapshot(id).segments.size() == 1);
  CHECK(torch.snapshot(id, false).device_traces[0].empty());
#endif
  torch.raw_delete(outside);
  torch.releasePool(0, id);
  torch.releasePool(0, id);
}

// A MemPool with an allocator of its own takes its segments from that.
struct Source final : torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator {
  Source() : CUDAPluggableAllocator({}, {}) {}
  void* raw_alloc(size_t size) override {
    asked += size;
    return std::aligned_alloc(2 * MiB, size);
  }
  void raw_delete(void* ptr) override { std::free(ptr); }
  size_t asked = 0;
};

void pools_of_an_allocator() {
  auto& torch = served();
  const auto source = std::make_shared<Source>();
  const MempoolId_t id(0, 8);
#if TORCH >= 211
  torch.createOrIncrefPool(0, id, source);
  torch.beginAllocateToPool(0, id, any_stream);
#else
  c10::cuda::MemPool pool{id, source.get()};
  c10::cuda::MemPoolContext::active = &pool;
  torch.ensureExistsAndIncrefPool(0, id);
  torch.beginAllocateToPool(0, id, any_stream);
#endif
  std::vector<TraceEntry> segments;
  CALL(torch.attachAllocatorTraceTracker([&](const TraceEntry& entry) {
    if (entry.action_ != TraceEntry::SEGMENT_ALLOC && entry.action_ != TraceEntry::SEGMENT_FREE) return;
    void* ptr = nullptr;
    CHECK(cudaMalloc(&ptr, MiB) == cudaSuccess && memprof_block_of(ptr, &ptr, nullptr) == 0);  // NCCL's calls find the device's lock taken by this thread
    CHECK(cudaFree(ptr) == cudaSuccess);
    segments.push_back(entry);
  }));
  void* inside = torch.raw_alloc(MiB);
  void* grown = torch.raw_alloc(4 * MiB);
  torch.endAllocateToPool(0, id);
  CHECK(source->asked >= 5 * MiB);
  CHECK(segments.size() == 2 && segments[1].action_ == TraceEntry::SEGMENT_ALLOC && segments[1].addr_ == reinterpret_cast<size_t>(grown) && segments[1].size_ == 4 * MiB);
#if TORCH < 211
  CHECK(torch.snapshot().segments.size() == 2);  // of the active pool alone
  c10::cuda::MemPoolContext::active = nullptr;
#endif
  CHECK(pool_of(inside) == id);
  torch.raw_delete(inside);
  torch.raw_delete(grown);
  torch.releasePool(0, id);
  torch.releasePool(0, id);
  CHECK(segments.size() == 4 && segments.back().action_ == TraceEntry::SEGMENT_FREE);
#if TORCH >= 211
  for (const auto& entry : segments) CHECK(entry.mempool_ == id);
#endif
}

size_t gathered = 0, tracked = 0;  // global, since a tracker stays attached to the end
c10::CachingDeviceAllocator::Context gather() {
  gathered++;
  return std::make_shared<c10::GatheredContext>();
}

std::vector<TraceEntry::Action> actions(const torch_cuda::SnapshotInfo& info) {
  std::vector<TraceEntry::Action> seen;
  for (const auto& entry : info.device_traces.at(0)) seen.push_back(entry.action_);
  return seen;
}

void record(bool on, const std::vector<std::string>& skip = {}) {
#if TORCH >= 211
  served().recordHistory(on, gather, 100, torch_cuda::RecordContext::ALL, true, skip);
#else
  check(skip.empty(), "torch 2.6 skips no actions", __LINE__);
  served().recordHistory(on, gather, 100, torch_cuda::RecordContext::ALL);
#endif
}

void histories() {
  auto& torch = served();
  using Entry = TraceEntry;
  torch.raw_delete(torch.raw_alloc(512));  // so that memory is mapped
  CALL(torch.attachAllocatorTraceTracker([](const TraceEntry&) { tracked++; }));
  CHECK(!torch.isHistoryEnabled());
  CALL(record(true));
  CHECK(torch.isHistoryEnabled());
  void* ptr = torch.raw_alloc(512);
  CALL(torch.recordAnnotation({{"name", "step"}}));
#if TORCH >= 211
  std::string text = "compiled";
  CALL(torch.pushCompileContext(text));
  CALL(torch.popCompileContext());
  CALL(torch.setUserMetadata("mine"));
  CHECK(torch.getUserMetadata() == "mine");
  torch.raw_delete(torch.raw_alloc(512));
  CHECK(torch.snapshot().device_traces.at(0).back().user_metadata_ == "mine");
  torch.setUserMetadata("");
#endif
#if TORCH >= 214
  CHECK(torch.supportsUserMetadata());
  CHECK(torch.getContextForPointer(ptr) != nullptr);
  CALL(torch.annotateMemory(ptr, "kept"));
  CHECK(actions(torch.snapshot()).back() == Entry::ANNOTATE || actions(torch.snapshot()).end()[-2] == Entry::ANNOTATE);
#endif
  torch.raw_delete(ptr);
  void* whole = torch.raw_alloc(12 * MiB);  // a part of it is on a page that was mapped before
  CHECK(segment_of(torch.snapshot(), whole)->context_when_allocated != nullptr);
  torch.raw_delete(whole);
  const auto info = torch.snapshot();
  CHECK(actions(info).at(0) == Entry::ALLOC && info.external_annotations.size() == 1);
  CHECK(gathered >= 2 && tracked >= 3);
  CHECK(info.device_traces.at(0).at(0).context_ != nullptr && info.device_traces.at(0).at(0).size_ == 512);
#if TORCH >= 211
  record(true, {"free_requested", "alloc"});
  torch.raw_delete(torch.raw_alloc(512));
  CHECK(actions(torch.snapshot()) == std::vector<Entry::Action>{Entry::FREE_COMPLETED});
#endif
  record(false);
  record(true);
  cudaStream_t stream = nullptr;
  CHECK(cuStreamCreate(&stream, 1) == 0);
  {
    c10::DataPtr used = torch.allocate(512);
    torch.recordStream(used, {stream});
  }
  CHECK(actions(torch.snapshot()).back() != Entry::FREE_COMPLETED);  // the other stream may still use it
  torch.raw_delete(torch.raw_alloc(MiB));                             // looks which frees are over
  const auto completed = actions(torch.snapshot());
  CHECK(std::count(completed.begin(), completed.end(), Entry::FREE_COMPLETED) == 2);
#if TORCH >= 214
  record(true, {"alloc", "annotate"});
  ptr = torch.raw_alloc(512);
  torch.annotateMemory(ptr, "dropped");
  CHECK(actions(torch.snapshot()).empty());
  torch.raw_delete(ptr);
#endif
  CALL(record(false));
}

// The sums of a snapshot's segments and blocks.
struct Sums {
  int64_t reserved = 0, allocated = 0, active = 0, requested = 0, live = 0, used = 0;

  void add(const torch_cuda::SegmentInfo& segment) {
    reserved += static_cast<int64_t>(segment.total_size);
    allocated += static_cast<int64_t>(segment.allocated_size);
    active += static_cast<int64_t>(segment.active_size);
    requested += static_cast<int64_t>(segment.requested_size);
    for (const auto& block : segment.blocks) {
      live += block.allocated;
      used += block.active;
    }
  }
};

// Statistics have three values each: of all memory, of torch's small pool and of its large pool. Those of a pool are the
// sums of the snapshot's segments of that pool. Their unit is not that of our chunks.
void sums() {
  enum { ALL, SMALL, LARGE };
  auto& torch = served();
  auto small = torch.allocate(100), odd = torch.allocate(700), large = torch.allocate(5 * MiB + 1);
  Sums of[3];
  for (const auto& segment : torch.snapshot().segments) {
    of[ALL].add(segment);
    of[segment.is_large ? LARGE : SMALL].add(segment);
  }
  const auto stats = torch.getDeviceStats(0);
  CHECK(of[ALL].allocated % 512 == 0 && of[ALL].allocated >= 512 + 1024 + 5 * static_cast<int64_t>(MiB) + 512);
  for (int pool : {ALL, SMALL, LARGE}) {
    CHECK(of[pool].reserved == stats.reserved_bytes[pool].current);
    CHECK(of[pool].allocated == stats.allocated_bytes[pool].current);
    CHECK(of[pool].active == stats.active_bytes[pool].current);
    CHECK(of[pool].requested == stats.requested_bytes[pool].current);
    CHECK(of[pool].live == stats.allocation[pool].current);
    CHECK(of[pool].used == stats.active[pool].current);
  }
}

void others() {
  auto& torch = served();
  CALL(torch.enablePeerAccess(0, 0));
  void* ptr = torch.raw_alloc(4 * MiB);
  CHECK(torch.shareIpcHandle(static_cast<char*>(ptr) + 5).offset == 5);
#if TORCH >= 211
  size_t mapped = 0;
  for (const auto& one : torch.getExpandableSegmentSizes(0)) mapped += one.total_size;
  CHECK(mapped == static_cast<size_t>(torch.getDeviceStats(0).reserved_bytes[0].current) && mapped > 0);
#endif
#if TORCH >= 214
  CALL(torch.attachOomRejectionObserver([](int64_t, size_t, size_t, size_t) {}));
  CALL(torch.markCaptureBegin(0));
  CALL(torch.markCaptureEnd(0));
#endif
  torch.raw_delete(ptr);
}

// Work on the GPU has failed: that is what a request throws, and not that memory is short.
void fault() {
  auto& torch = served();
  simcuda_fault(700);
  bool thrown = false;
  try {
    torch.raw_alloc(900 * MiB);
  } catch (const c10::OutOfMemoryError&) {
  } catch (const c10::Error& error) {
    thrown = std::strcmp(error.what(), "CUDA error") == 0;
  }
  CHECK(thrown);
  simcuda_fault(0);
}

}  // namespace

int main() {
  auto native = std::make_shared<Source>();  // stands for torch's own, which the shim replaces
  torch_cuda::allocator.store(native.get());
  void* ptr = nullptr;
  check(cudaMalloc(&ptr, 1) == cudaSuccess, "cudaMalloc", __LINE__);
  const char* refusal = memprof_torch_install();
  check(refusal == nullptr, refusal == nullptr ? "" : refusal, __LINE__);
  allocations();
  pools();
  pools_of_an_allocator();
  histories();
  sums();
  others();
  fault();
  std::printf("torch %d.%d: %d failed\n", TORCH / 100, TORCH % 100, failures);
  return failures != 0;
}
