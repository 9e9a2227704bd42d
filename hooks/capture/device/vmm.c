// vmm.c - see vmm.h.
#include "device/vmm.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/problem.h"
#include "device/devices.h"

enum { PINNED = 1, POSIX_FD = 1 };

// Whether a call for a request has succeeded. A fault of the GPU makes all later calls fail: the request must not be taken for one that lacks memory.
static bool succeeded(struct vmm_device *device, driver_result result) {
  if (result != DRIVER_OK && result != DRIVER_OUT_OF_MEMORY && device->fault == DRIVER_OK) device->fault = result;
  return result == DRIVER_OK;
}

static uint64_t round_up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) & ~(unit - 1); }

static bool attribute(int handle, int which) {
  int value = 0;
  return driver_get()->device_attribute(&value, which, handle) == DRIVER_OK && value != 0;
}

bool vmm_device_init(struct vmm_device *out, int device) {
  const struct driver *driver = driver_get();
  int handle;
  size_t granularity, total;
  memset(out, 0, sizeof *out);
  out->device = device;
  if (driver->device_get(&handle, device) != DRIVER_OK || driver->device_total(&total, handle) != DRIVER_OK) {
    problem("GPU %d: the driver does not know it; its tensors are not served by memprof", device);
    return false;
  }
  if (!attribute(handle, driver->attributes.vmm)) {
    problem("GPU %d: no virtual memory management; its tensors are not served by memprof", device);
    return false;
  }
  out->properties.type = PINNED;
  out->properties.location = (struct driver_location){VMM_ON_DEVICE, device};
  if (attribute(handle, driver->attributes.posix_fd)) out->properties.requested_handle_types = POSIX_FD;
  if (attribute(handle, driver->attributes.rdma_with_vmm)) out->properties.flags.gpu_direct_rdma = 1;
  const driver_result result = driver->granularity(&granularity, &out->properties, 0);
  if (result != DRIVER_OK || granularity < 256 || (granularity & (granularity - 1)) != 0) {
    problem("GPU %d: the driver does not name its page size (error %d); its tensors are not served by memprof", device, result);
    return false;
  }
  if (driver->device_uuid == NULL || driver->device_uuid(out->uuid, handle) != DRIVER_OK) memset(out->uuid, 0, sizeof out->uuid);
  out->granularity = granularity;
  out->total = total;
  return true;
}

static bool reserve(struct vmm *vmm, uint64_t bytes) {
  const uint64_t last = vmm->limit;
  uint64_t addr;
  bytes = round_up(bytes, vmm->device->granularity);
  // A page more, for a gap. If the driver returns addresses right behind the last reservation, the
  // allocator would take both for one region, but no handle can be mapped across their border.
  if (last != 0) bytes += vmm->device->granularity;
  const uint64_t all = bytes + vmm->page - vmm->device->granularity;  // the driver aligns to its own pages
  if (!array_reserve(&vmm->reservations, &vmm->reservation_room, vmm->reservation_count + 1, sizeof *vmm->reservations)) return false;
  if (!succeeded(vmm->device, driver_get()->reserve(&addr, all, 0, 0, 0))) return false;
  if (!vmm->reserved(vmm->owner, addr, all)) {
    driver_get()->unreserve(addr, all);
    return false;
  }
  vmm->reservations[vmm->reservation_count++] = (struct vmm_reservation){addr, all};
  vmm->end = round_up(last != 0 && addr == last ? addr + vmm->device->granularity : addr, vmm->page);
  vmm->limit = vmm->end + bytes < addr + all ? vmm->end + bytes : addr + all;
  return true;
}

bool vmm_init(struct vmm *vmm, struct vmm_device *device, uint64_t reservation, uint64_t page, uint64_t handle_bytes, void *owner,
              bool (*reserved)(void *owner, uint64_t addr, uint64_t bytes)) {
  memset(vmm, 0, sizeof *vmm);
  vmm->device = device;
  vmm->page = page;
  vmm->handle_bytes = round_up(handle_bytes, device->granularity);
  vmm->reservation_bytes = reservation;
  vmm->owner = owner;
  vmm->reserved = reserved;
  if (reserve(vmm, reservation)) return true;
  free(vmm->reservations);
  return false;
}

