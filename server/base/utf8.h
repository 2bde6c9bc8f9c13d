/* base/utf8.h: counting and cutting by Unicode code points, never inside one. Pure functions. */
#pragma once

#include "base/base.h"

#include <stdbool.h>

size_t utf8_chars(const char *s, size_t len); /* code points in valid UTF-8 */
size_t utf8_cut_bytes(const char *s, size_t len,
                      size_t n); /* longest prefix of at most n bytes, whole chars */
size_t utf8_cut_chars(const char *s, size_t len, size_t n); /* bytes of the first n code points */
bool utf8_valid(const char *s, size_t len);       /* no surrogates, no overlong forms, <= U+10FFFF */
bool utf8_has_control(const char *s, size_t len); /* C0, DEL or C1 */
/* Copies s with every control character (also ESC, newline, C1) as \xNN, for a terminal. Caller frees; NULL
 * when out of memory. */
char *utf8_escape_control(const char *s, size_t len);
/* Copies bytes of any kind as valid UTF-8: what is not valid becomes U+FFFD. Caller frees; NULL: no memory.
 */
char *utf8_sanitize(const char *s, size_t len);
/* The same in place, with '?' for each byte that is not valid. */
void utf8_replace(char *s);
/* Bytes of an incomplete character at the end: 0 to 3. */
size_t utf8_ragged(const char *s, size_t len);
