// native.cpp - the shim observes torch's own allocator, which is made up here: it tells its trackers under its lock, as torch does.
//
// A recording begins in the middle of the job, ends, and another one begins. Read back, each has first what was there by then.
#include <dirent.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#include "memprof.h"
#include "spool/record.h"
#include "torch.h"

extern "C" const char* memprof_torch_watch();
extern "C" void memprof_torch_unwatch();

namespace {

namespace torch_cuda = c10::cuda::CUDACachingAllocator;
using torch_cuda::TraceEntry;

constexpr size_t MiB = 1 << 20;
int failures = 0;

#define CHECK(condition) (void)((condition) || (std::printf("native.cpp:%d: torch %d: %s\n", __LINE__, TORCH, #condition), failures++))

// One device with two segments: one of small blocks, and one of pages.
struct Native : torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator {
  Native() : CUDAPluggableAllocator({}, {}) {}
  bool initialized() override { return true; }
  void attachAllocatorTraceTracker(torch_cuda::AllocatorTraceTracker tracker) override {
    std::lock_guard<std::recursive_mutex> guard(lock);
    trackers.push_back(std::move(tracker));
  }
  torch_cuda::DeviceStats getDeviceStats(c10::DeviceIndex) override {
    std::lock_guard<std::recursive_mutex> guard(lock);
    return {};
  }
#if TORCH >= 211
  torch_cuda::SnapshotInfo snapshot(c10::MempoolId_t, bool) override { return taken(); }
#else
  torch_cuda::SnapshotInfo snapshot() override { return taken(); }
#endif

  torch_cuda::SnapshotInfo taken() {
    std::lock_guard<std::recursive_mutex> guard(lock);
    torch_cuda::SnapshotInfo info;
    torch_cuda::SegmentInfo small, pages;
    small.address = 1 << 30, small.total_size = 2 * MiB;
    for (size_t i = 0; i < 3; i++) small.blocks.push_back(block(i == 2 ? 2 * MiB - 2048 : 1024, i != 1, i != 1));
    pages.address = 3U << 30, pages.total_size = 40 * MiB, pages.is_large = pages.is_expandable = true;
    pages.blocks = {block(30 * MiB, true, false), block(10 * MiB, false, false)};  // its free is pending
    info.segments = {small, pages};
    tell(TraceEntry::SNAPSHOT, 0, 0);
    return info;
  }

  static torch_cuda::BlockInfo block(size_t size, bool active, bool allocated) {
    torch_cuda::BlockInfo made;
    made.size = size, made.requested_size = size - 24, made.active = active, made.allocated = allocated;
    return made;
  }

  void tell(TraceEntry::Action action, size_t addr, size_t size) {
    std::lock_guard<std::recursive_mutex> guard(lock);
#if TORCH >= 211
    const TraceEntry entry(action, 0, addr, size, nullptr, {0, 0}, 1);
#else
    const TraceEntry entry(action, 0, addr, size, nullptr, 1);
#endif
    for (const auto& tracker : trackers) tracker(entry);
  }

  std::recursive_mutex lock;
  std::vector<torch_cuda::AllocatorTraceTracker> trackers;
};

// The events of the only process in a spool, "kind addr requested provided" each; strings, totals and sums left out.
std::vector<std::string> events_of(const std::string& spool) {
  std::string process;
  DIR* list = opendir(spool.c_str());
  for (dirent* entry; list != nullptr && (entry = readdir(list)) != nullptr;) {
    if (entry->d_name[0] == 'p') process = entry->d_name;
  }
  if (list != nullptr) closedir(list);
  std::vector<std::string> found;
  std::FILE* file = std::fopen((spool + "/" + process + "/000000.seg").c_str(), "rb");
  memprof_record record;
  while (file != nullptr && std::fread(&record, sizeof record, 1, file) == 1 && record.commit >> 16 == MEMPROF_COMMITTED >> 16) {
    const unsigned kind = record.commit & 0xffff;
    if (kind == MEMPROF_STRING || kind == MEMPROF_TOTALS || kind == MEMPROF_STATISTICS || kind == MEMPROF_ARENA) continue;
    char text[128];
    std::snprintf(text, sizeof text, "%u %llx %llu %llu", kind, static_cast<unsigned long long>(record.addr), static_cast<unsigned long long>(record.requested),
                  static_cast<unsigned long long>(record.provided));
    found.push_back(text);
  }
  if (file != nullptr) std::fclose(file);
  return found;
}

std::string event(unsigned kind, size_t addr, size_t requested, size_t provided) {
  char text[128];
  std::snprintf(text, sizeof text, "%u %zx %zu %zu", kind, addr, requested, provided);
  return text;
}

}  // namespace

int main() {
  Native native;
  torch_cuda::allocator.store(&native);
  const size_t small = 1 << 30, pages = 3U << 30;
  void* ptr = nullptr;
  CHECK(cudaMalloc(&ptr, 1) == cudaSuccess);
  CHECK(memprof_torch_watch() != nullptr);  // nobody records
  native.tell(TraceEntry::ALLOC, small + 1024, 500);
  for (int i = 0; i < 2; i++) {
    char spool[] = "/tmp/memprof-test-XXXXXX";
    CHECK(mkdtemp(spool) != nullptr && memprof_begin(spool, "") == 1);
    const char* refusal = memprof_torch_watch();
    CHECK(refusal == nullptr);
    native.tell(TraceEntry::ALLOC, small + 1024, 700);
    memprof_torch_unwatch();
    native.tell(TraceEntry::ALLOC, small + 1024, 900);
    memprof_end();
    CHECK(native.trackers.size() == 1);  // the tracker serves both
    const std::vector<std::string> expected = {
        event(MEMPROF_EXTERNAL_FREE, small, 1, 0),
        event(MEMPROF_MAP, small, 2 * MiB, 2 * MiB),
        event(MEMPROF_EXTERNAL_FREE, pages, 0, 0),
        event(MEMPROF_MAP, pages, 40 * MiB, 40 * MiB),
        event(MEMPROF_EXTERNAL_FREE, small + 2048, 0, 2 * MiB - 2048),  // the highest first
        event(MEMPROF_ALLOC, small + 2048, 2 * MiB - 2072, 2 * MiB - 2072),
        event(MEMPROF_EXTERNAL_FREE, small, 0, 1024),
        event(MEMPROF_ALLOC, small, 1000, 1000),
        event(MEMPROF_EXTERNAL_FREE, pages, 0, 30 * MiB),
        event(MEMPROF_ALLOC, pages, 30 * MiB - 24, 30 * MiB - 24),
        event(MEMPROF_STREAM_USE, pages, 0, 0),
        event(MEMPROF_FREE, pages, 30 * MiB - 24, 30 * MiB - 24),
        event(MEMPROF_ALLOC, small + 1024, 700, 700),
    };
    const auto found = events_of(spool);
    CHECK(found == expected);
    for (size_t at = 0; at < found.size() && found != expected; at++) std::printf("  %s\n", found[at].c_str());
    const std::string remove = std::string("rm -r ") + spool;
    CHECK(std::system(remove.c_str()) == 0);
  }
  std::printf("torch %d.%d: %d failed\n", TORCH / 100, TORCH % 100, failures);
  return failures != 0;
}
