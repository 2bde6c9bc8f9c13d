/* http/request.h: what a handler may ask of its request.
 * A request belongs to one connection and is used on that connection's server thread only. What is returned
 * lives as long as the request. */
#pragma once

#include "base/json.h"

#include <stdbool.h>
#include <sys/types.h>

struct http_req;

void *http_context(const struct http_req *req);          /* http_config.context */
const char *http_method(const struct http_req *req);     /* "GET" for HEAD as well */
const char *http_request_id(const struct http_req *req); /* accepted from X-Request-Id, or made */
/* A probe that found all well: no line in the log, unless the client chose the request's id. */
void http_quiet(struct http_req *req);
/* W3C trace context of this request: a valid one continued with a new parent id, or a new one. 55 characters.
 */
const char *http_traceparent(const struct http_req *req);

/* Decoded {name} of the route; "" never matches, so NULL means a wrong name. */
const char *http_path_param(const struct http_req *req, const char *name);
/* Decoded query parameter, NULL when absent. Unknown and repeated ones were refused with 400 before. */
const char *http_query(const struct http_req *req, const char *name);
/* First header of that name (any case), NULL when absent. Those that may come once only (Host, Authorization,
 * Content-Type, Idempotency-Key, If-Match, If-None-Match, X-Request-Id, Origin, Last-Event-ID)
 * were refused with 400 when repeated. */
const char *http_header(const struct http_req *req, const char *name);
/* All headers of that name as the one list that they are (RFC 9110 section 5.3); NULL when absent or empty.
 * *ret is the caller's. */
MUST_USE int http_header_list(const struct http_req *req, const char *name, char **ret, struct err *err);

/* The body, NUL-terminated; "" and 0 when there is none. Complete when the handler is called. */
const char *http_body(const struct http_req *req, size_t *len);
/* Frees the body early, before a long park. */
void http_body_drop(struct http_req *req);
/* The body as a JSON value of any type: ERR_INVALID_JSON (base/json.h). *ret is the caller's. */
MUST_USE int http_body_json(const struct http_req *req, json_t **ret, struct err *err);

/* True on a Unix socket. */
bool http_is_local(const struct http_req *req);
/* The uid at the other end of a Unix socket (SO_PEERCRED). ERR_FORBIDDEN on TCP. */
MUST_USE int http_peer_uid(const struct http_req *req, uid_t *ret, struct err *err);

/* One pointer for authorisation, freed with the request. */
void http_set_principal(struct http_req *req, void *principal, void (*free_fn)(void *));
void *http_principal(const struct http_req *req);
