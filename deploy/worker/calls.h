/* calls.h: the tool calls of a model's answer, repaired so that the next request keeps the rules of
 * mission.md section 5 whatever the model sent: at most 8 calls, every id valid and met once, every name one
 * that was offered, else `invalid_tool`. (mission.md section 7) */
#pragma once

#include "tools.h"

#include "base/limits.h"

#define CALL_ID_SIZE (LIMIT_CALL_ID_CHARS * 4 + 1)

/* Ids met so far in the conversation. */
struct call_ids {
    json_t *seen; /* owned; a set */
    unsigned next;
};
MUST_USE int call_ids_new(struct call_ids *ret, struct err *err);
void call_ids_free(struct call_ids *ids);
/* The wanted id when it is valid and new, else a fresh one; `wanted` may be NULL. ERR_NO_MEMORY. */
MUST_USE int call_ids_take(struct call_ids *ids, const char *wanted, char out[CALL_ID_SIZE], struct err *err);
/* Renames repeated ids in given messages, together with their answers, in place. ERR_NO_MEMORY. */
MUST_USE int call_ids_repair(struct call_ids *ids, json_t *messages, struct err *err);

struct call {
    const struct tool *tool; /* borrowed; NULL: a name that was not offered */
    char id[CALL_ID_SIZE];
    json_t *arguments; /* owned; an object, or NULL when the model sent anything else */
    json_t *shown;     /* owned; the call as the next request shows it, long arguments left out */
    json_t *whole;     /* owned; the same with the arguments as they came, for a reply */
};

struct calls {
    struct call list[LIMIT_TOOL_CALLS];
    size_t count;
    size_t dropped; /* calls beyond the eighth */
};

/* Reads `tool_calls` of a model's message; absent or anything but an array: no calls. ERR_NO_MEMORY. */
MUST_USE int calls_read(const json_t *message, const struct tools *tools, struct call_ids *ids,
                        struct calls *ret, struct err *err);
void calls_free(struct calls *calls);
