// calls.c - see calls.h.
#include "device/calls.h"

#include <stdatomic.h>
#include <stddef.h>

#include "base/clock.h"
#include "device/driver.h"

static struct driver of;  // the vendor's functions
static _Atomic(uint64_t) count, called_ns, waited_ns;

static driver_result called(uint64_t since, driver_result result) {
  atomic_fetch_add_explicit(&called_ns, clock_now() - since, memory_order_relaxed);
  atomic_fetch_add_explicit(&count, 1, memory_order_relaxed);
  return result;
}

static driver_result waited(uint64_t since, driver_result result) {
  atomic_fetch_add_explicit(&waited_ns, clock_now() - since, memory_order_relaxed);
  return result;
}

// The functions that are counted: by which of the two above, the name, parameters and arguments.
#define COUNTED(COUNT)                                                                                                                  \
  COUNT(called, reserve, (uint64_t *addr, size_t bytes, size_t alignment, uint64_t at, unsigned long long flags), (addr, bytes, alignment, at, flags)) \
  COUNT(called, unreserve, (uint64_t addr, size_t bytes), (addr, bytes))                                                                \
  COUNT(called, create, (driver_handle *handle, size_t bytes, const struct driver_properties *properties, unsigned long long flags), (handle, bytes, properties, flags)) \
  COUNT(called, release, (driver_handle handle), (handle))                                                                              \
  COUNT(called, map, (uint64_t addr, size_t bytes, size_t offset, driver_handle handle, unsigned long long flags), (addr, bytes, offset, handle, flags)) \
  COUNT(called, unmap, (uint64_t addr, size_t bytes), (addr, bytes))                                                                    \
  COUNT(called, set_access, (uint64_t addr, size_t bytes, const struct driver_access *access, size_t count), (addr, bytes, access, count)) \
  COUNT(called, event_create, (driver_event *event, unsigned flags), (event, flags))                                                    \
  COUNT(called, event_record, (driver_event event, void *stream), (event, stream))                                                      \
  COUNT(called, event_query, (driver_event event), (event))                                                                             \
  COUNT(called, event_destroy, (driver_event event), (event))                                                                           \
  COUNT(called, context_record, (void *context, driver_event event), (context, event))                                                  \
  COUNT(waited, synchronize, (void), ())                                                                                                \
  COUNT(waited, event_synchronize, (driver_event event), (event))

#define DEFINE(note, name, PARAMETERS, ARGUMENTS)  \
  static driver_result name PARAMETERS {           \
    const uint64_t since = clock_now();            \
    return note(since, of.name ARGUMENTS);         \
  }
COUNTED(DEFINE)

void calls_count(struct driver *table) {
  of = *table;
#define PUT(note, name, PARAMETERS, ARGUMENTS) if (of.name != NULL) table->name = name;
  COUNTED(PUT)
}

struct calls calls_so_far(void) { return (struct calls){atomic_load(&count), atomic_load(&called_ns), atomic_load(&waited_ns)}; }

const struct driver *calls_uncounted(void) { return &of; }
