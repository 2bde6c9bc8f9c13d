/* server/broker/redact.h: keeps a credential from coming back in an answer (mission.md 6). */
#pragma once

#include "base/json.h"
#include "base/secret.h"

/* Looks through every string and key of a parsed answer for the credential: raw, base64 and base64url at each
 * of the three alignments that a longer text can give it, hex in any case; each also behind URL-encoding and
 * behind escapes of JSON text inside a string, several layers deep. 0 when it is not there; ERR_UPSTREAM when
 * it is; ERR_NO_MEMORY. Pure. */
MUST_USE int redact_check(const json_t *answer, const struct secret *credential, struct err *err);
