// inject.c - makes chosen calls fail.
//
// MEMPROF_SIM_FAIL is a list of NAME:N, separated by commas: the N-th call of NAME, counted
// from 1 in this process, fails with "out of memory" and has no effect. NAME:N+ fails the
// N-th and all later calls; NAME:N=CODE (or N+=CODE) fails with another CUresult. Names are
// those of the log: without the _v2 of the ABI. A name may occur more than once.
//
// simcuda_fault makes all calls fail that reach the GPU, as the driver does once work there has failed.
#define _GNU_SOURCE
#include "internal.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RULES = 64 };

struct rule {
  char name[64];
  uint64_t first;
  uint64_t calls;
  bool onwards;
  CUresult result;
};

static struct rule rules[MOST_RULES];
static int rule_count;

static bool parse(const char *text, struct rule *rule) {
  const char *colon = strchr(text, ':');
  if (colon == NULL || colon == text || (size_t)(colon - text) >= sizeof rule->name) return false;
  *rule = (struct rule){.result = CUDA_ERROR_OUT_OF_MEMORY};
  memcpy(rule->name, text, (size_t)(colon - text));
  char *end;
  rule->first = strtoull(colon + 1, &end, 10);
  if (end == colon + 1 || rule->first == 0) return false;
  if (*end == '+') {
    rule->onwards = true;
    end++;
  }
  if (*end == '=') rule->result = (CUresult)strtol(end + 1, &end, 10);
  return *end == '\0' && rule->result != CUDA_SUCCESS;
}

void sim_inject_init(const char *specification) {
  rule_count = 0;
  if (specification == NULL) return;
  char *copy = strdup(specification), *rest = NULL;
  if (copy == NULL) return;
  for (char *item = strtok_r(copy, ",", &rest); item != NULL; item = strtok_r(NULL, ",", &rest)) {
    if (rule_count == MOST_RULES || !parse(item, &rules[rule_count]))
      fprintf(stderr, "simcuda: MEMPROF_SIM_FAIL: cannot use %s: want NAME:N, NAME:N+ or NAME:N=CODE\n", item);
    else
      rule_count++;
  }
  free(copy);
}

static _Atomic(CUresult) fault;  // of the work of the GPU; CUDA_SUCCESS: none

SIM_API void simcuda_fault(CUresult error) {
  fault = error;
}

// Whether a call asks nothing of the GPU, so that it works after a fault.
static bool is_of_host(const char *name) {
  static const char *const prefixes[] = {"cuInit", "cuDevice", "cuCtxGet", "cuCtxSet", "cuCtxPush", "cuCtxPop", "cuGet", "cuDriver"};
  for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
    if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) return true;
  }
  return false;
}

CUresult sim_inject(const char *name) {
  CUresult result = is_of_host(name) ? CUDA_SUCCESS : fault;
  for (int i = 0; i < rule_count; i++) {
    struct rule *rule = &rules[i];
    if (strcmp(rule->name, name) != 0) continue;
    rule->calls++;
    if (rule->calls == rule->first || (rule->onwards && rule->calls > rule->first)) result = rule->result;
  }
  return result;
}
