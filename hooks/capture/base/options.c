// options.c - see options.h.
#include "base/options.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/problem.h"

static bool parse_bytes(const char *text, uint64_t *out) {
  if (*text < '0' || *text > '9') return false;
  char *end;
  errno = 0;
  unsigned long long value = strtoull(text, &end, 10);
  if (errno != 0 || *end != '\0') return false;
  *out = value;
  return true;
}

static bool parse_switch(const char *text, bool *out) {
  if ((text[0] != '0' && text[0] != '1') || text[1] != '\0') return false;
  *out = text[0] == '1';
  return true;
}

static bool set(struct options *options, const char *key, const char *value) {
  if (strcmp(key, "backup_limit") == 0) return parse_bytes(value, &options->backup_limit);
  if (strcmp(key, "serve") == 0) return parse_switch(value, &options->serve);
  if (strcmp(key, "readings") == 0) return parse_switch(value, &options->readings);
  if (strcmp(key, "stacks") == 0) return parse_switch(value, &options->stacks);
  return bfc_policy_set(&options->policy, key, value);
}

bool options_parse(const char *text, struct options *out, char *wrong, size_t wrong_size) {
  *out = (struct options){.policy = bfc_policy_default};
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

static _Atomic bool ready;  // `parsed` is filled

static void parse_once(void) {
  const char *text = getenv("MEMPROF_OPTIONS");
  char wrong[128];
  if (!options_parse(text == NULL ? "" : text, &parsed, wrong, sizeof wrong)) {
    problem("MEMPROF_OPTIONS: \"%s\" is not valid; its default is used", wrong);
  }
}

// Each request asks for an option, so this does not call pthread_once again.
const struct options *options_get(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (!atomic_load_explicit(&ready, memory_order_acquire)) {
    pthread_once(&once, parse_once);
    atomic_store_explicit(&ready, true, memory_order_release);
  }
  return &parsed;
}
