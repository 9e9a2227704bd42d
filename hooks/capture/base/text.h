// text.h - text as it enters the recording: UTF-8, and nothing else.
//
// The hook gets text in any encoding: a command line, names of modules, messages of a library.
// Readers refuse a recording that is not UTF-8. So every text that is recorded is copied by
// text_copy or goes through spool_string.
#ifndef MEMPROF_TEXT_H
#define MEMPROF_TEXT_H

#include <stdbool.h>
#include <stddef.h>

// Whether the `length` bytes are UTF-8.
bool text_is_valid(const char *text, size_t length);

// Copies text of `length` bytes into `size` bytes of `out`, and ends it with a zero. What does not
// fit is cut off after a whole character; each run of bytes that are not UTF-8 becomes U+FFFD.
// Returns the bytes written, without the zero.
size_t text_copy(char *out, size_t size, const char *text, size_t length);

// The same for a name as a field of an event: blanks separate fields, so they become underscores.
void text_field(char *out, size_t size, const char *name);

// The length of a text that was cut anywhere, without the part of a character at its end.
size_t text_trim(const char *text, size_t length);

#endif
