/* http/guard.h: headers that the library lets through and an intermediary could read differently. The bytes
 * of the head have passed the gate (rawhead.h). (RFC 9112 section 11.2; http.md, pitfall 4) */
#pragma once

#include "base/err.h"

#include <microhttpd.h>
#include <stdbool.h>

struct head {
    bool chunked; /* Transfer-Encoding: chunked */
    bool has_length;
    uint64_t content_length; /* 0 when absent */
    bool expects_continue;
    bool closes;     /* the client wants no other request on this connection, or might */
    unsigned traces; /* how many traceparents; more than one is none (W3C trace context) */
};

/* On the first call of the handler, before anything else: ERR_BAD_REQUEST for Content-Length with
 * Transfer-Encoding, repeated headers that may come once, a Transfer-Encoding other than "chunked", no Host
 * or two, Expect without a body. */
MUST_USE int guard_head(struct MHD_Connection *mhd, const char *version, struct head *ret, struct err *err);
