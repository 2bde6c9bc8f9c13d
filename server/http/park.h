/* http/park.h: waiting without a thread (mission.md: waiting clients hold no thread).
 *
 * A handler calls http_park, hands the ticket to whoever will wake it, and returns HTTP_PARK. The first
 * http_wake, the deadline, the server's stop or the client's leaving, whichever comes first and only that
 * one, resumes the request on its server thread:
 *
 * - then(req, why, arg) when it was woken, at the deadline and at the stop: answers, or parks again;
 * - gone(arg) when the client left: no answer is possible any more; frees what arg holds.
 *
 * Exactly one of the two is called. A wake before the handler has returned is not lost. Lock order: caller's
 * locks, then the ticket's; http_wake may be called under any lock that then and gone do not take while
 * http_park's ticket is being woken. */
#pragma once

#include "http/router.h"

enum http_why { HTTP_WOKEN, HTTP_DEADLINE, HTTP_STOPPING };

struct http_ticket;

typedef enum http_result http_then(struct http_req *req, enum http_why why, void *arg);
typedef void http_gone(void *arg);

#define HTTP_NO_DEADLINE INT64_MAX

/* `deadline`: CLOCK_MONOTONIC milliseconds, or HTTP_NO_DEADLINE; kept to about 50 ms. Returns the ticket with
 * a reference for the caller, to be given back with http_ticket_release. NULL with ERR_NO_MEMORY or
 * ERR_DRAINING (the server stops): nothing is parked and arg stays the caller's. Only from a handler or
 * continuation, once per call of it. A handler that answers after all (HTTP_DONE) gets gone(arg) when it
 * returns. */
struct http_ticket *http_park(struct http_req *req, http_then *then, http_gone *gone, void *arg,
                              int64_t deadline, struct err *err);
/* The same for a wait that ends by itself within moments, such as a commit whose outcome the client must
 * learn: the server's stop waits for it up to its drain time and resumes it only then. No deadline. */
struct http_ticket *http_park_brief(struct http_req *req, http_then *then, http_gone *gone, void *arg,
                                    struct err *err);
/* Any thread, any number of times; the first counts. Does not give the reference back. */
void http_wake(struct http_ticket *t);
/* Any thread; also after the request and the server are gone. Accepts NULL. */
void http_ticket_release(struct http_ticket *t);
