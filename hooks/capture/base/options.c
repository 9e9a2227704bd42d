// options.c - see options.h.
#include "base/options.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hook.h"
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

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void parse(void) {
  char wrong[128];
  if (!options_parse(hook_options(), &parsed, wrong, sizeof wrong)) {
    problem("MEMPROF_OPTIONS: \"%s\" is not valid; its default is used", wrong);
  }
}

// Each request asks for an option.
const struct options *options_get(void) {
  if (!atomic_load_explicit(&ready, memory_order_acquire)) {
    pthread_mutex_lock(&lock);
    if (!atomic_load(&ready)) parse();
    atomic_store_explicit(&ready, true, memory_order_release);
    pthread_mutex_unlock(&lock);
  }
  return &parsed;
}

static void forget(void) { pthread_mutex_init(&lock, NULL); }

static void stop(void) { atomic_store(&ready, false); }

HOOK_PART(.forget = forget, .stop = stop);
