// code.c - what has been done with handles, of which ever more come and go.
#define _GNU_SOURCE
#include "watch/code.h"

#include "check.h"

static void *handle_at(uintptr_t i) { return (void *)(0x7f0000000000 + 64 * i); }

// The table has room for what differs, however often it is loaded.
TEST(loaded_over_and_over) {
  static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
  for (int load = 0; load < 20000; load++) {
    void *const module = handle_at((uintptr_t)load % 16);
    code_remember(module, 7);
    for (int i = 0; i < 8; i++) {
      const struct code_use use = {module, load % 2, names[i]};
      CHECK(code_first(&use) && !code_first(&use));
    }
  }
  for (uintptr_t i = 100; i < 1100; i++) {
    code_remember(handle_at(i), 8);
    CHECK_EQUAL(code_of(handle_at(i)), 8);
    CHECK(code_first(&(struct code_use){handle_at(i), -1, NULL}));
  }
}

TEST(uses) {
  const struct code_use launch = {handle_at(1), -1, NULL}, none = {NULL, -1, NULL};
  CHECK(code_first(&launch) && !code_first(&launch));  // a handle that was never seen to be made
  code_undo(&launch);
  CHECK(code_first(&launch) && !code_first(&launch));
  for (int device = 0; device < 2; device++) {
    const struct code_use ask = {handle_at(1), device, NULL}, other = {handle_at(1), device, "f"};
    CHECK(code_first(&ask) && !code_first(&ask) && code_first(&other) && !code_first(&other));
  }
  code_lost();
  CHECK(code_first(&launch) && !code_first(&launch));
  CHECK(!code_first(&none) && code_of(NULL) == 0);
}

// A part is remembered with what it is of, and anew when that was.
TEST(parts) {
  const struct code_use launch = {handle_at(2), -1, NULL};
  code_remember(handle_at(1), 5);
  code_derive(handle_at(2), handle_at(1));
  CHECK_EQUAL(code_of(handle_at(2)), 5);
  CHECK(code_first(&launch));
  code_derive(handle_at(2), handle_at(1));
  CHECK(!code_first(&launch));
  code_remember(handle_at(1), 5);
  code_derive(handle_at(2), handle_at(1));
  CHECK(code_first(&launch));
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
