/* context.h: the request to the model: system prompt, history, the current message or the given messages, and
 * the tool calls of this turn with their answers, kept under 192 KiB and 128 messages by leaving out the
 * oldest history first, then the oldest groups of tool calls, whole. Given messages are never left out: where
 * they and the tool calls are more than 128, the oldest of them stand in the system message. (mission.md
 * section 7) */
#pragma once

#include "memory.h"
#include "tools.h"

struct context {
    const struct turn *turn;     /* borrowed, as the next two */
    const struct memory *memory; /* read anew for every request */
    const struct tools *tools;
    int64_t wall_ms; /* the time told to the model: when the turn began */
    json_t *history; /* owned: exchanges as in history.h, oldest first */
    json_t *current; /* owned: messages */
    json_t *groups;  /* owned: arrays of messages: an assistant message and the answers to all its calls */
    bool left_out;   /* something was left out so far */
};

/* `history` is copied; `current` is stolen, also on failure. ERR_NO_MEMORY. */
MUST_USE int context_new(const struct turn *turn, const struct memory *memory, const struct tools *tools,
                         const json_t *history, json_t *current, struct context *ret, struct err *err);
void context_free(struct context *c);
/* Adds an assistant message and the answers to its calls; `group` is stolen, also on failure. */
MUST_USE int context_add_group(struct context *c, json_t *group, struct err *err);
/* The request as JSON; caller frees. ERR_TOO_LARGE when it does not fit with everything left out that may be.
 */
MUST_USE int context_request(struct context *c, char **ret, struct err *err);
