// torch.h - what the shim uses of torch, reduced: declarations of our own of the interface of torch TORCH (206 is
// 2.6), with as much of a body as a test of the shim needs.
//
// Every version's interface is here, so that the shim is compiled for each where there is no torch. The virtual
// functions of CUDAAllocator raise, unless a subclass overrides them: torch's plug-in allocator, the base class of the
// shim's, overrides next to none of those that jobs depend on. Names, types and order of parameters are torch's;
// gpu-check compiles the shim against torch's own.
//
// What changed in the allocator's interface, by the headers of 2.6.0, 2.11.0 and 2.14.1, and what the shim does about it:
//
//   2.11  entries of the history have their pool; emptyCache and snapshot name a pool; recordHistory clears and skips;
//         the allocator is a DeviceAllocator
//         createOrIncrefPool, which has the pool's          has both; before, the allocator is known only while the pool is
//           allocator, for ensureExistsAndIncrefPool          active (MemPoolContext)
//   2.14  C++20: headers do not compile as C++17            is compiled as C++20 if C++17 fails
//         attachOomRejectionObserver                        accepts observers; it never refuses before the driver is asked
//         markCaptureBegin, markCaptureEnd                  needs neither: the hook sees captures by the driver's calls
//         getContextForPointer                              answers from the history
//         supportsUserMetadata, which says no otherwise     answers yes
//         annotateMemory, the action ANNOTATE               adds the note to the history
//         allocateWithAddress                               lacks it: torch raises, and doctor says so
//         SnapshotInfo: pinned memory, two more settings    takes both from torch's own allocator
//         DeviceStats: reserved bytes of private pools      leaves them empty
//         retain_pool of CUDAGraph                          createOrIncrefPool, as for a MemPool
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#if TORCH >= 214 && __cplusplus < 202002L
#error "torch 2.14 needs C++20"
#endif

