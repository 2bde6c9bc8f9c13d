/* handlers/accept.h: which of two forms a caller wants (RFC 9110 section 12.5.1). Pure. */
#pragma once

#include <stdbool.h>

/* True when text/event-stream itself is asked for, and application/json not more so: of two with the same
 * weight the first counts. False for NULL, for ranges with a star, and for what is not understood: then it
 * is JSON, never 406. */
bool accept_events(const char *header);
