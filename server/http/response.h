/* http/response.h: answers. Each gives the one answer of the request and returns HTTP_DONE, so that a handler
 * ends with `return http_reply_…(…)`. On the request's server thread only. A failure to build the answer
 * becomes a 503 by itself. X-Request-Id, Cache-Control: no-store and X-Content-Type-Options are always added,
 * and Retry-After to 429 and 503. */
#pragma once

#include "base/json.h"
#include "http/router.h"

struct http_req;

/* A header of the coming answer; kept until it is sent; at most 12, more are dropped. A value with control
 * characters is dropped. `name` is a literal. */
void http_header_add(struct http_req *req, const char *name, const char *fmt, ...) FORMAT(3, 4);

/* Steals `value` (NULL: out of memory, becomes 503). */
enum http_result http_reply_json(struct http_req *req, unsigned status, json_t *value);
/* Copies. `type` is a literal such as "application/yaml". */
enum http_result http_reply_text(struct http_req *req, unsigned status, const char *type, const char *text,
                                 size_t len);
/* Text that lives as long as the program; not copied. */
enum http_result http_reply_static(struct http_req *req, unsigned status, const char *type, const char *text,
                                   size_t len);
/* 204. */
enum http_result http_reply_empty(struct http_req *req);

/* application/problem+json (RFC 9457): {type:"/problems/<code>", title, status, code, detail, errors?}. The
 * code decides the status. For 500, 502 and 504 and ERR_DATABASE the sentence goes to the log with the
 * request id and the client reads a general one. `faults` may be NULL. */
enum http_result http_problem(struct http_req *req, const struct err *err, const struct json_faults *faults);
