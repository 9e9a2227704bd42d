// options.h - what `memprof record` asked for, as it reached this process.
//
// MEMPROF_OPTIONS is a list of key=value separated by commas; sizes are bytes as decimal
// integers. A key that is unknown or a value that does not parse is a problem line, and
// the default stays: the job runs either way.
#ifndef MEMPROF_OPTIONS_H
#define MEMPROF_OPTIONS_H

#include "bfc/policy.h"

struct options {
  struct bfc_policy policy;  // its keys and values are those of bfc/policy.c; the default is preset classic
  uint64_t backup_limit;     // backup_limit=BYTES of pinned host memory for copies; 0 = no limit
  bool serve;                // serve=1: other libraries' memory comes from our arenas, too
  bool readings;             // readings=1: the process reads its devices' used memory; see device/readings.c
  bool stacks;               // stacks=1: requests carry the Python stack they are made from
};

// Parsed at the first call.
const struct options *options_get(void);

// For tests: parses `text` into *out; false, with the offending piece in `wrong`.
bool options_parse(const char *text, struct options *out, char *wrong, size_t wrong_size);

#endif
