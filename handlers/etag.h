/* handlers/etag.h: strong entity tags of channels and the conditions on them (RFC 9110 section 13). The tag
 * names what can be changed through the API (enabled, resets); busy and queued move under the same tag. */
#pragma once

#include "storage/channels.h"

#define ETAG_SIZE 48

/* "\"3-18c2f…\"": version and time of making, so that a channel made anew has another one. */
void etag_of(const struct channel *c, char out[ETAG_SIZE]);
/* Copies of If-Match and If-None-Match, NULL when absent; the latter may only be "*". `c` NULL: there is no
 * such channel. ERR_PRECONDITION. Pure. */
MUST_USE int etag_check(const char *if_match, const char *if_none_match, const struct channel *c,
                        struct err *err);
