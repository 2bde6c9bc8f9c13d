/* http/guard.h: what the library lets through and an intermediary could read differently. (RFC 9112
 * section 11.2; http.md, pitfall 4) */
#pragma once

#include "base/err.h"

#include <microhttpd.h>
#include <stdbool.h>

struct head {
    bool chunked; /* Transfer-Encoding: chunked */
    bool has_length;
    uint64_t content_length; /* 0 when absent */
    bool expects_continue;
};

/* On the first call of the handler, before anything else: ERR_BAD_REQUEST for Content-Length with
 * Transfer-Encoding, repeated headers that may come once, a Transfer-Encoding other than "chunked", no Host
 * or two, names that are no tokens, control bytes, bare LF and folded lines; ERR_HEAD_TOO_LARGE. `method` and
 * `version` are those of the call: they lie in the library's buffer, and so shows the line end behind them.
 */
MUST_USE int guard_head(struct MHD_Connection *mhd, const char *method, const char *version, struct head *ret,
                        struct err *err);
