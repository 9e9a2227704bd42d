// Measures an allocation and its free in torch's current CUDA allocator. pair.py compiles and calls it.
#include <c10/cuda/CUDACachingAllocator.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

// Attaches a trace tracker that does nothing: the least cost of observing torch's allocator.
extern "C" __attribute__((visibility("default"))) void attach_empty_tracker() {
  static int64_t reported;
  c10::cuda::CUDACachingAllocator::get()->attachAllocatorTraceTracker([](const auto&) { reported++; });
}

// Keeps `live` blocks of random sizes, log-uniform from 512 B to 8 MiB, and replaces a
// random one `pairs` times. Returns nanoseconds a pair; the sizes are drawn beforehand.
extern "C" __attribute__((visibility("default"))) double nanoseconds_a_pair(int live, int64_t pairs, uint32_t seed) {
  namespace allocator = c10::cuda::CUDACachingAllocator;
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> exponent(9, 23);
  std::vector<size_t> sizes(1 << 16);
  std::vector<uint32_t> victims(1 << 16);
  for (size_t i = 0; i < sizes.size(); i++) {
    sizes[i] = static_cast<size_t>(std::exp2(exponent(random)));
    victims[i] = random() % static_cast<uint32_t>(live);
  }
  std::vector<void*> blocks(live);
  for (int i = 0; i < live; i++) blocks[i] = allocator::raw_alloc(sizes[i]);
  const auto replace = [&](int64_t count) {
    for (int64_t i = 0; i < count; i++) {
      void*& block = blocks[victims[i & 0xffff]];
      allocator::raw_delete(block);
      block = allocator::raw_alloc(sizes[i & 0xffff]);
    }
  };
  replace(4 * live + 100000);  // reach the steady state: no more growth
  const auto start = std::chrono::steady_clock::now();
  replace(pairs);
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
  for (void* block : blocks) allocator::raw_delete(block);
  return took.count() / static_cast<double>(pairs);
}
