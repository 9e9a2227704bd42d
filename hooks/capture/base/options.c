// options.c - see options.h.
#include "base/options.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/problem.h"

static const struct options defaults = {
    .growth = BFC_DOUBLE,
    .headroom = (uint64_t)2 << 30,
    .limit = 0,
    .serve = false,
    .stacks = false,
};

static bool parse_bytes(const char *text, uint64_t *out) {
  if (*text < '0' || *text > '9') return false;
  char *end;
  errno = 0;
  unsigned long long value = strtoull(text, &end, 10);
  if (errno != 0 || *end != '\0') return false;
  *out = value;
  return true;
}

// The index of a name in a list that ends with NULL, or -1.
static int index_of(const char *text, const char *const *names) {
  for (int i = 0; names[i] != NULL; i++) {
    if (strcmp(text, names[i]) == 0) return i;
  }
  return -1;
}

static bool parse_positive(const char *text, const char *prefix, uint64_t *out) {
  const size_t length = strlen(prefix);
  return strncmp(text, prefix, length) == 0 && parse_bytes(text + length, out) && *out > 0;
}

static bool parse_growth(const char *text, struct options *out) {
  static const char *const names[] = {[BFC_DOUBLE] = "double", [BFC_NEEDED] = "needed", [BFC_NONE] = "none", NULL};
  const int found = index_of(text, names);
  out->growth = found >= 0 ? (enum bfc_growth)found : BFC_STEP;
  return found >= 0 || parse_positive(text, "step:", &out->step);
}

static bool parse_split(const char *text, struct options *out) {
  static const char *const names[] = {"classic", "always", NULL};
  const int found = index_of(text, names);
  if (found < 0) return parse_positive(text, "", &out->split);
  out->split = found == 0 ? 0 : BFC_GRANULE;
  return true;
}

static bool parse_trim(const char *text, struct options *out) {
  static const char *const names[] = {[TRIM_NEVER] = "never", [TRIM_ITERATION] = "iteration", [TRIM_IDLE] = "idle", [TRIM_PRESSURE] = "pressure", NULL};
  const int found = index_of(text, names);
  out->trim = found >= 0 ? (enum trim)found : TRIM_IDLE;
  return found >= 0 ? found != TRIM_IDLE : parse_positive(text, "idle:", &out->idle_ns);
}

static bool parse_placement(const char *text, struct options *out) {
  static const char *const names[] = {"best-fit", "planned", NULL};
  const int found = index_of(text, names);
  out->planned = found == 1;
  return found >= 0;
}

static bool parse_switch(const char *text, bool *out) {
  if ((text[0] != '0' && text[0] != '1') || text[1] != '\0') return false;
  *out = text[0] == '1';
  return true;
}

static bool set(struct options *options, const char *key, const char *value) {
  if (strcmp(key, "growth") == 0) return parse_growth(value, options);
  if (strcmp(key, "split") == 0) return parse_split(value, options);
  if (strcmp(key, "small") == 0) return parse_bytes(value, &options->small);
  if (strcmp(key, "trim") == 0) return parse_trim(value, options);
  if (strcmp(key, "placement") == 0) return parse_placement(value, options);
  if (strcmp(key, "headroom") == 0) return parse_bytes(value, &options->headroom);
  if (strcmp(key, "limit") == 0) return parse_bytes(value, &options->limit);
  if (strcmp(key, "handle") == 0) return parse_bytes(value, &options->handle) && options->handle > 0;
  if (strcmp(key, "backup_limit") == 0) return parse_bytes(value, &options->backup_limit);
  if (strcmp(key, "serve") == 0) return parse_switch(value, &options->serve);
  if (strcmp(key, "readings") == 0) return parse_switch(value, &options->readings);
  if (strcmp(key, "stacks") == 0) return parse_switch(value, &options->stacks);
  return false;
}

bool options_parse(const char *text, struct options *out, char *wrong, size_t wrong_size) {
  *out = defaults;
  bool all = true;
  while (*text != '\0') {
    const size_t length = strcspn(text, ",");
    char piece[128];
    snprintf(piece, sizeof piece, "%.*s", (int)length, text);
    text += length + (text[length] == ',');
    if (length == 0) continue;
    char *equals = strchr(piece, '=');
    if (equals != NULL) *equals = '\0';
    struct options changed = *out;
    if (length < sizeof piece && equals != NULL && set(&changed, piece, equals + 1)) {
      *out = changed;
      continue;
    }
    if (equals != NULL) *equals = '=';
    if (all) snprintf(wrong, wrong_size, "%s", piece);
    all = false;
  }
  return all;
}

static struct options parsed;

static void parse_once(void) {
  const char *text = getenv("MEMPROF_OPTIONS");
  char wrong[128];
  if (!options_parse(text == NULL ? "" : text, &parsed, wrong, sizeof wrong)) {
    problem("MEMPROF_OPTIONS: cannot use \"%s\"; its default holds", wrong);
  }
}

const struct options *options_get(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, parse_once);
  return &parsed;
}
