// devices.c - see devices.h.
#include "device/devices.h"

#include <stdatomic.h>

static _Atomic bool used[MOST_DEVICES];

void device_note_use(int device) {
  if (device_valid(device)) atomic_store_explicit(&used[device], true, memory_order_relaxed);
}

bool device_used(int device) { return device_valid(device) && atomic_load_explicit(&used[device], memory_order_relaxed); }
