// text.c - what enters the recording is UTF-8, whatever the hook was given, and ends with a
// whole character.
#define _GNU_SOURCE
#include "base/text.h"

#include "gpu.h"
#include "memprof.h"
#include "trail.h"

#define BAD "\xef\xbf\xbd"

static void check_copy(const char *given, size_t size, const char *want) {
  char out[64];
  CHECK(size <= sizeof out);
  memset(out, 'x', sizeof out);
  const size_t length = text_copy(out, size, given, strlen(given));
  if (strcmp(out, want) != 0) fprintf(stderr, "\"%s\" in %zu bytes is \"%s\", want \"%s\"\n", given, size, out, want);
  CHECK(strcmp(out, want) == 0);
  CHECK_EQUAL(length, strlen(want));
  CHECK(text_is_valid(out, length));
}

TEST(copies) {
  static const struct {
    const char *given;
    size_t size;
    const char *want;
  } cases[] = {
      {"", 64, ""},
      {"layer1.conv", 64, "layer1.conv"},
      {"caf\xc3\xa9 \xe5\xb1\x82 \xf0\x9f\x98\x80", 64, "caf\xc3\xa9 \xe5\xb1\x82 \xf0\x9f\x98\x80"},
      {"caf\xe9", 64, "caf" BAD},
      {"\xe9\xe8\xff one", 64, BAD " one"},                 // a run is one
      {"a\xe5\xb1", 64, "a" BAD},                           // begun and not ended
      {"\xe5\xb1z", 64, BAD "z"},
      {"\xc0\xaf \xe0\x80\xaf \xf0\x80\x80\xaf", 64, BAD " " BAD " " BAD},  // overlong
      {"\xed\xa0\x80 \xed\x9f\xbf", 64, BAD " \xed\x9f\xbf"},  // a surrogate, and the last before them
      {"\xf4\x90\x80\x80 \xf4\x8f\xbf\xbf", 64, BAD " \xf4\x8f\xbf\xbf"},  // beyond Unicode, and its last
      {"caf\xc3\xa9", 6, "caf\xc3\xa9"},
      {"caf\xc3\xa9", 5, "caf"},  // cut at the end of a character
      {"caf\xc3\xa9", 4, "caf"},
      {"caf\xe9", 6, "caf"},
      {"caf\xe9", 7, "caf" BAD},
      {"caf", 1, ""},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_copy(cases[i].given, cases[i].size, cases[i].want);
}

TEST(trims) {
  const char text[] = "a\xc3\xa9\xe5\xb1\x82\xf0\x9f\x98\x80";
  static const size_t want[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10};
  for (size_t length = 0; length < sizeof text; length++) CHECK_EQUAL(text_trim(text, length), want[length]);
}

// Executed again: under a command line that is cut inside a character.
TEST(process_page) {
  char long_argument[3 * 600 + 1] = "";
  for (int i = 0; i < 600; i++) strcat(long_argument, "\xe5\xb1\x82");
  if (getenv("AGAIN") == NULL) {
    setenv("AGAIN", "1", 1);
    execl("/proc/self/exe", "caf\xe9", "process_page", long_argument, (char *)NULL);
    _exit(127);
  }
  gpu_start();
  memprof_note_framework("torch caf\xe9");
  memprof_note_framework("caf\xc3\xa9 1");
  CHECK(memprof_malloc(1, 0, NULL) != NULL);
  memprof_problem("caf\xe9");
  memprof_problem(long_argument);
  const struct trail trail = trail_read(getpid(), 0);
  const char *command = trail.process.command;
  CHECK(strncmp(command, "caf" BAD " process_page \xe5\xb1\x82", 23) == 0);
  CHECK(strlen(command) > 1023 - 3 && strlen(command) <= 1023 && text_is_valid(command, strlen(command)));
  CHECK(strcmp(trail.process.frameworks, "torch caf" BAD "; caf\xc3\xa9 1") == 0);
  const char *problems = trail_problems(&trail);
  CHECK(strncmp(problems, "caf" BAD "\n\xe5\xb1\x82", 10) == 0);
  CHECK(text_is_valid(problems, strlen(problems)) && strlen(problems) > 1020 && problems[strlen(problems) - 1] == '\n');
}

// Contexts, phases, labels, stacks, tags, names of captures.
TEST(strings) {
  char longest[5000] = "x", text[4097];
  while (strlen(longest) < 4500) strcat(longest, "\xe5\xb1\x82");
  gpu_start();
  memprof_set_context("caf\xe9");
  void *block = memprof_malloc(1000, 0, NULL);
  CHECK(block != NULL);
  memprof_set_context(longest);
  CHECK(memprof_malloc(1000, 0, NULL) != NULL);
  memprof_label(block, "holds=\xff");
  memprof_phase_begin("\xfe");
  memprof_phase_end("\xfe");
  memprof_region_begin("r\xe9gion", 0);
  CHECK(memprof_malloc(1000, 0, NULL) != NULL);
  memprof_region_end();
  memprof_stack_node(0, "f (caf\xe9.py:1)");
  const struct trail trail = trail_read(getpid(), 0);
  int strings = 0;
  for (uint64_t i = 0; i < trail.count; i++) {
    if (trail_kind(&trail.records[i]) == MEMPROF_STRING || trail.records[i].context == 0) continue;
    trail_text(&trail, trail.records[i].context, i, text);
    CHECK(text_is_valid(text, strlen(text)));
    strings++;
  }
  CHECK(strings >= 8);
  const struct memprof_record *event = trail_event(&trail, MEMPROF_ALLOC, 0);
  trail_text(&trail, event->context, (uint64_t)(event - trail.records), text);
  CHECK(strcmp(text, "caf" BAD) == 0);
  event = trail_event(&trail, MEMPROF_ALLOC, 1);
  trail_text(&trail, event->context, (uint64_t)(event - trail.records), text);
  CHECK_EQUAL(strlen(text), 4096);  // 1 + 1,365 characters of three bytes
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
