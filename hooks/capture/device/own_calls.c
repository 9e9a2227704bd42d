// own_calls.c - see own_calls.h.
#include "device/own_calls.h"

static __thread int depth;

void own_calls_begin(void) { depth++; }
void own_calls_end(void) { depth--; }
bool own_calls(void) { return depth > 0; }
