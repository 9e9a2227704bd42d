// intern.c - arrays that grow, and tables that number items by their content.
#define _GNU_SOURCE
#include "base/intern.h"

#include "base/array.h"
#include "gpu.h"

TEST(array_keeps_its_elements) {
  uint64_t *list = NULL;
  size_t room = 0;
  for (uint64_t i = 0; i < 1000; i++) {
    CHECK(array_reserve(&list, &room, i + 1, sizeof *list));
    list[i] = i * i;
  }
  CHECK(room >= 1000 && room < 2048);
  for (uint64_t i = 0; i < 1000; i++) CHECK_EQUAL(list[i], i * i);
  free(list);
}

TEST(array_that_cannot_grow, "ASAN_OPTIONS", "allocator_may_return_null=1:detect_leaks=0") {
  char *list = NULL;
  size_t room = 0;
  CHECK(array_reserve(&list, &room, 5, 1));
  const size_t before = room;
  list[4] = 'x';
  CHECK(!array_reserve(&list, &room, (size_t)1 << 48, 1));
  CHECK_EQUAL(room, before);
  CHECK_EQUAL(list[4], 'x');
  free(list);
}

static bool same(const void *item, const void *key) { return *(const uint64_t *)item == *(const uint64_t *)key; }

// `same` distinguishes items that share a hash.
TEST(items_are_numbered) {
  enum { COUNT = 5000, HASHES = 100 };
  struct intern table = {.item_bytes = sizeof(uint64_t)};
  for (int pass = 0; pass < 2; pass++) {
    for (uint64_t i = 0; i < COUNT; i++) {
      const uint64_t key = i * 7;
      const uint32_t hash = (uint32_t)(i % HASHES) << 20;
      uint32_t number = intern_find(&table, hash, same, &key);
      CHECK_EQUAL(number, pass == 0 ? 0 : i + 1);
      if (number != 0) continue;
      uint64_t *item = intern_add(&table, hash);
      CHECK(item != NULL);
      *item = key;
      CHECK_EQUAL(table.count, i + 1);
      CHECK_EQUAL(*(uint64_t *)intern_item(&table, table.count), key);
    }
  }
  const uint64_t absent = 1;
  CHECK_EQUAL(intern_find(&table, 0, same, &absent), 0);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
