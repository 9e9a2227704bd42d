// python_frames.c - see python_frames.h.
#define _GNU_SOURCE
#include "watch/python_frames.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hook.h"
#include "base/intern.h"
#include "base/problem.h"
#include "base/thread.h"

// The functions of CPython that are used, where there is one. Objects are opaque.
typedef void object;
#define WEAK __attribute__((weak))
WEAK extern int Py_IsInitialized(void);
WEAK extern int _Py_IsFinalizing(void);  // until 3.12
WEAK extern int Py_IsFinalizing(void);   // from 3.13
WEAK extern const char *Py_GetVersion(void);
WEAK extern int PyGILState_Ensure(void);
WEAK extern void PyGILState_Release(int);
WEAK extern object *PyGILState_GetThisThreadState(void);
WEAK extern object *PyThreadState_GetFrame(object *);
WEAK extern object *PyFrame_GetBack(object *);
WEAK extern object *PyFrame_GetCode(object *);
WEAK extern int PyFrame_GetLineNumber(object *);
WEAK extern int PyCode_Addr2Line(object *, int);
WEAK extern object *PyObject_GetAttrString(object *, const char *);
WEAK extern intptr_t PyUnicode_GetLength(object *);
WEAK extern uint32_t PyUnicode_ReadChar(object *, intptr_t);
WEAK extern object *PyInterpreterState_Get(void);
WEAK extern object *PyInterpreterState_ThreadHead(object *);
WEAK extern object *PyThreadState_Next(object *);
WEAK extern int Py_AddPendingCall(int (*)(void *), void *);
WEAK extern void PyErr_Clear(void);
WEAK extern void Py_IncRef(object *);
WEAK extern void Py_DecRef(object *);

enum { NONE = -1, OWNED_BY_INTERPRETER = 3 };

// Offsets in bytes of members of CPython's structures, by version. In 3.11 and 3.12 the thread's state
// points to a structure on the C stack that points to the innermost frame, at offset `chain`. Until 3.10
// frames are objects, and their instruction is a number instead of an address.
static const struct layout {
  const char *version;
  int state, chain;        // of the pointer in the thread's state; of the frame's pointer in what that points to
  int code, previous, instruction, owner;  // of a frame
  int first;               // of the first instruction, in a code object
  int unit;                // bytes that an instruction's number counts, until 3.10; else 0
  int file, name;          // of texts in a code object: its file; its name, from 3.11 on with the class
} layouts[] = {
    {"3.9.", 24, NONE, 32, 24, 104, NONE, 0, 1, 104, 112},  {"3.10.", 24, NONE, 32, 24, 96, NONE, 0, 2, 104, 112},
    {"3.11.", 56, 8, 32, 48, 56, NONE, 184, 0, 112, 128},   {"3.12.", 56, 0, 0, 8, 56, 70, 192, 0, 112, 128},
    {"3.13.", 72, NONE, 0, 8, 56, 70, 200, 0, 112, 128},    {"3.14.", 72, NONE, 0, 8, 56, 74, 208, 0, 112, 128},
};

static const struct layout *layout;  // set before `state` is READABLE

static _Atomic(int) state;
enum { NOT_ASKED, READABLE, UNREADABLE };

static uintptr_t word(uintptr_t base, int offset) {
  uintptr_t value;
  memcpy(&value, (const void *)(base + (uintptr_t)offset), sizeof value);
  return value;
}

static uintptr_t instruction_of(const struct layout *of, uintptr_t frame) {
  if (of->unit == 0) return word(frame, of->instruction);
  int number;
  memcpy(&number, (const void *)(frame + (uintptr_t)of->instruction), sizeof number);
  return (uintptr_t)(intptr_t)number;
}

static bool python_runs(int owner, uintptr_t frame) {
  return owner == NONE || *(const signed char *)(frame + (uintptr_t)owner) < OWNED_BY_INTERPRETER;
}

static size_t walk(const struct layout *of, uintptr_t thread, struct python_frame *frames, size_t most) {
  uintptr_t frame = word(thread, of->state);
  if (of->chain != NONE && frame != 0) frame = word(frame, of->chain);
  size_t count = 0;
  for (; frame != 0 && count < most; frame = word(frame, of->previous)) {
    if (!python_runs(of->owner, frame)) continue;
    // The lowest bits of a reference may be marks of the interpreter's.
    frames[count].code = word(frame, of->code) & ~(uintptr_t)3;
    frames[count++].instruction = instruction_of(of, frame);
  }
  return count;
}

static int line_of(const struct layout *of, const struct python_frame *frame) {
  const intptr_t offset = of->unit != 0 ? (intptr_t)frame->instruction * of->unit : (intptr_t)(frame->instruction - frame->code) - of->first;
  return PyCode_Addr2Line((object *)frame->code, (int)offset);
}

