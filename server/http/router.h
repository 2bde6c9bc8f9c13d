/* http/router.h: the one table of routes and how a path finds its row.
 *
 * Works on the raw request target: segments are split first and only then percent-decoded, so %2F inside
 * {key} is part of the key and a literal segment has exactly one spelling. (http.md, pitfall 6) Pure. */
#pragma once

#include "base/err.h"

struct http_req;

enum http_result {
    HTTP_DONE, /* an answer was given (http_reply_*, http_problem) */
    HTTP_PARK, /* http_park was called; the connection waits without a thread */
};
typedef enum http_result http_handler(struct http_req *req);

struct http_route {
    const char *method; /* "GET" also serves HEAD; OPTIONS is answered from the table; NULL ends the table */
    const char *path;   /* "/v1/channels/{key}/reset"; at most HTTP_PARAMS_MAX parameters */
    unsigned scope;     /* opaque here; for http_authorize */
    size_t body_limit;  /* bytes; 0: no body is accepted */
    const char *query;  /* names of known query parameters, blank-separated; NULL: none */
    http_handler *handler;
};

#define HTTP_PARAMS_MAX 4
struct http_param {
    char *name, *value; /* decoded, valid UTF-8 without NUL */
};
struct http_match {
    const struct http_route *route;
    struct http_param params[HTTP_PARAMS_MAX];
    unsigned count;
};

/* Finds the row for method and raw path. ERR_NOT_FOUND; ERR_METHOD with the methods there are in allow
 * ("GET, HEAD, OPTIONS"); ERR_BAD_REQUEST for a broken %-sequence, NUL or invalid UTF-8 in a parameter.
 * `allow` is filled whenever the path is known. */
MUST_USE int router_find(const struct http_route *routes, const char *method, const char *path, size_t len,
                         struct http_match *ret, char allow[96], struct err *err);
void router_match_free(struct http_match *m);
