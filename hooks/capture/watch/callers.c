// callers.c - see callers.h.
//
// The stack of an allocation is nearly that of the allocation before. So each thread keeps its last stack
// with the node of every frame, and looks up only the frames inside the first difference: in a small
// table of the thread, and if a frame is not there, in the table of all threads, which has its text.
#define _GNU_SOURCE
#include "watch/callers.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/hook.h"
#include "base/intern.h"
#include "base/options.h"
#include "memprof.h"
#include "spool/context.h"
#include "watch/extensions.h"
#include "watch/python_frames.h"

enum { DEEPEST = 256, LEAST_STEPS = 1024, MOST_STEPS = 1 << 16, LONGEST = 1400 };

_Atomic(enum callers) callers_state;

// The stack `to` is `frame` called from the stack `from`.
struct step {
  struct python_frame frame;
  uint32_t from, to;
};

// Steps by their hash, each in the first place behind it that was free: one without code. Half of the places are free.
struct table {
  struct step *places;
  size_t room, used;  // room: 0 or a power of two
};

// What an allocation reads comes first and lies together: between two allocations the job has filled the caches.
struct thread {
  size_t depth;         // of `last`
  struct table steps;
  struct step way;      // the last step into an extension, without code: none yet
  struct {
    struct python_frame frame;
    uint32_t node;  // of the stack up to this frame
  } last[DEEPEST];  // of the last allocation, outermost first
};

static __thread struct thread *this_thread;
static pthread_key_t ending;

// The text of a frame; NULL for those of memprof's own package, which are left out.
struct text {
  struct python_frame frame;
  char *text;
};
static struct intern texts = {.item_bytes = sizeof(struct text)};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool same(const struct python_frame *a, const struct python_frame *b) { return a->code == b->code && a->instruction == b->instruction; }

static bool is_of(const void *item, const void *key) { return same(&((const struct text *)item)->frame, key); }

static uint32_t hash(const struct python_frame *frame, uint32_t from) {
  return (uint32_t)((((frame->code >> 4) * 0x9e3779b97f4a7c15u) ^ ((frame->instruction + from) * 0xc2b2ae3d27d4eb4fu)) >> 20);
}

static struct text *find(const struct python_frame *frame) {
  const uint32_t number = intern_find(&texts, hash(frame, 0), is_of, frame);
  return number == 0 ? NULL : intern_item(&texts, number);
}

static bool ours(const char *text) { return strstr(text, "/python/memprof/_") != NULL; }

// Adds a text to the table, and sets *text to it, or to the one that another thread has added.
static bool add(const struct python_frame *frame, const char *fresh, const char **text) {
  char *copy = ours(fresh) ? NULL : strdup(fresh);
  pthread_mutex_lock(&lock);
  struct text *place = find(frame);  // another thread may have been faster
  if (place == NULL && (place = intern_add(&texts, hash(frame, 0))) != NULL) {
    *place = (struct text){*frame, copy};
    copy = NULL;
  }
  const bool found = place != NULL;
  if (found) *text = place->text;
  pthread_mutex_unlock(&lock);
  free(copy);
  return found;
}

// Sets *text to the text of a frame, in `fresh` or in the table; NULL: it is left out. *kept: the frame keeps that text for good.
// False: there is none.
static bool text_of(const struct python_frame *frame, bool wait, char fresh[LONGEST], const char **text, bool *kept) {
  pthread_mutex_lock(&lock);
  const struct text *known = find(frame);
  if (known != NULL) *text = known->text;
  pthread_mutex_unlock(&lock);
  *kept = known != NULL;
  if (known != NULL) return true;
  extensions_look();  // what calls an extension for the first time is met for the first time
  const bool pinned = python_frame_pin(frame, wait);
  if (!python_frame_text(frame, fresh, LONGEST)) return false;
  *text = ours(fresh) ? NULL : fresh;
  *kept = pinned && add(frame, fresh, text);
  return true;
}

// The place of a step: it has the step, or is free.
static struct step *place_of(const struct table *table, uint32_t from, const struct python_frame *frame) {
  for (size_t at = hash(frame, from);; at++) {
    struct step *place = &table->places[at & (table->room - 1)];
    if (place->frame.code == 0 || (place->from == from && same(&place->frame, frame))) return place;
  }
}

// Makes room for another step. False: there is none. No step is given up for another: to find it again takes longest.
static bool has_room(struct table *table) {
  if (2 * table->used < table->room) return true;
  if (table->room == MOST_STEPS) return false;
  struct table larger = {.room = table->room == 0 ? LEAST_STEPS : 2 * table->room, .used = table->used};
  larger.places = calloc(larger.room, sizeof *larger.places);
  if (larger.places == NULL) return false;
  for (size_t i = 0; i < table->room; i++) {
    const struct step *step = &table->places[i];
    if (step->frame.code != 0) *place_of(&larger, step->from, &step->frame) = *step;
  }
  free(table->places);
  *table = larger;
  return true;
}

