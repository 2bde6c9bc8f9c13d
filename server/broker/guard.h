/* server/broker/guard.h: what a request's head may look like (mission.md 6). Judged on the first call of the
 * handler, before any of the body, since libmicrohttpd lets doubtful heads pass. */
#pragma once

#include "base/err.h"

#include <microhttpd.h>

/* `uri` is the request target as it was sent, `method` likewise. In this order: ERR_NOT_FOUND when they are
 * not exactly POST and a route; ERR_FORBIDDEN for a header that is not on the list, comes twice or has a
 * value that it may not have; ERR_TOO_LARGE; ERR_MEDIA_TYPE. Afterwards the body is one of known length. */
MUST_USE int guard_request(struct MHD_Connection *connection, const char *method, const char *uri,
                           struct err *err);
