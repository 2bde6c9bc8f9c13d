/* text.h: cutting text to what a JSON string may take, never inside a character. Pure functions on valid
 * UTF-8. (mission.md sections 1 and 7) */
#pragma once

#include "base/buf.h"

/* What stands at the end of every text that was cut. */
#define TEXT_CUT_MARK " [cut]"

/* Bytes the text takes inside a JSON string, without the quotes. */
size_t text_encoded(const char *s, size_t len);
/* The whole text when it takes at most `max` encoded bytes, else its beginning and TEXT_CUT_MARK, together at
 * most `max`, which must be more than the mark. Caller frees. ERR_NO_MEMORY. */
MUST_USE int text_cut(const char *s, size_t max, char **ret, struct err *err);
/* The same with `max` counted in characters. */
MUST_USE int text_cut_chars(const char *s, size_t max, char **ret, struct err *err);
