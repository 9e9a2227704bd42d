// simhip.h - a simulated libamdhip64, for tests of hooks/capture/device/hip.c on machines without ROCm.
//
// It has the calls of HIP that the hook makes, one device by default, and no kernels. Device memory is pages of the host,
// counted against SIMHIP_BYTES. It has what reports to ROCm describe, so that a filler which would fail there fails here:
//
// - physical memory returns to the device when the addresses that it was mapped at are freed, not before;
// - sizes are multiples of 2 MiB, though the *minimum* granularity that it reports is 4 KiB;
// - an unmap of more or less than one mapping is refused, and so is freeing a part of a reservation;
// - addresses are freed only when nothing is mapped there, and then as they were reserved;
// - the only handle type is a file descriptor, and a descriptor made at creation outlives its memory;
// - set-access is refused for sizes whose number of granules is 3 modulo 4.
//
// Tests read and set its state by the functions below.
#ifndef MEMPROF_SIMHIP_H
#define MEMPROF_SIMHIP_H

#include <stddef.h>
#include <stdint.h>

enum { SIMHIP_GRANULE = 2 << 20 };
#define SIMHIP_BYTES ((size_t)1 << 30)  // of the device

#define SIMHIP_API __attribute__((visibility("default")))

SIMHIP_API size_t simhip_used(void);          // bytes of physical memory
SIMHIP_API int simhip_descriptors(void);      // file descriptors that handles left open
SIMHIP_API int simhip_refused_access(void);   // calls of hipMemSetAccess that were refused for their size
SIMHIP_API int simhip_reservations(void);     // ranges of addresses that are reserved

#endif
