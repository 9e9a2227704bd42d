// policy.c - the texts of policies. See policy.h.
#include "bfc/policy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct bfc_policy bfc_policy_default = {.headroom = (uint64_t)2 << 30};

static bool parse_amount(const char *text, uint64_t *out) {
  if (*text < '0' || *text > '9') return false;
  char *end;
  errno = 0;
  const unsigned long long value = strtoull(text, &end, 10);
  if (errno != 0 || *end != '\0') return false;
  *out = value;
  return true;
}

static bool set_preset(struct bfc_policy *policy, const char *text) {
  const bool compact = strcmp(text, "compact") == 0;
  if (!compact && strcmp(text, "classic") != 0) return false;
  policy->preset = compact ? BFC_COMPACT : BFC_CLASSIC;
  return true;
}

static bool set_trim(struct bfc_policy *policy, const char *text) {
  uint64_t idle_ns = 0;
  if (strcmp(text, "never") == 0)
    policy->trim = BFC_TRIM_NEVER;
  else if (strcmp(text, "iteration") == 0)
    policy->trim = BFC_TRIM_ITERATION;
  else if (strncmp(text, "idle:", 5) == 0 && parse_amount(text + 5, &idle_ns) && idle_ns > 0)
    policy->trim = BFC_TRIM_IDLE;
  else
    return false;
  policy->idle_ns = idle_ns;
  return true;
}

bool bfc_policy_set(struct bfc_policy *policy, const char *key, const char *text) {
  if (strcmp(key, "preset") == 0) return set_preset(policy, text);
  if (strcmp(key, "trim") == 0) return set_trim(policy, text);
  if (strcmp(key, "limit") == 0) return parse_amount(text, &policy->limit);
  if (strcmp(key, "headroom") == 0) return parse_amount(text, &policy->headroom);
  if (strcmp(key, "handle") == 0) return parse_amount(text, &policy->handle);
  return false;
}

void bfc_policy_fields(const struct bfc_arena_policy *policy, char *text, size_t size) {
  static const char *const growths[] = {[BFC_DOUBLE] = "double", [BFC_NEEDED] = "needed", [BFC_PAGES] = "pages"};
  static const char *const trims[] = {[BFC_TRIM_NEVER] = "never", [BFC_TRIM_ITERATION] = "iteration", [BFC_TRIM_IDLE] = "idle"};
  char idle[24] = "";
  if (policy->trim == BFC_TRIM_IDLE) snprintf(idle, sizeof idle, ":%llu", (unsigned long long)policy->idle_ns);
  snprintf(text, size, "growth=%s split=%s trim=%s%s headroom=%llu", growths[policy->options.growth], policy->options.always_split ? "always" : "classic",
           trims[policy->trim], idle, (unsigned long long)policy->options.headroom);
}
