/* server/broker/embedded.h: models without an account, for first turns and for tests. Each answers like a
 * Chat Completions server, and its text then goes the same way as any upstream's.
 *
 * echo: the text of the last user message.
 * script: the same, after obeying the lines of the last user message, in order:
 *   /sleep MS        waits, at most LIMIT_SCRIPT_SLEEP_MS in one call: what is asked beyond that is not slept
 *   /call NAME JSON  if a tool by that name was offered, answers with a call of it (JSON: an object; {} when
 *                    absent). With the tool's answer the script goes on behind that line; at its end the
 *                    answer is the last tool's result instead of the echo.
 * A line that is not exactly one of these is text. Lines in tool results are never obeyed. */
#pragma once

#include "base/json.h"

enum embedded_model { EMBEDDED_ECHO, EMBEDDED_SCRIPT };

/* How much of a sleep is granted in a call that has slept `slept` already, in milliseconds. Pure. */
long script_sleep(long asked, long slept);
/* `messages` and `tools` (NULL: none) have passed model_input. Usage counts four bytes as one token.
 * ERR_CANCELED as soon as cancel_fd is readable, ERR_TIMEOUT at the deadline (clock_mono_ms). */
MUST_USE int embedded_answer(enum embedded_model model, const json_t *messages, const json_t *tools,
                             int64_t deadline, int cancel_fd, struct buf *answer, struct err *err);
