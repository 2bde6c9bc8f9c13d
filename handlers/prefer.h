/* handlers/prefer.h: how long a caller of POST /v1/turns wants to wait (RFC 7240). Pure. */
#pragma once

#include "base/base.h"

#define PREFER_WAIT_MAX_S 3600
#define PREFER_END        (-1) /* until the turn's end */

struct prefer {
    int wait_s;          /* seconds until 202, or PREFER_END */
    const char *applied; /* for Preference-Applied: "respond-async" or "wait"; NULL: none */
};

/* "respond-async" → 0 s; "wait=N" → N s, also beside respond-async. `header` may be NULL. What is not
 * understood is ignored, as the RFC wants. */
struct prefer prefer_parse(const char *header);
