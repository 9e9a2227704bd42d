// vmm.h - the device memory of one arena: addresses are reserved once, physical memory is mapped there.
//
// Physical memory is created in *handles*, the smallest units that can be unmapped. A growth maps
// new handles right behind the last one, so that a chunk can span growths. All handles have the same
// size but the last of a growth: larger handles are mapped faster, smaller ones let more of the free
// memory be unmapped.
//
//   reservation  ├──────────────────────────────────────────────────────────┤
//   handles      ████████│████████│███│████████│        │████████│
//                                               unmapped          ^ next growth
//
// When the reservation is used up, a further one is made, which is a new region to the allocator.
// The caller holds the device's lock. It unmaps only what nobody can read any more (arena/fence.h): unmapping
// does not wait for kernels.
#ifndef MEMPROF_VMM_H
#define MEMPROF_VMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/driver.h"

// Where the handle of a mapping comes from while it is made.
enum vmm_origin { VMM_CREATED, VMM_MOVED, VMM_KEPT };

// A handle and where it is mapped. Addresses and sizes are multiples of the granularity.
struct vmm_mapping {
  uint64_t addr, bytes;
  driver_handle handle;
  enum vmm_origin origin;
  bool gone;      // in vmm.old: it was taken or unmapped, and only its place is left
  uint64_t from;  // where the handle was before, if the request under way has moved it here
};

struct vmm_reservation {
  uint64_t addr, bytes;
};

// A range that others know by its physical memory (arena/registered.h).
struct vmm_registered {
  uint64_t addr, bytes;
  bool ends;  // its owner says when that is over; otherwise nobody does
};

// What all arenas of a device share. Filled by vmm_device_init; `peers`, `properties` and `fault` change later,
// under the device's lock.
struct vmm_device {
  int device;            // ordinal
  uint64_t granularity;  // bytes: the unit of mapping, a power of two
  uint64_t total;        // bytes of the device's memory
  unsigned char uuid[16];               // zeros if the driver does not have it
  struct driver_properties properties;  // of new handles
  uint64_t peers;                       // bit i: device i may read and write what is mapped
  driver_result fault;                  // the first error for the request under way that is not lack of memory; its owner clears it
};

struct vmm {
  struct vmm_device *device;
  uint64_t page;               // bytes at whose multiples growths begin: its allocator's
  uint64_t handle_bytes;       // of a handle, a multiple of the granularity
  uint64_t reservation_bytes;  // of a further reservation, at least
  uint64_t end, limit;         // where the next growth begins, and where the last reservation ends
  struct vmm_reservation *reservations;  // in the order of making
  size_t reservation_count, reservation_room;
  struct vmm_mapping *mappings;  // by address
  size_t count, room;
  struct vmm_reservation *stuck;  // ranges that the driver refused to unmap, of handles already released
  size_t stuck_count, stuck_room;
  struct vmm_registered *registered;  // in no order; what they touch is neither unmapped nor unplaced
  size_t registered_count, registered_room;
  struct vmm_mapping *old;  // mappings that stay while their handles serve other addresses or none, by address; some are gone
  size_t old_count, old_room;
  struct vmm_mapping *unplaced;  // handles that serve no address; their old mappings stay
  size_t unplaced_count, unplaced_room;
  uint64_t unplaced_bytes;
  // Whether an old mapping may go, since nobody can read memory there any more; NULL: no mapping becomes old.
  bool (*idle)(void *owner, uint64_t addr, uint64_t bytes);
  size_t detached;  // mappings [0, detached) are not mapped at the moment; their handles are kept
  uint64_t mapped;  // bytes of all mappings
  int64_t created, released;  // handles so far, for statistics
  // Called for each new reservation, so that pointers find their arena. False: it is not made.
  void *owner;
  bool (*reserved)(void *owner, uint64_t addr, uint64_t bytes);
};

// Asks the driver about the device. False, with a line of the problems file: it has no virtual memory
// management.
bool vmm_device_init(struct vmm_device *out, int device);

enum { VMM_ON_DEVICE = 1, VMM_READ_AND_WRITE = 3 };  // CUmemLocationType, CUmemAccess_flags

// Creates a handle. Flags that the system refuses are left out, here and from then on. False: no
// device memory.
bool vmm_create(struct vmm_device *device, uint64_t bytes, driver_handle *handle);

// Lets the device and its peers read and write what is mapped there. False: the driver refused.
bool vmm_allow(struct vmm_device *device, uint64_t addr, uint64_t bytes);

