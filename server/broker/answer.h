/* server/broker/answer.h: how a failure reads to the guest: {"error": {"code", "message"}}, generic, from one
 * table; nothing of the error's own sentence, an upstream or the host goes in (mission.md 6). */
#pragma once

#include "base/json.h"

/* HTTP status of an error; 500 for what the table does not hold. */
int answer_status(enum err_code code);
/* The body, NUL-terminated; caller frees; NULL when out of memory. `faults` may be NULL: they speak of the
 * guest's own body only and appear as "errors". */
char *answer_error(enum err_code code, const struct json_faults *faults);
