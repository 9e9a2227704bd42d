// policy.c - the table of a policy's dimensions, and their texts. See policy.h.
#include "bfc/policy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct bfc_policy bfc_policy_classic = {.growth = BFC_DOUBLE, .headroom = (uint64_t)2 << 30};

enum { MOST_CHOICES = 8, NO_AMOUNT = 0, POSITIVE, ANY_AMOUNT };

// A value of a dimension: a word, a word with an amount behind a colon, or an amount alone.
struct choice {
  const char *word;  // "" for an amount alone; NULL behind the last choice
  int amount;        // NO_AMOUNT, POSITIVE, or ANY_AMOUNT, which may be 0
};

struct value {
  unsigned choice;
  uint64_t amount;
};

struct dimension {
  const char *key;    // in MEMPROF_OPTIONS
  const char *field;  // in arena events; NULL: they do not have it
  struct choice choices[MOST_CHOICES + 1];
  struct value (*get)(const struct bfc_policy *policy);
  void (*set)(struct bfc_policy *policy, struct value value);
};

static struct value get_growth(const struct bfc_policy *p) { return (struct value){p->growth, p->step}; }
static void set_growth(struct bfc_policy *p, struct value v) { p->growth = (enum bfc_growth)v.choice, p->step = v.amount; }

static struct value get_split(const struct bfc_policy *p) {
  if (p->split == 0) return (struct value){0, 0};
  return p->split == BFC_GRANULE ? (struct value){1, 0} : (struct value){2, p->split};
}
static void set_split(struct bfc_policy *p, struct value v) { p->split = v.choice == 1 ? BFC_GRANULE : v.amount; }

static struct value get_small(const struct bfc_policy *p) { return (struct value){0, p->small_arenas}; }
static void set_small(struct bfc_policy *p, struct value v) { p->small_arenas = v.amount; }

static struct value get_trim(const struct bfc_policy *p) { return (struct value){p->trim, p->idle_ns}; }
static void set_trim(struct bfc_policy *p, struct value v) { p->trim = (enum bfc_trim)v.choice, p->idle_ns = v.amount; }

static struct value get_placement(const struct bfc_policy *p) { return (struct value){p->placement, 0}; }
static void set_placement(struct bfc_policy *p, struct value v) { p->placement = (enum bfc_placement)v.choice; }

static struct value get_headroom(const struct bfc_policy *p) { return (struct value){0, p->headroom}; }
static void set_headroom(struct bfc_policy *p, struct value v) { p->headroom = v.amount; }

static struct value get_limit(const struct bfc_policy *p) { return (struct value){0, p->limit}; }
static void set_limit(struct bfc_policy *p, struct value v) { p->limit = v.amount; }

static struct value get_handle(const struct bfc_policy *p) { return (struct value){0, p->handle}; }
static void set_handle(struct bfc_policy *p, struct value v) { p->handle = v.amount; }

// Choices are in the order of the constants that they stand for.
static const struct dimension dimensions[] = {
    {"growth", "growth", {{"double", 0}, {"needed", 0}, {"none", 0}, {"step", POSITIVE}, {"pages", 0}}, get_growth, set_growth},
    {"split", "split", {{"classic", 0}, {"always", 0}, {"", POSITIVE}}, get_split, set_split},
    {"small", "below", {{"", ANY_AMOUNT}}, get_small, set_small},
    {"trim", "trim", {{"never", 0}, {"iteration", 0}, {"idle", POSITIVE}, {"pressure", 0}}, get_trim, set_trim},
    {"placement", "placement", {{"best-fit", 0}, {"planned", 0}}, get_placement, set_placement},
    {"headroom", "headroom", {{"", ANY_AMOUNT}}, get_headroom, set_headroom},
    {"limit", NULL, {{"", ANY_AMOUNT}}, get_limit, set_limit},
    {"handle", NULL, {{"", ANY_AMOUNT}}, get_handle, set_handle},
};
enum { DIMENSIONS = sizeof dimensions / sizeof *dimensions };

static bool parse_amount(const char *text, int kind, uint64_t *out) {
  if (*text < '0' || *text > '9') return false;
  char *end;
  errno = 0;
  const unsigned long long value = strtoull(text, &end, 10);
  if (errno != 0 || *end != '\0' || (value == 0 && kind == POSITIVE)) return false;
  *out = value;
  return true;
}

// Whether a text is a value of that choice.
static bool parse_choice(const struct choice *choice, const char *text, uint64_t *amount) {
  const size_t length = strlen(choice->word);
  if (strncmp(text, choice->word, length) != 0) return false;
  text += length;
  if (choice->amount == NO_AMOUNT) return *text == '\0';
  if (length > 0 && *text++ != ':') return false;
  return parse_amount(text, choice->amount, amount);
}

bool bfc_policy_set(struct bfc_policy *policy, const char *key, const char *text) {
  for (size_t i = 0; i < DIMENSIONS; i++) {
    const struct dimension *dimension = &dimensions[i];
    if (strcmp(dimension->key, key) != 0) continue;
    for (unsigned c = 0; dimension->choices[c].word != NULL; c++) {
      struct value value = {.choice = c};
      if (!parse_choice(&dimension->choices[c], text, &value.amount)) continue;
      dimension->set(policy, value);
      return true;
    }
  }
  return false;
}

// Appends to a text what of it there is room for.
static void append(char *text, size_t size, const char *more) {
  const size_t length = strlen(text);
  snprintf(text + length, size - length, "%s", more);
}

void bfc_policy_fields(const struct bfc_policy *policy, char *text, size_t size) {
  text[0] = '\0';
  for (size_t i = 0; i < DIMENSIONS; i++) {
    const struct dimension *dimension = &dimensions[i];
    const struct value value = dimension->get(policy);
    if (dimension->field == NULL || (dimension->get == get_small && value.amount == 0)) continue;
    const struct choice *choice = &dimension->choices[value.choice];
    char amount[24] = "";
    if (choice->amount != NO_AMOUNT) snprintf(amount, sizeof amount, "%llu", (unsigned long long)value.amount);
    if (i > 0) append(text, size, " ");
    append(text, size, dimension->field);
    append(text, size, "=");
    append(text, size, choice->word);
    if (choice->amount != NO_AMOUNT && choice->word[0] != '\0') append(text, size, ":");
    append(text, size, amount);
  }
}
