// registered.h - memory of arenas that others know by its physical pages.
//
// A communication library registers buffers (ncclCommRegister, windows, multicast groups), a network card gets their
// bus addresses (ibv_reg_mr, cuMemGetHandleForAddressRange), another process maps their handles
// (cuMemExportToShareableHandle). They go on using the pages that were there then, also while no block is. So pages with
// a registration stay mapped where they are: no request takes them, nothing unmaps them, and a pool that has one
// with an end does not end before. interpose/registrations.c sees the calls:
//
//   shown by                                                   kept until
//   ncclCommRegister, ncclCommWindowRegister,                  the call that undoes each
//     cuMulticastBindAddr, cuMulticastBindMem, ibv_reg_mr
//   cuMemRetainAllocationHandle                                the handle is released
//   cuMemExportToShareableHandle,                              for good, unless a registration that ends covers
//     cuMemGetHandleForAddressRange                            the range
#ifndef MEMPROF_REGISTERED_H
#define MEMPROF_REGISTERED_H

#include <stdbool.h>
#include <stdint.h>

struct arena;

// What ends a registration; keys of different kinds may be equal.
enum registrar {
  REGISTERED_NCCL,       // by the handle or window, and the communicator
  REGISTERED_RETAINED,   // by the driver's handle, as often as it is released
  REGISTERED_MULTICAST,  // by the multicast handle and the offset in it
  REGISTERED_NETWORK,    // by the memory region
  REGISTERED_FOR_GOOD,   // nothing: nobody says when the others are done
};

struct registration_key {
  enum registrar by;
  uint64_t first, second;
};

// Registers [addr, addr+bytes), if it begins in an arena that maps its memory itself; with 0 bytes all of the handle there.
// `call` names the function for the trace. Before the call is made: so nothing happens to the pages meanwhile.
// False: it is not ours.
bool registered_add(struct registration_key key, uint64_t addr, uint64_t bytes, const char *call);

// The same for what others keep without saying how long, unless a registration that ends covers it already.
void registered_keep(uint64_t addr, uint64_t bytes, const char *call);

// Gives a registration its final key, under which there may be others.
void registered_rename(struct registration_key from, struct registration_key to);

// Ends the last registration with that key. False: there is none.
bool registered_remove(struct registration_key key);

// Ends a registration by `by` whose key has that second number. False: there is none.
bool registered_end_of(enum registrar by, uint64_t second);

// The range of a registration with that key. False: there is none.
bool registered_find(struct registration_key key, uint64_t *addr, uint64_t *bytes);

// Whether the arena has registrations that end. Needs its device's lock.
bool registered_ends(const struct arena *arena);

// Ends all registrations of an arena that is about to end. Needs its device's lock.
void registered_drop(struct arena *arena);

#endif
