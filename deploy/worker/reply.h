/* reply.h: the one line on standard output: {"ok", "text", "tool_calls"?}. (mission.md section 1) */
#pragma once

#include "base/json.h"

/* The line with its newline; the text is cut to 100,000 characters; caller frees. `tool_calls` may be NULL.
 * ERR_TOO_LARGE beyond 2 MiB; ERR_NO_MEMORY. */
MUST_USE int reply_success(const char *text, json_t *tool_calls, char **ret, struct err *err);
/* {"ok":false} with a sentence for the code that tells nothing of the inside. A constant: nothing to free. */
const char *reply_failure(enum err_code code);
/* Writes a line to a pipe or socket that may be blocking or not; gives up after `timeout_ms`. ERR_TIMEOUT,
 * ERR_SYSTEM. */
MUST_USE int reply_write(int fd, const char *line, int timeout_ms, struct err *err);
