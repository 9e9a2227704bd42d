// vendor.h - one vendor's driver library, as driver.c loads it. Only device/ includes this.
#ifndef MEMPROF_VENDOR_H
#define MEMPROF_VENDOR_H

#include <stddef.h>

#include "device/driver.h"

// A function of the library, and the member of struct driver that it fills.
struct vendor_symbol {
  const char *symbol;
  size_t offset;
};
#define VENDOR_SYMBOL(symbol, member) {symbol, offsetof(struct driver, member)}

struct vendor {
  const char *name;          // for problem lines
  const char *libraries[4];  // file names that dlopen is asked for, the newest version first; ends with NULL
  const struct vendor_symbol *needed;    // without one of them the driver is not used; ends with {0}
  const struct vendor_symbol *optional;  // members that may stay NULL; ends with {0}
  // Puts functions of its own into the table, which may call the library's. Returns NULL, or the symbol that the library
  // lacks. May be NULL.
  const char *(*adapt)(struct driver *table, void *library);
  struct driver_attributes attributes;
  bool unmaps_ranges, aliases;  // see struct driver
};

extern const struct vendor vendor_cuda, vendor_hip;

#endif
