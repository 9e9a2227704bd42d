// api_process.c - recordings that code of the process begins and ends itself.
#include <string.h>

#include "base/hook.h"
#include "memprof.h"
#include "spool/spool.h"
#include "watch/watch.h"

int memprof_begin(const char *spool, const char *options) {
  if (spool == NULL || strcmp(spool, "-") == 0 || !hook_begin(spool, options == NULL ? "" : options)) return 0;
  if (spool_owned()) return 1;
  hook_end();
  return 0;
}

void memprof_end(void) {
  if (!hook_on() || !hook_in_process()) return;
  watch_mark();
  hook_end();
}
