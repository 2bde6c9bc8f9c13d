/* server/upstream/upstream.h: the only way to the outside: one JSON POST, through libcurl.
 *
 * What goes up: the given body and content-type, accept, authorization, traceparent; nothing else that a
 * guest could have chosen. No redirect is followed, no proxy, cookie, .netrc or compression is used, TLS is
 * verified against the system's store. curl_global_init must have been called before any thread. */
#pragma once

#include "base/buf.h"
#include "base/secret.h"

#include <stdbool.h>

/* A pool of connections; one instance serves all threads. */
struct upstream;

MUST_USE int upstream_new(struct upstream **ret, struct err *err);
/* No call may be running. Accepts NULL. */
void upstream_free(struct upstream *up);
DEFINE_CLEANUP(struct upstream *, upstream_free)

/* https with a host, without userinfo or fragment; http as well when allow_http. ERR_CONFIG says which rule
 * failed, without the URL. (mission.md 6) */
MUST_USE int upstream_check_url(const char *url, bool allow_http, struct err *err);

struct upstream_request {
    const char *url; /* has passed upstream_check_url */
    bool allow_http;
    const char *body;
    size_t body_len;
    const struct secret *bearer; /* NULL: no authorization */
    const char *traceparent;     /* "": none (W3C Trace Context) */
    int64_t deadline;            /* clock_mono_ms */
    int cancel_fd;               /* the call ends at once when it becomes readable; -1: none */
};

/* Posts and waits. 0 with any HTTP status (a redirect is one) and the whole body in answer, whose max is the
 * bound. ERR_TIMEOUT, ERR_CANCELED, ERR_UPSTREAM (no connection, no trust, not HTTP, over the bound),
 * ERR_NO_MEMORY. The sentences name host and cause for the server log; a guest must not see them. They hold
 * no credential and no text of either body. */
MUST_USE int upstream_post(struct upstream *up, const struct upstream_request *req, int *status,
                           struct buf *answer, struct err *err);