// The first of mappings that ends after addr.
static size_t find(const struct vmm_mapping *mappings, size_t count, uint64_t addr) {
  size_t low = 0, high = count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (mappings[middle].addr + mappings[middle].bytes <= addr) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

size_t vmm_find(const struct vmm *vmm, uint64_t addr) { return find(vmm->mappings, vmm->count, addr); }
size_t vmm_find_old(const struct vmm *vmm, uint64_t addr) { return find(vmm->old, vmm->old_count, addr); }

bool vmm_is_registered(const struct vmm *vmm, uint64_t addr, uint64_t bytes) {
  for (size_t i = 0; i < vmm->registered_count; i++) {
    const struct vmm_registered *each = &vmm->registered[i];
    if (each->addr < addr + bytes && addr < each->addr + each->bytes) return true;
  }
  return false;
}

bool vmm_allow(struct vmm_device *device, uint64_t addr, uint64_t bytes) {
  struct driver_access access[MOST_DEVICES + 1];
  size_t count = 0;
  access[count++] = (struct driver_access){{VMM_ON_DEVICE, device->device}, VMM_READ_AND_WRITE};
  for (int peer = 0; peer < MOST_DEVICES; peer++) {
    if (device->peers >> peer & 1) access[count++] = (struct driver_access){{VMM_ON_DEVICE, peer}, VMM_READ_AND_WRITE};
  }
  return succeeded(device, driver_get()->set_access(addr, bytes, access, count));
}

// Drops one property that is good to have but not needed. False: none is left.
static bool make_plainer(struct driver_properties *properties) {
  if (properties->flags.gpu_direct_rdma != 0) {
    properties->flags.gpu_direct_rdma = 0;
    return true;
  }
  const bool exportable = properties->requested_handle_types != 0;
  properties->requested_handle_types = 0;
  return exportable;
}

// A system may refuse properties that the device claims to support. The first handle that it creates
// decides which are asked for from then on.
bool vmm_create(struct vmm_device *device, uint64_t bytes, driver_handle *handle) {
  struct driver_properties properties = device->properties;
  for (;;) {
    const driver_result result = driver_get()->create(handle, bytes, &properties, 0);
    if (result == DRIVER_OK) device->properties = properties;
    if (result == DRIVER_OK || result == DRIVER_OUT_OF_MEMORY) return result == DRIVER_OK;
    if (!make_plainer(&properties)) return succeeded(device, result);
  }
}

// Maps a handle that was unplaced, or else a new one. False: nothing has changed.
static bool map_handle(struct vmm *vmm, struct vmm_mapping *piece) {
  const struct driver *driver = driver_get();
  piece->origin = vmm_take_unplaced(vmm, piece) ? VMM_MOVED : VMM_CREATED;
  if (piece->origin == VMM_CREATED && !vmm_create(vmm->device, piece->bytes, &piece->handle)) return false;
  if (succeeded(vmm->device, driver->map(piece->addr, piece->bytes, 0, piece->handle, 0))) return true;
  if (piece->origin == VMM_MOVED)
    vmm_give_unplaced(vmm, piece, false);
  else
    driver->release(piece->handle);
  return false;
}

void vmm_note_stuck(struct vmm *vmm, const struct vmm_mapping *mapping) {
  if (!array_reserve(&vmm->stuck, &vmm->stuck_room, vmm->stuck_count + 1, sizeof *vmm->stuck)) return;  // it is never unmapped
  vmm->stuck[vmm->stuck_count++] = (struct vmm_reservation){mapping->addr, mapping->bytes};
}

// Tries again to unmap ranges that the driver refused to unmap, before new memory is mapped there:
// otherwise every request that is placed there would fail. The device need not be waited for: that
// was done at the first attempt, and nothing has used the range since. Unmapping is legal while a
// stream is captured.
static void clear(struct vmm *vmm, uint64_t addr, uint64_t bytes) {
  for (size_t i = vmm->stuck_count; i-- > 0;) {
    const struct vmm_reservation stuck = vmm->stuck[i];
    if (stuck.addr >= addr + bytes || stuck.addr + stuck.bytes <= addr) continue;
    if (driver_get()->unmap(stuck.addr, stuck.bytes) == DRIVER_OK) vmm->stuck[i] = vmm->stuck[--vmm->stuck_count];
  }
}

static void report_lost(const struct vmm *vmm, uint64_t bytes) {
  if (bytes > 0) problem("GPU %d: the driver did not take back %.2f GiB, which are lost to the job", vmm->device->device, (double)bytes / (1 << 30));
}

// Whether one call has unmapped all mappings, which are adjacent. It saves 6 % of the time of one by one, and 15 %
// where other processes use the driver, too (samples/results/compact.md).
static bool unmapped_at_once(const struct vmm_mapping *mappings, size_t count) {
  if (count < 2 || !driver_get()->unmaps_ranges) return false;
  const struct vmm_mapping *last = &mappings[count - 1];
  return driver_get()->unmap(mappings[0].addr, last->addr + last->bytes - mappings[0].addr) == DRIVER_OK;
}

// How many of the mappings, from the first on, are adjacent.
static size_t adjacent(const struct vmm_mapping *mappings, size_t count) {
  size_t n = count > 0;
  while (n < count && mappings[n - 1].addr + mappings[n - 1].bytes == mappings[n].addr) n++;
  return n;
}

// Unmaps mappings and releases their handles.
static void drop(struct vmm *vmm, const struct vmm_mapping *mappings, size_t count) {
  const struct driver *driver = driver_get();
  uint64_t lost = 0;
  for (size_t from = 0, n; from < count; from += n) {
    n = adjacent(mappings + from, count - from);
    const bool all = unmapped_at_once(mappings + from, n);
    for (size_t i = from; i < from + n; i++) {
      const bool unmapped = all || driver->unmap(mappings[i].addr, mappings[i].bytes) == DRIVER_OK;
      const bool forgotten = vmm_forget_handle(vmm, mappings[i].handle);
      if (driver->release(mappings[i].handle) != DRIVER_OK || !unmapped || !forgotten) lost += mappings[i].bytes;
      if (!unmapped) vmm_note_stuck(vmm, &mappings[i]);
    }
  }
  report_lost(vmm, lost);
}

// Undoes what was done for pieces.
static void undo(struct vmm *vmm, const struct vmm_mapping *pieces, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const struct vmm_mapping *piece = &pieces[i];
    if (piece->origin == VMM_CREATED) {
      drop(vmm, piece, 1);
      continue;
    }
    if (piece->origin == VMM_MOVED && driver_get()->unmap(piece->addr, piece->bytes) != DRIVER_OK) vmm_note_stuck(vmm, piece);
    vmm_give_unplaced(vmm, piece, piece->origin == VMM_KEPT);
  }
}