// Reserves the first range, which begins at a multiple of `page`, a power of two of at least the granularity. False: no address space.
bool vmm_init(struct vmm *vmm, struct vmm_device *device, uint64_t reservation, uint64_t page, uint64_t handle_bytes, void *owner,
              bool (*reserved)(void *owner, uint64_t addr, uint64_t bytes));

// Maps `bytes`, a multiple of the granularity, behind the last growth, and returns where. False: nothing
// has changed.
bool vmm_grow(struct vmm *vmm, uint64_t bytes, uint64_t *addr);

// Maps new memory at [addr, addr+bytes), where nothing is mapped. False: nothing has changed.
bool vmm_map(struct vmm *vmm, uint64_t addr, uint64_t bytes);

// Unmaps and releases the mappings with indices [first, last).
void vmm_release(struct vmm *vmm, size_t first, size_t last);

// Takes the handles of the mappings with indices [first, last) for what is mapped next: a vmm_map of an address
// that has an old mapping of one of them needs no call of the driver, and others map one of them instead of
// a new handle. When the request is over the caller calls vmm_put_back and vmm_release_unplaced. False: no host memory, nothing has changed.
bool vmm_unplace(struct vmm *vmm, size_t first, size_t last);

// Takes a mapping away from one arena, for another: the handle serves what `to` maps next, or released where `to` is NULL or
// host memory is short. What used it is over. False: the driver refused to unmap it, nothing has changed.
bool vmm_pass(struct vmm *from, size_t at, struct vmm *to);

// Maps a handle that was unplaced and serves no address where it was before, and returns where. False: none has its old mapping.
bool vmm_put_back(struct vmm *vmm, uint64_t *addr, uint64_t *bytes);

// Releases the handles that serve no address and have no old mapping.
void vmm_release_unplaced(struct vmm *vmm);

// Undoes a map that the request under way has made: of the mappings with indices [first, last). Handles that were unplaced serve no address again.
void vmm_undo(struct vmm *vmm, size_t first, size_t last);

// Of vmm.c, for what unplaced.c does for it, and of unplaced.c. A piece has its address and bytes.
size_t vmm_find_old(const struct vmm *vmm, uint64_t addr);  // the index of the first of vmm.old that ends after addr
bool vmm_take_kept(struct vmm *vmm, struct vmm_mapping *piece);   // the unplaced handle that is still mapped there
bool vmm_take_unplaced(struct vmm *vmm, struct vmm_mapping *piece);  // any
void vmm_give_unplaced(struct vmm *vmm, const struct vmm_mapping *piece, bool kept);  // undoes either
bool vmm_clear_old(struct vmm *vmm, uint64_t addr, uint64_t bytes);  // unmaps old mappings; false: it cannot
bool vmm_forget_handle(struct vmm *vmm, driver_handle handle);  // unmaps all old mappings of a handle; false: the driver refused one
void vmm_forget_old(struct vmm *vmm);  // unmaps all
void vmm_note_stuck(struct vmm *vmm, const struct vmm_mapping *mapping);
void vmm_take_out(struct vmm *vmm, size_t first, size_t last);  // takes mappings that are unmapped, or will be, out of the list

// A pause unmaps in two steps, so that the first can be undone. vmm_detach unmaps all mappings but
// keeps their handles; false: the driver refused one, and those before it are unmapped. vmm_attach
// maps the detached ones again; false: the driver refused, and an access to the mappings
// [0, detached) faults until a later vmm_attach succeeds. After a complete detach,
// vmm_drop_detached releases the handles and returns the bytes that the driver refused to release.
bool vmm_detach(struct vmm *vmm);
bool vmm_attach(struct vmm *vmm);
uint64_t vmm_detached_bytes(const struct vmm *vmm);  // of the mappings [0, detached)
uint64_t vmm_drop_detached(struct vmm *vmm);

// Unmaps everything, releases the handles and returns the reservations. *vmm is zeros afterwards.
void vmm_close(struct vmm *vmm);

// Whether a range touches one that others know by its physical memory.
bool vmm_is_registered(const struct vmm *vmm, uint64_t addr, uint64_t bytes);

// The index of the first mapping that ends after addr.
size_t vmm_find(const struct vmm *vmm, uint64_t addr);

// Lets device `peer` read and write all that is mapped. False: the driver refused some of it.
bool vmm_allow_peer(const struct vmm *vmm, int peer);

#endif
