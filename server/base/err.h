/* base/err.h: an error is a code and one sentence, in a buffer of the caller.
 *
 * A function that can fail takes `struct err *err` last (never NULL), returns 0 or a negative number, and
 * writes its outputs only on success. On the way up err_wrap adds context in front. The code decides the HTTP
 * status and the `type` of the problem document; the sentence is for people. Not thread-safe: one err per
 * thread. */
#pragma once

#include "base/base.h"

/* code, HTTP status, name (RFC 9457 type and `code`), title */
#define ERR_TABLE(X)                                                                                         \
    X(ERR_INTERNAL, 500, "internal", "The service could not do this.")                                       \
    X(ERR_NO_MEMORY, 503, "no_memory", "The service is out of memory.")                                      \
    X(ERR_SYSTEM, 500, "system", "A system call failed.")                                                    \
    X(ERR_DATABASE, 503, "database", "The state database did not accept this.")                              \
    X(ERR_BAD_REQUEST, 400, "bad_request", "The request is malformed.")                                      \
    X(ERR_INVALID_JSON, 400, "invalid_json", "The body is not acceptable JSON.")                             \
    X(ERR_UNAUTHORIZED, 401, "unauthorized", "A valid API key is needed.")                                   \
    X(ERR_FORBIDDEN, 403, "forbidden", "This key lacks the scope.")                                          \
    X(ERR_NOT_FOUND, 404, "not_found", "There is nothing here for this key.")                                \
    X(ERR_METHOD, 405, "method_not_allowed", "This resource does not know that method.")                     \
    X(ERR_CONFLICT, 409, "conflict", "The state of the resource does not allow this.")                       \
    X(ERR_CHANNEL_DISABLED, 409, "channel_disabled", "The channel is not enabled.")                          \
    X(ERR_GONE, 410, "gone", "This is over.")                                                                \
    X(ERR_PRECONDITION, 412, "precondition_failed", "The resource has changed.")                             \
    X(ERR_TOO_LARGE, 413, "body_too_large", "The body is too large.")                                        \
    X(ERR_URI_TOO_LONG, 414, "uri_too_long", "The request target is too long.")                              \
    X(ERR_MEDIA_TYPE, 415, "unsupported_media_type", "The body must be application/json.")                   \
    X(ERR_INVALID, 422, "invalid", "The body does not keep the rules.")                                      \
    X(ERR_RATE, 429, "queue_full", "Too much is waiting already.")                                           \
    X(ERR_HEAD_TOO_LARGE, 431, "head_too_large", "The request head is too large.")                           \
    X(ERR_OVERLOADED, 503, "overloaded", "The service is full.")                                             \
    X(ERR_DRAINING, 503, "draining", "The service is stopping.")                                             \
    X(ERR_DISK_FULL, 503, "disk_full", "The disk is nearly full.")                                           \
    X(ERR_NOT_READY, 503, "not_ready", "Turns cannot run at the moment.")                                    \
    X(ERR_ENGINE_AWAY, 503, "engine_unavailable", "The container engine does not answer.")                   \
    X(ERR_ENGINE, 502, "engine_error", "The container engine refused.")                                      \
    X(ERR_IMAGE, 502, "image_missing", "The worker image is not there or not usable.")                       \
    X(ERR_UPSTREAM, 502, "upstream", "The model or tool did not answer properly.")                           \
    X(ERR_BUDGET, 429, "budget_spent", "The calls of this turn are used up.")                                \
    X(ERR_CANCELED, 410, "canceled", "The turn is over.")                                                    \
    X(ERR_TIMEOUT, 504, "timeout", "This took too long.")                                                    \
    X(ERR_CONFIG, 500, "config", "The configuration does not keep the rules.")                               \
    X(ERR_USAGE, 400, "usage", "The command is not used that way.")

enum err_code {
    ERR_NONE = 0,
#define X(code, status, name, title) code,
    ERR_TABLE(X)
#undef X
};

struct err {
    enum err_code code;
    char text[768];
};

/* Each sets *err and returns -1, so that `return err_set(...)` reads as one step. */
int err_set(struct err *err, enum err_code code, const char *fmt, ...) FORMAT(3, 4);
/* ENOMEM → ERR_NO_MEMORY; ENOSPC, EDQUOT → ERR_DISK_FULL; else ERR_SYSTEM */
int err_errno(struct err *err, int errnum, const char *fmt, ...) FORMAT(3, 4);
int err_no_memory(struct err *err);
int err_wrap(struct err *err, const char *fmt, ...) FORMAT(2, 3); /* "context: text"; keeps the code */

int err_status(enum err_code code);        /* HTTP status */
const char *err_name(enum err_code code);  /* "invalid_json" */
const char *err_title(enum err_code code); /* the table's sentence */
