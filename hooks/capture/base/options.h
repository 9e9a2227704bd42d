// options.h - what `memprof record` asked for, as it reached this process.
//
// MEMPROF_OPTIONS is a list of key=value separated by commas; sizes are bytes as decimal
// integers. A key that is unknown or a value that does not parse is a problem line, and
// the default stays: the job runs either way.
#ifndef MEMPROF_OPTIONS_H
#define MEMPROF_OPTIONS_H

#include "bfc/bfc.h"

enum trim { TRIM_NEVER, TRIM_ITERATION, TRIM_IDLE, TRIM_PRESSURE };

struct options {
  enum bfc_growth growth;  // growth=double|needed|step:BYTES|none, of main arenas
  uint64_t step;           // the BYTES of a step
  uint64_t split;          // split=classic|always|BYTES: as bfc_options has it
  uint64_t small;          // small=BYTES: requests below it are served apart; 0 = none are
  enum trim trim;          // trim=never|iteration|idle:NS|pressure
  uint64_t idle_ns;        // the NS of idle
  bool planned;            // placement=best-fit|planned
  uint64_t headroom;       // headroom=BYTES that growth beyond a request leaves on the device
  uint64_t limit;          // limit=BYTES a device's main arena may map; 0 = the device's memory
  uint64_t handle;         // handle=BYTES of the physical handles a grant is cut into; 0 = by the policy
  uint64_t backup_limit;   // backup_limit=BYTES of pinned host memory for copies; 0 = no limit
  bool serve;              // serve=1: other libraries' memory comes from our arenas, too
  bool readings;           // readings=1: the process reads its devices' used memory; see device/readings.c
  bool stacks;             // stacks=1: requests carry the Python stack they are made from
};

// Parsed at the first call.
const struct options *options_get(void);

// For tests: parses `text` into *out; false, with the offending piece in `wrong`.
bool options_parse(const char *text, struct options *out, char *wrong, size_t wrong_size);

#endif
