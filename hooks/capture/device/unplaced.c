// unplaced.c - pages that serve other addresses while their old mappings stay. See vmm.h.
//
// Mapping a page of 2 MiB and setting its access takes tens of microseconds; unmapping one must also wait until
// the GPU has finished what used it. A job that repeats itself needs the same pages at the same addresses
// again. So a handle that is unplaced keeps the mappings that it had:
//
//   addresses    A        B        C
//   request 1    handle   ·        ·       mapped at A
//   request 2    old      handle   ·       A is free, B needs a page: mapped at B, and still at A
//   request 3    handle   old      ·       B is free, A needs a page: no call of the driver
//   request 4    other    old      handle  A needs a page again, C has the handle: A's old mapping goes first
//
// The work of one stream runs in order, so that what a block of one address left is over before a block of
// another address begins: an arena uses its own unplaced handles alone. What it passes to another one is unmapped, with all old
// mappings, and the work on it is over before (arena/exchange.c).
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/problem.h"
#include "device/vmm.h"

// A job that repeats itself makes the same mappings old and takes them again, beside a hundred thousand others. A mapping that is taken keeps
// its place in the array, marked `gone`, so that none of the others moves. `mappings` are sorted by address and overlap no old mapping; the
// array has room for them.
static void add_old(struct vmm *vmm, const struct vmm_mapping *mappings, size_t count) {
  for (size_t i = 0, n; i < count; i += n) {
    const size_t at = vmm_find_old(vmm, mappings[i].addr);
    for (n = 0; i + n < count && (at == vmm->old_count || mappings[i + n].addr + mappings[i + n].bytes <= vmm->old[at].addr); n++) {
    }
    size_t over = 0;  // places of mappings that are gone, where this one was
    if (n == 0) {
      n = 1;
      while (at + over < vmm->old_count && vmm->old[at + over].addr < mappings[i].addr + mappings[i].bytes) over++;
    }
    if (over != n) memmove(vmm->old + at + n, vmm->old + at + over, (vmm->old_count - at - over) * sizeof *vmm->old);
    memcpy(vmm->old + at, mappings + i, n * sizeof *mappings);
    vmm->old_count += n - over;
  }
}

static void remove_old(struct vmm *vmm, size_t at) { vmm->old[at].gone = true; }

static bool is_old(const struct vmm *vmm, size_t at) { return at < vmm->old_count && !vmm->old[at].gone; }

static void add_unplaced(struct vmm *vmm, struct vmm_mapping mapping) { vmm->unplaced[vmm->unplaced_count++] = mapping; }

static bool take_unplaced(struct vmm *vmm, size_t at, struct vmm_mapping *piece) {
  piece->handle = vmm->unplaced[at].handle;
  piece->from = vmm->unplaced[at].addr;
  vmm->unplaced_count--;
  memmove(vmm->unplaced + at, vmm->unplaced + at + 1, (vmm->unplaced_count - at) * sizeof *vmm->unplaced);
  return true;
}

bool vmm_unplace(struct vmm *vmm, size_t first, size_t last) {
  const size_t count = last - first;
  if (!array_reserve(&vmm->old, &vmm->old_room, vmm->old_count + count, sizeof *vmm->old) ||
      !array_reserve(&vmm->unplaced, &vmm->unplaced_room, vmm->unplaced_count + count, sizeof *vmm->unplaced))
    return false;
  add_old(vmm, vmm->mappings + first, count);
  for (size_t i = first; i < last; i++) {
    add_unplaced(vmm, vmm->mappings[i]);
    vmm->unplaced_bytes += vmm->mappings[i].bytes;
  }
  vmm_take_out(vmm, first, last);
  return true;
}

bool vmm_pass(struct vmm *from, size_t at, struct vmm *to) {
  const struct vmm_mapping passed = from->mappings[at];
  if (driver_get()->unmap(passed.addr, passed.bytes) != DRIVER_OK) return false;
  vmm_forget_handle(from, passed.handle);
  vmm_take_out(from, at, at + 1);
  if (to != NULL && array_reserve(&to->unplaced, &to->unplaced_room, to->unplaced_count + 1, sizeof *to->unplaced)) {
    add_unplaced(to, passed);
    to->unplaced_bytes += passed.bytes;
  } else if (driver_get()->release(passed.handle) != DRIVER_OK) {
    problem("GPU %d: the driver did not take back %llu bytes, which are lost to the job", from->device->device, (unsigned long long)passed.bytes);
  }
  return true;
}

bool vmm_take_kept(struct vmm *vmm, struct vmm_mapping *piece) {
  const size_t at = vmm_find_old(vmm, piece->addr);
  if (!is_old(vmm, at) || vmm->old[at].addr != piece->addr || vmm->old[at].bytes != piece->bytes) return false;
  for (size_t i = 0; i < vmm->unplaced_count; i++) {
    if (vmm->unplaced[i].handle != vmm->old[at].handle) continue;
    vmm->unplaced_bytes -= piece->bytes;
    remove_old(vmm, at);
    return take_unplaced(vmm, i, piece);
  }
  return false;
}

