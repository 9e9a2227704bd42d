// text.h - text as it enters the recording: UTF-8, and nothing else.
//
// What the hook is given (a command line, names of modules, messages of a library) may be in
// any encoding, and readers of the recording refuse what is not UTF-8. So whatever is recorded
// was copied by text_copy, or went through spool_string.
#ifndef MEMPROF_TEXT_H
#define MEMPROF_TEXT_H

#include <stdbool.h>
#include <stddef.h>

bool text_is_valid(const char *text, size_t length);

// Copies text of `length` bytes, cut at the end of a character to fit into `size` bytes with the
// zero behind it; each run of bytes that are not UTF-8 becomes U+FFFD. Returns its length.
size_t text_copy(char *out, size_t size, const char *text, size_t length);

// Takes the part of a character from the end of a text that was cut; returns its length.
size_t text_trim(const char *text, size_t length);

#endif
