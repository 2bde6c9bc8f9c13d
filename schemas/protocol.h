/* schemas/protocol.h: the two lines that the service and a worker exchange (mission.md 1). Pure functions. */
#pragma once

#include "base/json.h"

#include <stdbool.h>

#define PROTOCOL_VERSION   1
#define PROTOCOL_WORKSPACE "/workspace" /* the worker's directory */

struct worker_turn {
    const char *id;
    const json_t *request; /* as accepted: speaker, text or messages, tools */
    const char *model, *prompt, *time_zone;
    bool reset;
    int64_t deadline_ms; /* from now */
};
/* One line of JSON with its newline; caller frees. ERR_INVALID when it is too long:
 * LIMIT_TURN_LINE, with messages LIMIT_WORKER_ADDS less. */
MUST_USE int worker_turn_line(const struct worker_turn *turn, char **ret, struct err *err);

/* Whether the line of a turn whose body had that many bytes fits in any case; else only the line can tell. */
bool worker_turn_fits(const struct worker_turn *turn, size_t body);

struct worker_reply {
    bool ok;
    json_t *reply; /* {text, tool_calls?, data?}, as stored and answered; the caller's */
};
/* Checks a worker's line by schemas/worker_reply.json and rebuilds its tool calls with the known fields only
 * (mission.md 1 and 5). ERR_INVALID_JSON, ERR_INVALID with the first fault, ERR_NO_MEMORY. */
MUST_USE int worker_reply_parse(const char *line, size_t len, struct worker_reply *ret, struct err *err);
