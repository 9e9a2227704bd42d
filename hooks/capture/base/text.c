// text.c - see text.h.
#include "base/text.h"

#include <stdint.h>
#include <string.h>

static const char replacement[] = "\xef\xbf\xbd";  // U+FFFD

// Bytes of the character that starts with this byte, 0 for a byte that starts none.
static size_t bytes_of(uint8_t first) {
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first < 0xe0) return 2;
  if (first >= 0xe0 && first < 0xf0) return 3;
  return first >= 0xf0 && first < 0xf5 ? 4 : 0;
}

// Overlong forms, surrogates and numbers beyond Unicode are recognised by the second byte.
static bool may_follow(uint8_t first, uint8_t second) {
  if (first == 0xe0) return second >= 0xa0 && second < 0xc0;
  if (first == 0xed) return second >= 0x80 && second < 0xa0;
  if (first == 0xf0) return second >= 0x90 && second < 0xc0;
  if (first == 0xf4) return second >= 0x80 && second < 0x90;
  return second >= 0x80 && second < 0xc0;
}

// Bytes of the character at the start of a text, 0 if none is there, or not all of it.
static size_t character(const char *text, size_t length) {
  const size_t bytes = bytes_of((uint8_t)text[0]);
  if (bytes <= 1) return bytes;
  if (bytes > length || !may_follow((uint8_t)text[0], (uint8_t)text[1])) return 0;
  for (size_t i = 2; i < bytes; i++) {
    if (((uint8_t)text[i] & 0xc0) != 0x80) return 0;
  }
  return bytes;
}

bool text_is_valid(const char *text, size_t length) {
  for (size_t at = 0, bytes; at < length; at += bytes) {
    bytes = character(text + at, length - at);
    if (bytes == 0) return false;
  }
  return true;
}

size_t text_copy(char *out, size_t size, const char *text, size_t length) {
  size_t written = 0;
  bool replaced = false;
  for (size_t at = 0; at < length;) {
    const size_t bytes = character(text + at, length - at);
    const char *from = bytes == 0 ? replacement : text + at;
    const size_t adds = bytes != 0 ? bytes : replaced ? 0 : sizeof replacement - 1;
    if (written + adds >= size) break;
    memcpy(out + written, from, adds);
    written += adds;
    replaced = bytes == 0;
    at += bytes == 0 ? 1 : bytes;
  }
  if (size > 0) out[written] = '\0';
  return written;
}

void text_field(char *out, size_t size, const char *name) {
  text_copy(out, size, name, strlen(name));
  for (char *c = out; *c != '\0'; c++) {
    if ((unsigned char)*c <= ' ') *c = '_';
  }
}

size_t text_trim(const char *text, size_t length) {
  for (size_t back = 1; back < 4 && back <= length; back++) {
    const size_t bytes = bytes_of((uint8_t)text[length - back]);
    if (bytes > back) return length - back;
    if (bytes > 0) return length;
  }
  return length;
}
