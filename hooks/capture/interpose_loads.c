// interpose_loads.c - what loads code and makes contexts.
#include "interpose_internal.h"

struct entry interpose_loads[] = {{0}};