// Whether a text lies in a code object where the table says. The lock of the interpreter is held.
static bool has(object *code, int offset, const char *attribute, const char *older) {
  object *value = PyObject_GetAttrString(code, attribute);
  if (value == NULL) {
    PyErr_Clear();
    value = PyObject_GetAttrString(code, older);
  }
  if (value == NULL) PyErr_Clear();
  const bool same = value != NULL && (uintptr_t)value == word((uintptr_t)code, offset);
  if (value != NULL) Py_DecRef(value);
  return same;
}

// Compares a walk with the interpreter's own answers, with its lock held. The code objects
// are compared before any is used.
static bool agrees(const struct layout *of, object *thread) {
  enum { MOST = 64 };
  struct python_frame frames[MOST];
  const size_t count = walk(of, (uintptr_t)thread, frames, MOST);
  object *frame = PyThreadState_GetFrame(thread);
  bool same = frame != NULL;
  for (size_t i = 0; i < count && same; i++) {
    object *code = frame == NULL ? NULL : PyFrame_GetCode(frame);
    same = code != NULL && (uintptr_t)code == frames[i].code && line_of(of, &frames[i]) == PyFrame_GetLineNumber(frame) &&
           has(code, of->file, "co_filename", "co_filename") && has(code, of->name, "co_qualname", "co_name");
    if (code != NULL) Py_DecRef(code);
    object *back = frame == NULL ? NULL : PyFrame_GetBack(frame);
    if (frame != NULL) Py_DecRef(frame);
    frame = back;
  }
  same &= count == MOST || frame == NULL;
  if (frame != NULL) Py_DecRef(frame);
  return same;
}

static bool going_down(void) {
  if (Py_IsFinalizing != NULL) return Py_IsFinalizing();
  return _Py_IsFinalizing != NULL && _Py_IsFinalizing();
}

static bool running(void) { return Py_IsInitialized != NULL && Py_IsInitialized() && !going_down(); }

static const struct layout *layout_of_this(void) {
  const char *version = Py_GetVersion();
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
    if (strncmp(version, layouts[i].version, strlen(layouts[i].version)) == 0 && strstr(version, "free-threading") == NULL) return &layouts[i];
  }
  return NULL;
}

static void ask(void) {
  object *thread = PyGILState_GetThisThreadState();
  if (thread == NULL) return;
  const int lock = PyGILState_Ensure();
  object *frame = PyThreadState_GetFrame == NULL ? NULL : PyThreadState_GetFrame(thread);
  if (frame != NULL || PyThreadState_GetFrame == NULL) {
    const struct layout *found = PyFrame_GetBack == NULL || PyUnicode_ReadChar == NULL || Py_AddPendingCall == NULL ? NULL : layout_of_this();
    const bool readable = found != NULL && agrees(found, thread);
    if (!readable) problem("stacks are not recorded: the frames of Python %.*s cannot be read", (int)strcspn(Py_GetVersion(), " "), Py_GetVersion());
    layout = found;
    int before = NOT_ASKED;
    atomic_compare_exchange_strong(&state, &before, readable ? READABLE : UNREADABLE);
  }
  if (frame != NULL) Py_DecRef(frame);
  PyGILState_Release(lock);
}

bool python_frames_readable(bool wait) {
  if (wait && atomic_load_explicit(&state, memory_order_acquire) == NOT_ASKED && running()) ask();
  return atomic_load_explicit(&state, memory_order_acquire) == READABLE;
}

size_t python_frames(struct python_frame *frames, size_t most) {
  if (going_down()) return 0;
  object *thread = PyGILState_GetThisThreadState();  // NULL before the interpreter starts and after it has ended
  return thread == NULL ? 0 : walk(layout, (uintptr_t)thread, frames, most);
}

// Adds a text of a code object, as UTF-8. It is read by functions that neither allocate nor write.
static size_t add_text(char *out, size_t room, uintptr_t code, int offset) {
  object *text = (object *)word(code, offset);
  const intptr_t length = PyUnicode_GetLength(text);
  size_t used = 0;
  for (intptr_t i = 0; i < length && used + 4 < room; i++) {
    uint32_t c = PyUnicode_ReadChar(text, i);
    if (c == '\t' || c == '\n') c = ' ';
    if (c >= 0xd800 && c < 0xe000) c = '?';  // a byte of a path that is no UTF-8
    if (c < 0x80) {
      out[used++] = (char)c;
      continue;
    }
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    out[used++] = (char)(lead[more] | c >> 6 * more);
    for (int k = more; k-- > 0;) out[used++] = (char)(0x80 | (c >> 6 * k & 0x3f));
  }
  out[used] = '\0';
  return used;
}

bool python_frame_text(const struct python_frame *frame, char *text, size_t size) {
  if (!running()) return false;
  char name[256], file[1024];
  add_text(name, sizeof name, frame->code, layout->name);
  add_text(file, sizeof file, frame->code, layout->file);
  snprintf(text, size, "%s (%s:%d)", name, file, line_of(layout, frame));
  return true;
}

