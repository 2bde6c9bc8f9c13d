/* http/http.h: an HTTP/1.1 server on TCP or on a Unix socket.
 *
 * Threads: a small pool runs all handlers and continuations (never block there: park instead, park.h); one
 * watch thread looks at the head of each request first, ends slow clients, notices clients that left while
 * parked and keeps the deadlines of parks.
 * One server per listening socket; several may live side by side. */
#pragma once

#include "base/err.h"
#include "http/router.h"

#include <stdbool.h>

struct http_server;
struct http_req;

/* Decides whether a request may go to its handler, after the route is known and before its body is read. 0,
 * or -1 with the error to answer. May call http_set_principal and http_header_add. Runs on a server thread;
 * short. */
typedef int (*http_authorize)(struct http_req *req, const struct http_route *route, struct err *err);

struct http_config {
    const struct http_route *routes; /* ends with a NULL method; lives as long as the server */
    http_authorize authorize;        /* called for every route, none is open by default */
    void *context;                   /* for http_context() */
    const char *address;             /* numeric IPv4 or IPv6; NULL: listen_fd is used */
    uint16_t port;                   /* 0: the kernel chooses, see http_server_port */
    int listen_fd;            /* bound and listening Unix socket, taken over also on failure; else -1 */
    unsigned threads;         /* 1..16 */
    unsigned max_connections; /* above it idle ones are closed, then new clients get 503; 0:
                                 LIMIT_HTTP_CONNECTIONS; lowered to what RLIMIT_NOFILE leaves */
    /* How long a client may take, in milliseconds; 0: the LIMIT_HTTP_* of base/limits.h. */
    unsigned head_ms, body_ms, reply_ms, idle_ms;
    unsigned beat_ms; /* silence after which a stream is asked for a sign of life; 0: LIMIT_HTTP_BEAT_MS */
};

/* ERR_CONFIG (address not numeric), ERR_SYSTEM (address in use, ...), ERR_NO_MEMORY. The caller ignores
 * SIGPIPE. */
MUST_USE int http_server_start(const struct http_config *config, struct http_server **ret, struct err *err);
uint16_t http_server_port(const struct http_server *s); /* 0 for a Unix socket */
/* Connections now open, parked ones included. Thread-safe. */
unsigned http_server_connections(struct http_server *s);
/* Stops listening; what is connected goes on. Once. */
void http_server_quiesce(struct http_server *s);
/* Quiesces, resumes every parked request with HTTP_STOPPING, waits up to drain_ms until all are answered,
 * cuts the rest off, and frees. Not from a server thread. No http_park may start after this. Accepts NULL. */
void http_server_stop(struct http_server *s, int drain_ms);
