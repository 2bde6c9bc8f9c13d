/* upstream/client.h: HTTP for the command line: one request to the service, over TCP or a Unix socket. */
#pragma once

#include "base/buf.h"

struct client_request {
    const char *method;
    const char *base;        /* "http://127.0.0.1:8080", or "http://localhost" with a socket */
    const char *unix_socket; /* NULL: TCP */
    const char *path;        /* percent-encoded, with its query */
    const char *key;         /* API key; NULL: none. Goes into a header only */
    const char *header;      /* one more header line, "Prefer: respond-async"; NULL: none */
    const char *body;        /* JSON; NULL: none */
    int timeout_ms;          /* 0: waits as long as it takes */
};

/* 0 with any HTTP status and the body in answer. ERR_UPSTREAM: no connection or no HTTP. curl_global_init was
 * called. */
MUST_USE int client_call(const struct client_request *req, int *status, struct buf *answer, struct err *err);
/* Percent-encodes one path segment; caller frees. */
MUST_USE int client_escape(const char *segment, char **ret, struct err *err);

/* libcurl, once, before any thread; upstream_global_end at the very end. ERR_SYSTEM. */
MUST_USE int upstream_global_init(struct err *err);
void upstream_global_end(void);
