/* http/rawhead.h: a request head as bytes, before the library's lenient parser sees it. (RFC 9112) Pure. */
#pragma once

#include "base/err.h"

#include <stdbool.h>

/* Length of the head including its empty line, or 0 while that has not come. Empty lines before the request
 * line count to the head. A bare LF counts as a line end, so that rawhead_check sees it. */
size_t rawhead_length(const char *data, size_t len);

/* ERR_BAD_REQUEST for anything but "METHOD target HTTP/1.x", field lines "token: value" and an empty line,
 * each ended by CR LF, without control bytes, folded lines, a Content-Length that is no number, or more query
 * parameters than any resource knows; ERR_URI_TOO_LONG; ERR_HEAD_TOO_LARGE for more fields or cookies than
 * the library has memory for. What the library parses well is left to guard.h. */
MUST_USE int rawhead_check(const char *head, size_t len, struct err *err);

/* A method or field name: one or more tchar. (RFC 9110 section 5.6.2) */
bool rawhead_token(const char *s, size_t len);
