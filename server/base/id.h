/* base/id.h: identifiers from the kernel's random source. Thread-safe. */
#pragma once

#include "base/err.h"

#define ID_HEX_128 33 /* 32 hex digits and NUL */

/* Fills out with `bytes` random bytes as lower-case hex and a NUL (2 * bytes + 1). Aborts the process if the
 * kernel gives none: nothing safe can be done without. */
void id_hex(char *out, size_t bytes);
/* "turn_" + 32 hex digits; out has room for prefix + ID_HEX_128. */
void id_new(const char *prefix, char *out, size_t size);
