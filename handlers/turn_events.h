/* handlers/turn_events.h: the events of a turn as they happen, as text/event-stream. */
#pragma once

#include "http/router.h"

#include <stdint.h>

/* Answers with the events of a turn numbered above `after`, those that are stored and those to come, until
 * `ended` is sent; `id` is the event's number. 404 when the caller may not see the turn, 410 when its early
 * events are gone. Ends early when the caller's key is revoked and when the service stops: the client goes on
 * after the last id that it has seen. */
enum http_result turn_events_stream(struct http_req *req, const char *turn_id, int64_t after);