void vmm_take_out(struct vmm *vmm, size_t first, size_t last) {
  for (size_t i = first; i < last; i++) vmm->mapped -= vmm->mappings[i].bytes;
  vmm->released += (int64_t)(last - first);
  memmove(vmm->mappings + first, vmm->mappings + last, (vmm->count - last) * sizeof *vmm->mappings);
  vmm->count -= last - first;
}

void vmm_undo(struct vmm *vmm, size_t first, size_t last) {
  if (first == last) return;  // there may be no array yet
  undo(vmm, vmm->mappings + first, last - first);
  vmm_take_out(vmm, first, last);
}

// Sets the access of the pieces that are newly mapped: adjacent ones at once.
static bool allow(const struct vmm *vmm, const struct vmm_mapping *pieces, size_t count) {
  for (size_t from = 0, to; from < count; from = to + (to == from)) {
    for (to = from; to < count && pieces[to].origin != VMM_KEPT; to++) {
    }
    if (to > from && !vmm_allow(vmm->device, pieces[from].addr, pieces[to - 1].addr + pieces[to - 1].bytes - pieces[from].addr)) return false;
  }
  return true;
}

// Gives each piece a handle: one that is still mapped there, or else any other. All or nothing.
static bool map_pieces(struct vmm *vmm, struct vmm_mapping *pieces, size_t count) {
  size_t done = count;
  for (size_t i = 0; i < count; i++) pieces[i].origin = vmm_take_kept(vmm, &pieces[i]) ? VMM_KEPT : VMM_CREATED;
  for (size_t i = 0; i < count && done == count; i++) {
    if (pieces[i].origin == VMM_KEPT) continue;
    if (!vmm_clear_old(vmm, pieces[i].addr, pieces[i].bytes) || !map_handle(vmm, &pieces[i])) done = i;
  }
  if (done == count && allow(vmm, pieces, count)) return true;
  undo(vmm, pieces, done);
  for (size_t i = done; i < count; i++) {
    if (pieces[i].origin == VMM_KEPT) undo(vmm, &pieces[i], 1);
  }
  return false;
}

bool vmm_map(struct vmm *vmm, uint64_t addr, uint64_t bytes) {
  const size_t count = (size_t)((bytes + vmm->handle_bytes - 1) / vmm->handle_bytes);
  if (!array_reserve(&vmm->mappings, &vmm->room, vmm->count + count, sizeof *vmm->mappings)) return false;
  clear(vmm, addr, bytes);
  const size_t at = vmm_find(vmm, addr);
  struct vmm_mapping *first = vmm->mappings + at;
  memmove(first + count, first, (vmm->count - at) * sizeof *first);
  for (size_t i = 0; i < count; i++) {
    const uint64_t offset = i * vmm->handle_bytes, rest = bytes - offset;
    first[i] = (struct vmm_mapping){.addr = addr + offset, .bytes = rest < vmm->handle_bytes ? rest : vmm->handle_bytes};
  }
  if (!map_pieces(vmm, first, count)) {
    memmove(first, first + count, (vmm->count - at) * sizeof *first);
    return false;
  }
  vmm->count += count;
  vmm->mapped += bytes;
  vmm->created += (int64_t)count;
  return true;
}

