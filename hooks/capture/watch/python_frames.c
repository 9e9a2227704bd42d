// python_frames.c - see python_frames.h.
#include "watch/python_frames.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/problem.h"
#include "base/text.h"

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
WEAK extern const char *PyUnicode_AsUTF8(object *);
WEAK extern void PyErr_Clear(void);
WEAK extern void PyErr_Fetch(object **, object **, object **);
WEAK extern void PyErr_Restore(object *, object *, object *);
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
} layouts[] = {
    {"3.9.", 24, NONE, 32, 24, 104, NONE, 0, 1},  {"3.10.", 24, NONE, 32, 24, 96, NONE, 0, 2},
    {"3.11.", 56, 8, 32, 48, 56, NONE, 184, 0},   {"3.12.", 56, 0, 0, 8, 56, 70, 192, 0},
    {"3.13.", 72, NONE, 0, 8, 56, 70, 200, 0},    {"3.14.", 72, NONE, 0, 8, 56, 74, 208, 0},
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
    same = code != NULL && (uintptr_t)code == frames[i].code && line_of(of, &frames[i]) == PyFrame_GetLineNumber(frame);
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
    const struct layout *found = PyFrame_GetBack == NULL ? NULL : layout_of_this();
    const bool readable = found != NULL && agrees(found, thread);
    if (!readable) problem("stacks are not recorded: the frames of Python %.*s cannot be read", (int)strcspn(Py_GetVersion(), " "), Py_GetVersion());
    layout = found;
    int before = NOT_ASKED;
    atomic_compare_exchange_strong(&state, &before, readable ? READABLE : UNREADABLE);
  }
  if (frame != NULL) Py_DecRef(frame);
  PyGILState_Release(lock);
}

bool python_frames_readable(void) {
  if (atomic_load_explicit(&state, memory_order_acquire) == NOT_ASKED && running()) ask();
  return atomic_load_explicit(&state, memory_order_acquire) == READABLE;
}

size_t python_frames(struct python_frame *frames, size_t most) {
  if (!running()) return 0;
  object *thread = PyGILState_GetThisThreadState();
  return thread == NULL ? 0 : walk(layout, (uintptr_t)thread, frames, most);
}

static bool copy_text(object *code, const char *attribute, char *text, size_t size) {
  object *value = PyObject_GetAttrString(code, attribute);
  const char *utf8 = value == NULL ? NULL : PyUnicode_AsUTF8(value);
  if (utf8 == NULL) PyErr_Clear();
  text_copy(text, size, utf8 == NULL ? "?" : utf8, utf8 == NULL ? 1 : strlen(utf8));
  if (value != NULL) Py_DecRef(value);
  return utf8 != NULL;
}

bool python_frame_text(const struct python_frame *frame, char *text, size_t size) {
  if (!running()) return false;
  char name[256], file[1024];
  const int lock = PyGILState_Ensure();
  // The thread may be handling an exception of the job's, which the calls below would clear.
  object *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  object *code = (object *)frame->code;
  Py_IncRef(code);
  // co_qualname has the class, too, but exists from 3.11 on.
  if (!copy_text(code, "co_qualname", name, sizeof name)) copy_text(code, "co_name", name, sizeof name);
  copy_text(code, "co_filename", file, sizeof file);
  snprintf(text, size, "%s (%s:%d)", name, file, line_of(layout, frame));
  PyErr_Restore(type, value, trace);
  PyGILState_Release(lock);
  for (char *c = text; *c != '\0'; c++) {
    if (*c == '\t' || *c == '\n') *c = ' ';
  }
  return true;
}
