// vmm.c - arenas and their memory on a simulated libamdhip64, through device/hip.c. The simulation has ROCm's known traps:
// see hooks/simhip/simhip.h.
#define _GNU_SOURCE
#include "device/vmm.h"

#include <string.h>

#include "check.h"
#include "device/driver.h"
#include "memprof.h"
#include "simhip.h"

static const uint64_t MiB = (uint64_t)1 << 20;

static bool accept(void *owner, uint64_t addr, uint64_t bytes) { return (void)owner, (void)addr, bytes > 0; }

static void open_vmm(struct vmm_device *device, struct vmm *vmm, uint64_t handle) {
  CHECK(driver_get() != NULL);
  CHECK(vmm_device_init(device, 0));
  CHECK_EQUAL(device->total, SIMHIP_BYTES);
  CHECK(vmm_init(vmm, device, 512 * MiB, device->granularity, handle, NULL, accept));
}

static void write_to(uint64_t addr, uint64_t bytes) { memset((void *)(uintptr_t)addr, 7, bytes); }

// The granularity is the recommended one: multiples of the minimum are refused.
TEST(granularity) {
  struct vmm_device device;
  CHECK(driver_get() != NULL && vmm_device_init(&device, 0));
  CHECK_EQUAL(device.granularity, (uint64_t)SIMHIP_GRANULE);
  // No descriptor is asked for, as none would be closed.
  CHECK_EQUAL(device.properties.requested_handle_types, 0);
}

// Memory that is unmapped returns at once, though the arena's addresses stay.
TEST(unmapping_returns_memory) {
  struct vmm_device device;
  struct vmm vmm;
  uint64_t addr;
  open_vmm(&device, &vmm, 8 * MiB);
  CHECK(vmm_grow(&vmm, 64 * MiB, &addr));
  write_to(addr, 64 * MiB);
  CHECK_EQUAL(simhip_used(), 64 * MiB);
  vmm_release(&vmm, 2, 6);
  CHECK_EQUAL(simhip_used(), 32 * MiB);
  // The same addresses can be mapped again, as many times as one likes.
  for (int round = 0; round < 100; round++) {
    CHECK(vmm_map(&vmm, addr + 16 * MiB, 32 * MiB));
    write_to(addr + 16 * MiB, 32 * MiB);
    CHECK_EQUAL(simhip_used(), 64 * MiB);
    vmm_release(&vmm, 2, 6);
    CHECK_EQUAL(simhip_used(), 32 * MiB);
  }
  vmm_close(&vmm);
  CHECK_EQUAL(simhip_used(), 0);
  CHECK_EQUAL(simhip_reservations(), 0);
  CHECK_EQUAL(simhip_descriptors(), 0);
}

// A pause keeps addresses: all of the memory returns, and comes back at the same place.
TEST(pause) {
  struct vmm_device device;
  struct vmm vmm;
  uint64_t addr;
  open_vmm(&device, &vmm, 32 * MiB);
  CHECK(vmm_grow(&vmm, 96 * MiB, &addr));
  CHECK(vmm_detach(&vmm));
  CHECK_EQUAL(vmm_drop_detached(&vmm), 0);
  CHECK_EQUAL(simhip_used(), 0);
  CHECK(vmm_map(&vmm, addr, 96 * MiB));
  write_to(addr, 96 * MiB);
  CHECK(vmm_detach(&vmm));
  CHECK(vmm_attach(&vmm));  // of a pause that is given up
  write_to(addr, 96 * MiB);
  vmm_close(&vmm);
  CHECK_EQUAL(simhip_used(), 0);
}

// Every size gets access, also those that set-access refuses as a whole.
TEST(access_of_all_sizes) {
  struct vmm_device device;
  struct vmm vmm;
  uint64_t addr;
  const int before = simhip_refused_access();
  open_vmm(&device, &vmm, 512 * MiB);
  for (uint64_t pages = 1; pages < 20; pages++) {
    CHECK(vmm_grow(&vmm, pages * SIMHIP_GRANULE, &addr));
    write_to(addr, pages * SIMHIP_GRANULE);
    vmm_release(&vmm, 0, vmm.count);
  }
  CHECK(simhip_refused_access() > before);
  vmm_close(&vmm);
}

// A device without memory says so, and nothing is left behind.
TEST(exhausted) {
  struct vmm_device device;
  struct vmm vmm;
  uint64_t addr;
  open_vmm(&device, &vmm, 256 * MiB);
  CHECK(vmm_grow(&vmm, 768 * MiB, &addr));
  CHECK(!vmm_grow(&vmm, 512 * MiB, &addr));
  CHECK_EQUAL(simhip_used(), 768 * MiB);
  vmm_close(&vmm);
  CHECK_EQUAL(simhip_used(), 0);
}

// Contexts are devices: entering and leaving restores the one before, nested too.
TEST(contexts) {
  struct driver_scope outer, inner;
  uint64_t free_bytes, total;
  CHECK(driver_get() != NULL);
  CHECK(driver_enter(0, &outer) && driver_enter(0, &inner));
  driver_leave(&inner);
  driver_leave(&outer);
  CHECK(driver_memory(0, &free_bytes, &total));
  CHECK_EQUAL(total, SIMHIP_BYTES);
  CHECK(driver_synchronize(0));
}

// The whole hook: blocks are allocated, split and freed, and empty_cache returns their memory.
TEST(blocks, "MEMPROF_HEADROOM", "0") {
  void *block[20];
  for (int i = 0; i < 20; i++) {
    block[i] = memprof_malloc((size_t)(3 * i + 1) * MiB, 0, NULL);
    CHECK(block[i] != NULL);
    memset(block[i], i, (size_t)(3 * i + 1) * MiB);
  }
  CHECK(simhip_used() >= 590 * MiB);
  for (int i = 0; i < 20; i++) memprof_free(block[i], 0, 0, NULL);
  CHECK(memprof_empty_cache(0) > 0);
  CHECK_EQUAL(simhip_used(), 0);
  CHECK_EQUAL(simhip_descriptors(), 0);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
