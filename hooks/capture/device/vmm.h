// vmm.h - device memory on CUDA's virtual memory management.
//
// An address range is reserved once; physical memory is created in *handles* and mapped
// into it. A grant lies right behind the last one, so that chunks can span grants. It is
// cut into handles of a fixed size, the last one smaller: a handle is what can be given
// back, so the size trades the time to map against what reclaim can return.
//
//   reservation  ├──────────────────────────────────────────────────────────┤
//   handles      ████████│████████│███│████████│        │████████│
//                                     ^ next grant       ^ given back, mapped again
//
// When the reservation is used up a further one is made; it is a new region to the BFC.
// Nothing here locks: the arena's device lock is held. Callers have synchronised with the
// device before vmm_release, since unmapping does not wait for kernels.
#ifndef MEMPROF_VMM_H
#define MEMPROF_VMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/driver.h"

struct vmm_mapping {
  uint64_t addr, bytes;
  driver_handle handle;
};

struct vmm_reservation {
  uint64_t addr, bytes;
};

// What is the same for all arenas of a device.
struct vmm_device {
  int device;
  uint64_t granularity;  // bytes, a power of two
  uint64_t total;        // bytes of the device
  unsigned char uuid[16];
  struct driver_properties properties;
  uint64_t peers;  // bit i: device i may read and write
};

struct vmm {
  struct vmm_device *device;
  uint64_t handle_bytes;       // greatest handle, a multiple of the granularity
  uint64_t reservation_bytes;  // of further reservations
  uint64_t end, limit;         // next grant, and end of the current reservation
  struct vmm_reservation *reservations;  // in order of making
  size_t reservation_count, reservation_room;
  struct vmm_mapping *mappings;  // by address
  size_t count, room;
  struct vmm_reservation *stuck;  // what the driver refused to unmap, and is not ours any more
  size_t stuck_count, stuck_room;
  size_t detached;  // of the mappings, from the first, are not mapped at the moment
  uint64_t mapped;  // bytes in all mappings
  int64_t created, released;  // handles, for statistics
  // Called for each reservation with its range, so that pointers find their arena.
  void *owner;
  bool (*reserved)(void *owner, uint64_t addr, uint64_t bytes);
};

// Fills in what the driver says of the device; false with a problem line when it has no
// virtual memory management.
bool vmm_device_init(struct vmm_device *out, int device);

enum { VMM_ON_DEVICE = 1, VMM_READ_AND_WRITE = 3 };  // CUmemLocationType, CUmemAccess_flags

// A handle of the device, with those of the wanted flags that the system grants.
bool vmm_create(struct vmm_device *device, uint64_t bytes, driver_handle *handle);

// Lets the device and its peers into what is mapped there.
bool vmm_allow(const struct vmm_device *device, uint64_t addr, uint64_t bytes);

// Reserves the first range. False: no address space.
bool vmm_init(struct vmm *vmm, struct vmm_device *device, uint64_t reservation, uint64_t handle_bytes, void *owner,
              bool (*reserved)(void *owner, uint64_t addr, uint64_t bytes));

// Maps `bytes`, a multiple of the granularity, at the end. All or nothing.
bool vmm_grow(struct vmm *vmm, uint64_t bytes, uint64_t *addr);

// Maps [addr, addr+bytes) anew, where everything had been released. All or nothing.
bool vmm_map(struct vmm *vmm, uint64_t addr, uint64_t bytes);

// Unmaps and releases the mappings with indices [first, last).
void vmm_release(struct vmm *vmm, size_t first, size_t last);

// In two steps: `detach` unmaps everything but keeps the handles. False: the driver refused
// one; those before it are unmapped. `attach` maps again what is not mapped; where the driver
// refuses that, too, the mappings [0, detached) fault until a later `attach` succeeds. After a whole
// detach, `drop_detached` releases the handles and returns the bytes that the driver did not
// take back.
bool vmm_detach(struct vmm *vmm);
bool vmm_attach(struct vmm *vmm);
uint64_t vmm_detached_bytes(const struct vmm *vmm);  // that are not mapped at the moment
uint64_t vmm_drop_detached(struct vmm *vmm);

// Unmaps everything and returns the addresses. Nothing else may be done afterwards.
void vmm_close(struct vmm *vmm);

// The index of the first mapping that ends after addr.
size_t vmm_find(const struct vmm *vmm, uint64_t addr);

// Lets `peer` into everything that is mapped. False if the driver refused.
bool vmm_allow_peer(const struct vmm *vmm, int peer);

#endif
