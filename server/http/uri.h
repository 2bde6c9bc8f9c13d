/* http/uri.h: the request target as it came over the wire. Pure functions. */
#pragma once

#include "base/err.h"

#include <stdbool.h>

struct uri {
    const char *path; /* inside the raw target, begins with '/' */
    size_t path_len;
    const char *query; /* after '?', or NULL */
    size_t query_len;
};

/* Origin form ("/a?b") and absolute form ("http://host/a?b"). ERR_BAD_REQUEST for any other, for bytes that
 * RFC 3986 does not allow in a target (controls, blanks, above 0x7E) and for a fragment; ERR_URI_TOO_LONG. */
MUST_USE int uri_split(const char *raw, struct uri *ret, struct err *err);
/* Decodes %XX; with `plus` also '+' to a blank. ERR_BAD_REQUEST for a broken sequence, NUL or invalid UTF-8.
 * Caller frees. */
MUST_USE int uri_decode(const char *s, size_t len, bool plus, char **ret, struct err *err);