// Pinned code objects, and the frames whose code objects a thread has asked to pin. The main thread pins them in a pending call, between
// two of its instructions: if it asked itself, the frames are still there. It may wait in a call for as long as the process lives. So a
// thread of the hook, the pinner, looks at the asking threads' stacks now and then, as long as somebody asks.
static struct intern pinned = {.item_bytes = sizeof(uintptr_t)};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // of both
enum { MOST_ASKED = 256, MOST_PINNED = 1 << 16 };  // of code objects, since a job may make ever new ones
static struct asked {
  object *thread;
  struct python_frame frame;
} asked[MOST_ASKED];
static size_t asked_count;
static bool expected;  // the main thread has a pending call to pin them
static bool pinning;   // there is a pinner
static pthread_cond_t wanted = PTHREAD_COND_INITIALIZER;  // by the pinner: somebody asks
enum { LEAST_US = 2000, MOST_US = 128000, PINNER_STACK = 512 << 10 };  // how long it sleeps before it looks

static bool is(const void *item, const void *key) { return *(const uintptr_t *)item == *(const uintptr_t *)key; }

static uint32_t hash(uintptr_t code) { return (uint32_t)(((uint64_t)code >> 4) * 0x9e3779b97f4a7c15u >> 32); }

static bool is_pinned(uintptr_t code) { return intern_find(&pinned, hash(code), is, &code) != 0; }

// The interpreter's lock is held, and the code object is there. False: it is not pinned, as there is no room.
static bool pin(uintptr_t code) {
  pthread_mutex_lock(&lock);
  uintptr_t *place = is_pinned(code) || pinned.count == MOST_PINNED ? NULL : intern_add(&pinned, hash(code));
  if (place != NULL) *place = code;
  const bool there = is_pinned(code);
  pthread_mutex_unlock(&lock);
  if (place != NULL) Py_IncRef((object *)code);
  return there;
}

static bool lives(const object *thread) {
  object *one = PyInterpreterState_ThreadHead(PyInterpreterState_Get());
  while (one != NULL && one != thread) one = PyThreadState_Next(one);
  return one != NULL;
}

// Of a thread that waits for the interpreter's lock, which this one has: its stack stays as it is.
static bool pin_asked(const struct asked *of) {
  enum { MOST = 256 };
  struct python_frame frames[MOST];
  if (!lives(of->thread)) return false;
  const size_t count = walk(layout, (uintptr_t)of->thread, frames, MOST);
  for (size_t i = 0; i < count; i++) {
    if (frames[i].code == of->frame.code) return pin(of->frame.code);
  }
  return false;
}

// The interpreter's lock is held. Whether one was pinned.
static bool pin_all(void) {
  struct asked now[MOST_ASKED];
  bool any = false;
  pthread_mutex_lock(&lock);
  const size_t count = asked_count;
  memcpy(now, asked, count * sizeof *now);
  asked_count = 0;
  expected = false;
  pthread_mutex_unlock(&lock);
  for (size_t i = 0; i < count; i++) any |= pin_asked(&now[i]);
  return any;
}

static int on_main(void *nothing) {
  (void)nothing;
  pin_all();
  return 0;
}

static bool somebody_asks(void) {
  pthread_mutex_lock(&lock);
  const bool asks = asked_count > 0;
  pthread_mutex_unlock(&lock);
  return asks;
}

static void *pinner(void *nothing) {
  for (useconds_t apart = LEAST_US;;) {
    pthread_mutex_lock(&lock);
    while (asked_count == 0) pthread_cond_wait(&wanted, &lock);
    pthread_mutex_unlock(&lock);
    usleep(apart);
    if (!somebody_asks()) continue;  // the main thread has pinned them
    if (!running()) return nothing;
    const int state = PyGILState_Ensure();
    const bool any = pin_all();
    PyGILState_Release(state);
    apart = any ? LEAST_US : apart < MOST_US ? 2 * apart : MOST_US;
  }
}

static void ask_for(const struct python_frame *frame) {
  if (asked_count < MOST_ASKED) asked[asked_count++] = (struct asked){PyGILState_GetThisThreadState(), *frame};
  if (!expected) expected = Py_AddPendingCall(on_main, NULL) == 0;
  if (!pinning) pinning = thread_start(pinner, PINNER_STACK) == 0;
  pthread_cond_signal(&wanted);
}

bool python_frame_pin(const struct python_frame *frame, bool wait) {
  pthread_mutex_lock(&lock);
  const bool known = is_pinned(frame->code), may = !known && pinned.count < MOST_PINNED && running();
  if (may && !wait) ask_for(frame);
  pthread_mutex_unlock(&lock);
  if (!may || !wait) return known;
  const int state = PyGILState_Ensure();
  const bool there = pin(frame->code);
  PyGILState_Release(state);
  return there;
}

static void forget(void) {
  pthread_mutex_init(&lock, NULL);
  pthread_cond_init(&wanted, NULL);
  asked_count = 0;
  expected = pinning = false;
}

HOOK_PART(.forget = forget);