namespace c10 {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct OutOfMemoryError : Error {
  using Error::Error;
};

template <typename... Parts>
std::string text_of(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

#define TORCH_CHECK(condition, ...) ((condition) ? (void)0 : throw ::c10::Error(::c10::text_of(__VA_ARGS__)))
#define TORCH_CHECK_WITH(type, condition, ...) ((condition) ? (void)0 : throw ::c10::type(::c10::text_of(__VA_ARGS__)))

#define C10_CUDA_CHECK(call) TORCH_CHECK((call) == cudaSuccess, "CUDA error")

using DeviceIndex = int8_t;
enum class DeviceType : int8_t { CPU = 0, CUDA = 1 };
struct Device {
  Device(DeviceType kind, DeviceIndex number) : type(kind), index(number) {}
  DeviceType type;
  DeviceIndex index;
};

using DeleterFnPtr = void (*)(void*);
class DataPtr {
 public:
  DataPtr(void* data, void* context, DeleterFnPtr deleter, Device) : data_(data), context_(context, deleter) {}
  void* get() const { return data_; }
  DeleterFnPtr get_deleter() const { return context_.get_deleter(); }

 private:
  void* data_;
  std::unique_ptr<void, DeleterFnPtr> context_;
};

struct Allocator {
  virtual ~Allocator() = default;
  virtual DataPtr allocate(size_t size) = 0;
  virtual DeleterFnPtr raw_deleter() const { return nullptr; }
  virtual void copy_data(void*, const void*, size_t) const = 0;
};
inline Allocator* registered = nullptr;
inline void SetAllocator(DeviceType, Allocator* allocator) { registered = allocator; }

struct GatheredContext {
  virtual ~GatheredContext() = default;
};

// The profiler and the trace are off here.
inline bool memoryProfilingEnabled() { return false; }
inline void reportMemoryUsageToProfiler(void*, int64_t, size_t, size_t, Device) {}
inline void reportOutOfMemoryToProfiler(int64_t, size_t, size_t, Device) {}
namespace impl {
struct PyInterpreter {
  void trace_gpu_memory_allocation(DeviceType, uintptr_t) const {}
  void trace_gpu_memory_deallocation(DeviceType, uintptr_t) const {}
  const PyInterpreter* operator->() const { return this; }
};
struct GPUTrace {
  static const PyInterpreter* get_trace() { return nullptr; }
};
}  // namespace impl

using approx_time_t = uint64_t;
using time_t = int64_t;
inline approx_time_t getApproximateTime() { return 1; }
struct ApproximateClockToUnixTimeConverter {
  std::function<time_t(approx_time_t)> makeConverter() {
    return [](approx_time_t time) { return static_cast<time_t>(time); };
  }
};

struct FreeMemoryCallback {
  virtual ~FreeMemoryCallback() = default;
  virtual bool Execute() = 0;
};
struct CallbackRegistry {
  std::vector<std::string> Keys() const { return {}; }
  std::unique_ptr<FreeMemoryCallback> Create(const std::string&) { return nullptr; }
};
inline CallbackRegistry* FreeCudaMemoryCallbacksRegistry() {
  static CallbackRegistry registry;
  return &registry;
}

using CaptureId_t = unsigned long long;
using MempoolId_t = std::pair<CaptureId_t, CaptureId_t>;

namespace cuda {
using c10::MempoolId_t;
inline DeviceIndex current_device() {
  int device = 0;
  cudaGetDevice(&device);
  return static_cast<DeviceIndex>(device);
}
inline void set_device(DeviceIndex device) { cudaSetDevice(device); }
inline DeviceIndex device_count() {
  int count = 0;
  cudaGetDeviceCount(&count);
  return static_cast<DeviceIndex>(count);
}
struct CUDAStream {
  cudaStream_t stream() const { return handle; }
  operator cudaStream_t() const { return handle; }
  cudaStream_t handle;
};
inline CUDAStream getCurrentCUDAStream(DeviceIndex) { return {nullptr}; }
}  // namespace cuda

namespace CachingDeviceAllocator {

struct Stat {
  int64_t current = 0, peak = 0, allocated = 0, freed = 0;
};
using StatArray = std::array<Stat, 3>;
struct DeviceStats {
  StatArray allocation, segment, active, inactive_split, allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes, requested_bytes;
#if TORCH >= 214
  std::map<MempoolId_t, StatArray> reserved_bytes_by_private_pools;
  int64_t num_oom_rejections = 0;
#endif
  Stat oversize_allocations, oversize_segments;
  int64_t num_alloc_retries = 0, num_ooms = 0, num_sync_all_streams = 0, num_device_alloc = 0, num_device_free = 0, max_split_size = 0;
};

// A stream in torch's structures, of which later ones are not CUDA's alone.
#if TORCH >= 211
using Stream = void*;
#else
using Stream = cudaStream_t;
#endif
using Context = std::shared_ptr<GatheredContext>;
using CreateContextFn = Context (*)();
enum struct RecordContext { NEVER = 0, STATE = 1, ALLOC = 2, ALL = 3 };

struct BlockInfo {
  size_t size = 0, requested_size = 0;
  int32_t gc_counter = 0;
  bool allocated = false, active = false;
  Context context_when_allocated;
};
struct SegmentInfo {
  DeviceIndex device = 0;
#if TORCH >= 211
  int32_t registration_counter = -1;
#endif
  size_t address = 0, total_size = 0, requested_size = 0, allocated_size = 0, active_size = 0;
  Stream stream = nullptr;
  bool is_large = false, is_expandable = false;
  MempoolId_t owner_private_pool_id = {0, 0};
  std::vector<BlockInfo> blocks;
  Context context_when_allocated;
};

union trace_time_ {
  time_t t_;
  approx_time_t approx_t_;
};
struct TraceEntry {
  enum Action {
    ALLOC, FREE_REQUESTED, FREE_COMPLETED, SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP, SNAPSHOT, OOM,
#if TORCH >= 214
    ANNOTATE,
#endif
  };
#if TORCH >= 211
  TraceEntry(Action action, DeviceIndex device, size_t addr, size_t size, Stream stream, MempoolId_t pool, approx_time_t time, Context context = nullptr,
             std::string compile_context = "", std::string user_metadata = "")
      : action_(action), device_(device), addr_(addr), context_(std::move(context)), stream_(stream), size_(size), mempool_(pool),
        compile_context_(std::move(compile_context)), user_metadata_(std::move(user_metadata)) {
#else
  TraceEntry(Action action, DeviceIndex device, size_t addr, size_t size, Stream stream, approx_time_t time, Context context = nullptr)
      : action_(action), device_(device), addr_(addr), context_(std::move(context)), stream_(stream), size_(size) {
#endif
    time_.approx_t_ = time;
  }
  Action action_;
  DeviceIndex device_;
  size_t addr_;
  Context context_;
  Stream stream_;
  size_t size_;
#if TORCH >= 211
  MempoolId_t mempool_;
  std::string compile_context_, user_metadata_;
#endif
  trace_time_ time_{};
};
struct AnnotationEntry {
  AnnotationEntry(DeviceIndex device, approx_time_t time) : device_(device) { time_.approx_t_ = time; }
  void recordUserMetadata(const std::string& name, std::string value) { metadata_[name] = std::move(value); }
  DeviceIndex device_;
  trace_time_ time_{};
  std::unordered_map<std::string, std::string> metadata_;
};
using AllocatorTraceTracker = std::function<void(const TraceEntry&)>;

}  // namespace CachingDeviceAllocator

#if TORCH >= 211
struct DeviceAllocator : Allocator {
  virtual bool initialized() = 0;
  virtual void emptyCache(MempoolId_t pool = {0, 0}) = 0;
  virtual CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) = 0;
  virtual void resetAccumulatedStats(DeviceIndex device) = 0;
  virtual void resetPeakStats(DeviceIndex device) = 0;
};
#else
using DeviceAllocator = Allocator;
#endif

namespace cuda::CUDACachingAllocator {

using namespace CachingDeviceAllocator;
struct AllocatorState {
  virtual ~AllocatorState() = default;
};
struct AllocatorConfigInfo {
  size_t max_split_size = 0;
  bool expandable_segments = false;
};
struct SnapshotInfo {
  std::vector<SegmentInfo> segments;
  std::vector<std::vector<TraceEntry>> device_traces;
  std::vector<AnnotationEntry> external_annotations;
  AllocatorConfigInfo config_metadata;
};
struct CheckpointDelta {
  std::vector<void*> ptrs_freed;
  std::vector<DataPtr> dataptrs_allocd;
};
struct ShareableHandle {
  ptrdiff_t offset;
  std::string handle;
};
using OutOfMemoryObserver = std::function<void(int64_t, size_t, size_t, size_t)>;
struct StreamSegmentSize {
  StreamSegmentSize(cudaStream_t s, bool small, size_t bytes) : stream(s), is_small_pool(small), total_size(bytes) {}
  cudaStream_t stream;
  bool is_small_pool;
  size_t total_size;
};

// Raises, as torch does for what a plug-in allocator does not answer.
#define UNSUPPORTED(name) \
  { throw ::c10::Error("pluggable does not yet support " name); }

class CUDAAllocator : public DeviceAllocator {
 public:
  virtual void* raw_alloc(size_t) = 0;
  virtual void* raw_alloc_with_stream(size_t, cudaStream_t) = 0;
  virtual void raw_delete(void*) = 0;
  virtual void init(int) = 0;
  virtual void setMemoryFraction(double, DeviceIndex) = 0;
  virtual double getMemoryFraction(DeviceIndex) = 0;
  virtual void enable(bool) = 0;
  virtual bool isEnabled() const = 0;
  virtual void cacheInfo(DeviceIndex, size_t*) = 0;
  virtual void* getBaseAllocation(void*, size_t*) = 0;
  virtual void recordStream(const DataPtr&, CUDAStream) = 0;
  virtual void beginAllocateToPool(DeviceIndex, MempoolId_t, std::function<bool(cudaStream_t)>) = 0;
  virtual void endAllocateToPool(DeviceIndex, MempoolId_t) = 0;
  virtual void releasePool(DeviceIndex, MempoolId_t) = 0;
  virtual int getPoolUseCount(DeviceIndex, MempoolId_t) UNSUPPORTED("getPoolUseCount")
  virtual bool checkPoolLiveAllocations(DeviceIndex, MempoolId_t, const std::unordered_set<void*>&) UNSUPPORTED("checkPoolLiveAllocations")
  virtual ShareableHandle shareIpcHandle(void*) = 0;
  virtual std::shared_ptr<void> getIpcDevPtr(std::string) = 0;
  virtual bool isHistoryEnabled() UNSUPPORTED("isHistoryEnabled")
  virtual void recordAnnotation(const std::vector<std::pair<std::string, std::string>>&) {}
  virtual void attachOutOfMemoryObserver(OutOfMemoryObserver) = 0;
  virtual void attachAllocatorTraceTracker(AllocatorTraceTracker) = 0;
  virtual void enablePeerAccess(DeviceIndex, DeviceIndex) = 0;
  virtual std::shared_ptr<AllocatorState> getCheckpointState(DeviceIndex, MempoolId_t) = 0;
  virtual CheckpointDelta setCheckpointPoolState(DeviceIndex, std::shared_ptr<AllocatorState>) = 0;
  virtual std::string name() = 0;
#if TORCH >= 211
  virtual SnapshotInfo snapshot(MempoolId_t pool = {0, 0}, bool include_traces = true) = 0;
  virtual void recordHistory(bool, CreateContextFn, size_t, RecordContext, bool, const std::vector<std::string>&) = 0;
  virtual void createOrIncrefPool(DeviceIndex, MempoolId_t, std::shared_ptr<CUDAAllocator> = nullptr) UNSUPPORTED("createOrIncrefPool")
  virtual void setUseOnOOM(DeviceIndex, MempoolId_t, bool) UNSUPPORTED("setUseOnOOM")
  virtual void setNoSplit(DeviceIndex, MempoolId_t) UNSUPPORTED("setNoSplit")
  virtual std::vector<StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex) UNSUPPORTED("getExpandableSegmentSizes")
  virtual void pushCompileContext(std::string&) {}
  virtual void popCompileContext() {}
  virtual void setUserMetadata(const std::string&) {}
  virtual std::string getUserMetadata() { return ""; }
#else
  virtual bool initialized() = 0;
  virtual void emptyCache() = 0;
  virtual DeviceStats getDeviceStats(DeviceIndex) = 0;
  virtual void resetAccumulatedStats(DeviceIndex) = 0;
  virtual void resetPeakStats(DeviceIndex) = 0;
  virtual SnapshotInfo snapshot() = 0;
  virtual void recordHistory(bool, CreateContextFn, size_t, RecordContext) = 0;
  virtual void ensureExistsAndIncrefPool(DeviceIndex, MempoolId_t) UNSUPPORTED("ensureExistsAndIncrefPool")
#endif
#if TORCH >= 214
  virtual void markCaptureBegin(DeviceIndex) {}
  virtual void markCaptureEnd(DeviceIndex) {}
  virtual std::shared_ptr<GatheredContext> getContextForPointer(const void*) { return nullptr; }
  virtual bool supportsUserMetadata() { return false; }
  virtual void annotateMemory(const void*, const std::string&) {}
  virtual void attachOomRejectionObserver(OutOfMemoryObserver) = 0;
  virtual DataPtr allocateWithAddress(size_t, void*) UNSUPPORTED("allocateWithAddress")
#endif
};

inline std::atomic<CUDAAllocator*> allocator{nullptr};
inline CUDAAllocator* get() { return allocator.load(); }

}  // namespace cuda::CUDACachingAllocator

#if TORCH < 211
namespace cuda {
struct MemPool {
  MempoolId_t id() { return id_; }
  CUDACachingAllocator::CUDAAllocator* allocator() { return allocator_; }
  MempoolId_t id_;
  CUDACachingAllocator::CUDAAllocator* allocator_;
};
struct MemPoolContext {
  static MemPool* getActiveMemPool() { return active; }
  static inline MemPool* active = nullptr;
};
}  // namespace cuda
#endif

}  // namespace c10