static bool known_step(const struct table *table, uint32_t from, const struct python_frame *frame, uint32_t *to) {
  const struct step *place = table->room == 0 ? NULL : place_of(table, from, frame);
  if (place == NULL || place->frame.code == 0) return false;
  *to = place->to;
  return true;
}

static void keep(struct table *table, uint32_t from, const struct python_frame *frame, uint32_t to) {
  if (!has_room(table)) return;
  *place_of(table, from, frame) = (struct step){*frame, from, to};
  table->used++;
}

// The number of the stack in which `frame` is called from `from`; `from` itself if the frame is left out. *kept becomes false if that
// may be another number next time.
static uint32_t step(struct thread *thread, uint32_t from, const struct python_frame *frame, bool wait, bool *kept) {
  uint32_t to;
  if (known_step(&thread->steps, from, frame, &to)) return to;
  char fresh[LONGEST];
  const char *text;
  bool lasts;
  if (!text_of(frame, wait, fresh, &text, &lasts)) return from;
  to = text == NULL ? from : memprof_stack_node(from, text);
  if (to == 0) to = from;
  if (lasts) keep(&thread->steps, from, frame, to);
  *kept &= lasts;
  return to;
}

// The stack `from` with the innermost frame of an extension in the C++ stack, which ends at `end`: calls from one line of Python by other
// ways mostly have other depths. It is kept as a step from a frame whose code is there, where no code object is. Unwinding takes
// microseconds: what cannot be kept is not unwound.
static uint32_t with_extension(struct thread *thread, uint32_t from, uintptr_t end) {
  const struct python_frame frame = {.code = end};
  uint32_t to;
  if (thread->way.from == from && thread->way.frame.code == end) return thread->way.to;
  if (known_step(&thread->steps, from, &frame, &to)) {
    thread->way = (struct step){frame, from, to};
    return to;
  }
  if (!has_room(&thread->steps)) return from;
  char text[LONGEST];
  to = extension_frame(text, sizeof text) ? memprof_stack_node(from, text) : from;
  if (to == 0) to = from;
  keep(&thread->steps, from, &frame, to);
  return to;
}

static void end_thread(void *thread) {
  this_thread = NULL;  // a later destructor of the thread that allocates makes a new one
  free(((struct thread *)thread)->steps.places);
  free(thread);
}

static void make_key(void) { pthread_key_create(&ending, end_thread); }

static struct thread *thread_get(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (this_thread != NULL) return this_thread;
  pthread_once(&once, make_key);
  this_thread = calloc(1, sizeof *this_thread);
  pthread_setspecific(ending, this_thread);
  return this_thread;
}

void callers_take(bool wait) {
  struct python_frame frames[DEEPEST];  // innermost first
  context_set_stack(0);
  if (atomic_load_explicit(&callers_state, memory_order_relaxed) != CALLERS_WANTED || !python_frames_readable(wait)) return;
  const size_t depth = python_frames(frames, DEEPEST);
  struct thread *thread = depth == 0 ? NULL : thread_get();
  if (thread == NULL) return;
  size_t at = 0;
  bool kept = true;
  while (at < depth && at < thread->depth && same(&thread->last[at].frame, &frames[depth - 1 - at])) at++;
  uint32_t node = at == 0 ? 0 : thread->last[at - 1].node;
  size_t known = at;  // frames before it may be compared next time
  for (; at < depth; at++) {
    node = step(thread, node, &frames[depth - 1 - at], wait, &kept);
    thread->last[at].frame = frames[depth - 1 - at];
    thread->last[at].node = node;
    if (kept) known = at + 1;
  }
  thread->depth = known;
  if (node != 0 && extensions_loaded()) node = with_extension(thread, node, (uintptr_t)__builtin_frame_address(0));
  context_set_stack(node);
}

// The options may ask for stacks from the first allocation on.
static void callers_start(void) {
  if (!options_get()->stacks) return;
  if (hook_in_process()) atomic_store(&callers_state, CALLERS_WANTED);
  enum callers unsaid = CALLERS_NEVER_WANTED;  // memprof_stacks may have been called before: then its value stays
  atomic_compare_exchange_strong(&callers_state, &unsaid, CALLERS_WANTED);
}

void callers_prepare(void) {
  if (atomic_load(&callers_state) == CALLERS_WANTED) python_frames_readable(true);
}

void memprof_stacks(int wanted) {
  atomic_store(&callers_state, wanted != 0 ? CALLERS_WANTED : CALLERS_NO_LONGER_WANTED);
  callers_prepare();
}

static void forget(void) { pthread_mutex_init(&lock, NULL); }

// Threads still have the stack of their last allocation, which the next one clears.
static void stop(void) {
  enum callers wanted = CALLERS_WANTED;
  atomic_compare_exchange_strong(&callers_state, &wanted, CALLERS_NO_LONGER_WANTED);
}

HOOK_PART(.order = HOOK_REST, .start = callers_start, .forget = forget, .stop = stop);
