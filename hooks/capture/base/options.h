// options.h - the options of `memprof record` that concern the hook.
//
// `record` sets MEMPROF_OPTIONS to a list of key=value separated by commas; sizes are bytes as
// decimal integers, times nanoseconds. An unknown key or a value that does not parse becomes a
// line of the problems file and leaves the default, so that the job runs either way.
#ifndef MEMPROF_OPTIONS_H
#define MEMPROF_OPTIONS_H

#include "bfc/policy.h"

struct options {
  struct bfc_policy policy;  // its keys and values are those of bfc/policy.c; the default is preset classic
  uint64_t backup_limit;     // backup_limit=BYTES of pinned host memory for copies; 0 = no limit
  bool serve;                // serve=1: cudaMalloc of the job and its libraries is served from arenas, too
  bool readings;             // readings=1: a thread reads the devices' used memory; see device/readings.c
  bool stacks;               // stacks=1: each allocation's Python stack is recorded
};

// The options of this process; parsed at the first call, and the same from then on, until the recording ends.
const struct options *options_get(void);

// For tests: parses `text` into *out. False: the first part that does not parse is in `wrong`.
bool options_parse(const char *text, struct options *out, char *wrong, size_t wrong_size);

#endif