bool vmm_grow(struct vmm *vmm, uint64_t bytes, uint64_t *addr) {
  // The rest of the old reservation stays unused: addresses cost nothing.
  if (bytes > vmm->limit - vmm->end && !reserve(vmm, bytes > vmm->reservation_bytes ? bytes : vmm->reservation_bytes)) return false;
  if (!vmm_map(vmm, vmm->end, bytes)) return false;
  *addr = vmm->end;
  vmm->end += bytes;
  return true;
}

// Releases the handles of detached mappings [first, last).
static void release_detached(struct vmm *vmm, size_t first, size_t last) {
  uint64_t lost = 0;
  for (size_t i = first; i < last; i++) {
    if (driver_get()->release(vmm->mappings[i].handle) != DRIVER_OK) lost += vmm->mappings[i].bytes;
  }
  vmm->detached -= last - first;
  report_lost(vmm, lost);
}

void vmm_release(struct vmm *vmm, size_t first, size_t last) {
  if (first == last) return;
  const size_t mapped = vmm->detached < first ? first : vmm->detached < last ? vmm->detached : last;
  if (mapped > first) release_detached(vmm, first, mapped);
  drop(vmm, vmm->mappings + mapped, last - mapped);
  vmm_take_out(vmm, first, last);
}

bool vmm_detach(struct vmm *vmm) {
  vmm_forget_old(vmm);
  while (vmm->detached < vmm->count) {
    const struct vmm_mapping *mapping = &vmm->mappings[vmm->detached];
    if (driver_get()->unmap(mapping->addr, mapping->bytes) != DRIVER_OK) return false;
    vmm->detached++;
  }
  return true;
}

bool vmm_attach(struct vmm *vmm) {
  for (; vmm->detached > 0; vmm->detached--) {
    const struct vmm_mapping *mapping = &vmm->mappings[vmm->detached - 1];
    clear(vmm, mapping->addr, mapping->bytes);
    if (driver_get()->map(mapping->addr, mapping->bytes, 0, mapping->handle, 0) != DRIVER_OK) return false;
    if (vmm_allow(vmm->device, mapping->addr, mapping->bytes)) continue;
    if (driver_get()->unmap(mapping->addr, mapping->bytes) != DRIVER_OK) vmm_note_stuck(vmm, mapping);
    return false;
  }
  return true;
}

uint64_t vmm_detached_bytes(const struct vmm *vmm) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < vmm->detached; i++) bytes += vmm->mappings[i].bytes;
  return bytes;
}

uint64_t vmm_drop_detached(struct vmm *vmm) {
  uint64_t leaked = 0;
  for (size_t i = 0; i < vmm->count; i++) {
    if (driver_get()->release(vmm->mappings[i].handle) != DRIVER_OK) leaked += vmm->mappings[i].bytes;
  }
  vmm->released += (int64_t)vmm->count;
  vmm->count = vmm->detached = 0;
  vmm->mapped = 0;
  return leaked;
}

void vmm_close(struct vmm *vmm) {
  vmm_forget_old(vmm);
  vmm_release(vmm, 0, vmm->count);
  for (size_t i = 0; i < vmm->reservation_count; i++) {
    clear(vmm, vmm->reservations[i].addr, vmm->reservations[i].bytes);
    driver_get()->unreserve(vmm->reservations[i].addr, vmm->reservations[i].bytes);
  }
  free(vmm->reservations);
  free(vmm->stuck);
  free(vmm->registered);
  free(vmm->mappings);
  free(vmm->old);
  free(vmm->unplaced);
  memset(vmm, 0, sizeof *vmm);
}

bool vmm_allow_peer(const struct vmm *vmm, int peer) {
  const struct driver_access access = {{VMM_ON_DEVICE, peer}, VMM_READ_AND_WRITE};
  bool all = true;
  for (size_t i = 0; i < vmm->count; i++) {
    all &= driver_get()->set_access(vmm->mappings[i].addr, vmm->mappings[i].bytes, &access, 1) == DRIVER_OK;
  }
  for (size_t i = 0; i < vmm->old_count; i++) {
    if (!vmm->old[i].gone) all &= driver_get()->set_access(vmm->old[i].addr, vmm->old[i].bytes, &access, 1) == DRIVER_OK;
  }
  return all;
}