namespace torch::cuda::CUDAPluggableAllocator {

using namespace c10::cuda::CUDACachingAllocator;
using c10::DataPtr;
using c10::DeviceIndex;
using c10::MempoolId_t;

// Answers what torch's own class of the name answers, and raises for the rest.
struct CUDAPluggableAllocator : CUDAAllocator {
  CUDAPluggableAllocator(std::function<void*(size_t, int, cudaStream_t)>, std::function<void(void*, size_t, int, cudaStream_t)>) {}
  DataPtr allocate(size_t) override UNSUPPORTED("allocate")
  void* raw_alloc(size_t) override UNSUPPORTED("raw_alloc")
  void* raw_alloc_with_stream(size_t, cudaStream_t) override UNSUPPORTED("raw_alloc_with_stream")
  void raw_delete(void*) override UNSUPPORTED("raw_delete")
  void copy_data(void*, const void*, size_t) const override {}
  void init(int) override { initialized_ = true; }
  bool initialized() override { return initialized_; }
  void setMemoryFraction(double, DeviceIndex) override UNSUPPORTED("setMemoryFraction")
  double getMemoryFraction(DeviceIndex) override UNSUPPORTED("getMemoryFraction")
  void enable(bool) override {}
  bool isEnabled() const override { return true; }
  void cacheInfo(DeviceIndex, size_t*) override UNSUPPORTED("cacheInfo")
  void* getBaseAllocation(void*, size_t*) override UNSUPPORTED("getBaseAllocation")
  void recordStream(const DataPtr&, c10::cuda::CUDAStream) override UNSUPPORTED("recordStream")
  DeviceStats getDeviceStats(DeviceIndex) override UNSUPPORTED("getDeviceStats")
  void resetAccumulatedStats(DeviceIndex) override UNSUPPORTED("resetAccumulatedStats")
  void resetPeakStats(DeviceIndex) override UNSUPPORTED("resetPeakStats")
  void beginAllocateToPool(DeviceIndex, MempoolId_t, std::function<bool(cudaStream_t)>) override UNSUPPORTED("beginAllocateToPool")
  void endAllocateToPool(DeviceIndex, MempoolId_t) override UNSUPPORTED("endAllocateToPool")
  void releasePool(DeviceIndex, MempoolId_t) override UNSUPPORTED("releasePool")
  ShareableHandle shareIpcHandle(void*) override UNSUPPORTED("shareIpcHandle")
  std::shared_ptr<void> getIpcDevPtr(std::string) override UNSUPPORTED("getIpcDevPtr")
  void attachOutOfMemoryObserver(OutOfMemoryObserver) override UNSUPPORTED("attachOutOfMemoryObserver")
  void attachAllocatorTraceTracker(AllocatorTraceTracker) override UNSUPPORTED("attachAllocatorTraceTracker")
  void enablePeerAccess(DeviceIndex, DeviceIndex) override {}
  std::shared_ptr<AllocatorState> getCheckpointState(DeviceIndex, MempoolId_t) override UNSUPPORTED("getCheckpointState")
  CheckpointDelta setCheckpointPoolState(DeviceIndex, std::shared_ptr<AllocatorState>) override UNSUPPORTED("setCheckpointPoolState")
  std::string name() override { return "pluggable"; }
#if TORCH >= 211
  void emptyCache(MempoolId_t = {0, 0}) override UNSUPPORTED("emptyCache")
  SnapshotInfo snapshot(MempoolId_t, bool = true) override UNSUPPORTED("snapshot")
  void recordHistory(bool, CreateContextFn, size_t, RecordContext, bool, const std::vector<std::string>&) override UNSUPPORTED("recordHistory")
#else
  void emptyCache() override UNSUPPORTED("emptyCache")
  SnapshotInfo snapshot() override UNSUPPORTED("snapshot")
  void recordHistory(bool, CreateContextFn, size_t, RecordContext) override UNSUPPORTED("recordHistory")
#endif
#if TORCH >= 214
  void attachOomRejectionObserver(OutOfMemoryObserver) override UNSUPPORTED("attachOomRejectionObserver")
#endif

 private:
  bool initialized_ = false;
};

inline void changeCurrentAllocator(const std::shared_ptr<CUDAAllocator>& replacement) {
  TORCH_CHECK(allocator.load() == nullptr || !allocator.load()->initialized(), "Can't swap an already initialized allocator");
  allocator.store(replacement.get());
}

}  // namespace torch::cuda::CUDAPluggableAllocator