// The one that was unplaced last: those that were unplaced first are, as a rule, still mapped where the request will map next.
bool vmm_take_unplaced(struct vmm *vmm, struct vmm_mapping *piece) {
  for (size_t i = vmm->unplaced_count; i-- > 0;) {
    if (vmm->unplaced[i].bytes != piece->bytes) continue;
    vmm->unplaced_bytes -= piece->bytes;
    return take_unplaced(vmm, i, piece);
  }
  return false;
}

void vmm_give_unplaced(struct vmm *vmm, const struct vmm_mapping *piece, bool kept) {
  struct vmm_mapping unplaced = *piece;
  unplaced.addr = piece->from;
  if (kept) add_old(vmm, piece, 1);
  add_unplaced(vmm, unplaced);
  vmm->unplaced_bytes += piece->bytes;
}

bool vmm_clear_old(struct vmm *vmm, uint64_t addr, uint64_t bytes) {
  for (size_t at = vmm_find_old(vmm, addr); at < vmm->old_count && vmm->old[at].addr < addr + bytes; at++) {
    if (vmm->old[at].gone) continue;
    if (!vmm->idle(vmm->owner, vmm->old[at].addr, vmm->old[at].bytes) || driver_get()->unmap(vmm->old[at].addr, vmm->old[at].bytes) != DRIVER_OK) return false;
    remove_old(vmm, at);
  }
  return true;
}

bool vmm_forget_handle(struct vmm *vmm, driver_handle handle) {
  bool all = true;
  for (size_t at = vmm->old_count; at-- > 0;) {
    if (vmm->old[at].gone || vmm->old[at].handle != handle) continue;
    const struct vmm_mapping old = vmm->old[at];
    remove_old(vmm, at);
    if (driver_get()->unmap(old.addr, old.bytes) == DRIVER_OK) continue;
    vmm_note_stuck(vmm, &old);
    all = false;
  }
  return all;
}

// The index of the old mapping of an unplaced handle where it was last, or, if that is gone, any; old_count: it has none. Where it was last its
// memory was free last: when that address is clear, all others of the handle are.
static size_t old_of(const struct vmm *vmm, const struct vmm_mapping *unplaced) {
  size_t at = vmm_find_old(vmm, unplaced->addr);
  if (is_old(vmm, at) && vmm->old[at].addr == unplaced->addr && vmm->old[at].handle == unplaced->handle) return at;
  for (at = 0; at < vmm->old_count && (vmm->old[at].gone || vmm->old[at].handle != unplaced->handle);) at++;
  return at;
}

bool vmm_put_back(struct vmm *vmm, uint64_t *addr, uint64_t *bytes) {
  for (size_t i = vmm->unplaced_count; i-- > 0;) {
    struct vmm_mapping piece = vmm->unplaced[i];
    const size_t old = old_of(vmm, &piece);
    if (old == vmm->old_count) continue;
    piece.addr = vmm->old[old].addr;
    const size_t at = vmm_find(vmm, piece.addr);
    if (!array_reserve(&vmm->mappings, &vmm->room, vmm->count + 1, sizeof *vmm->mappings)) return false;
    vmm->unplaced_bytes -= piece.bytes;
    remove_old(vmm, old);
    take_unplaced(vmm, i, &piece);
    memmove(vmm->mappings + at + 1, vmm->mappings + at, (vmm->count - at) * sizeof *vmm->mappings);
    vmm->mappings[at] = piece;
    vmm->count++;
    vmm->created++;
    vmm->mapped += piece.bytes;
    *addr = piece.addr;
    *bytes = piece.bytes;
    return true;
  }
  return false;
}

static void release_unplaced(struct vmm *vmm, size_t at) {
  struct vmm_mapping piece;
  const uint64_t bytes = vmm->unplaced[at].bytes;
  take_unplaced(vmm, at, &piece);
  vmm->unplaced_bytes -= bytes;
  const bool unmapped = vmm_forget_handle(vmm, piece.handle);
  if (driver_get()->release(piece.handle) != DRIVER_OK || !unmapped)
    problem("GPU %d: the driver did not take back %llu bytes, which are lost to the job", vmm->device->device, (unsigned long long)bytes);
}

void vmm_release_unplaced(struct vmm *vmm) {
  for (size_t i = vmm->unplaced_count; i-- > 0;) {
    if (old_of(vmm, &vmm->unplaced[i]) == vmm->old_count) release_unplaced(vmm, i);
  }
}

void vmm_forget_old(struct vmm *vmm) {
  while (vmm->unplaced_count > 0) release_unplaced(vmm, vmm->unplaced_count - 1);
  while (vmm->old_count > 0) {
    const struct vmm_mapping old = vmm->old[--vmm->old_count];
    if (!old.gone && driver_get()->unmap(old.addr, old.bytes) != DRIVER_OK) vmm_note_stuck(vmm, &old);
  }
}
