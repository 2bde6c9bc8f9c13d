/* turn.h: the turn as it comes on standard input, validated whole. (mission.md section 1) */
#pragma once

#include "base/json.h"

#include <stdbool.h>

struct turn {
    json_t *root;         /* owned; all strings and const values below are borrowed from it */
    json_t *messages;     /* owned, sanitized; NULL with `text` */
    json_t *caller_tools; /* owned, sanitized chat-completions tools; NULL when absent */
    const char *id;       /* 1..128 characters */
    const char *text;     /* NULL with `messages` */
    const char *speaker_id;
    const char *speaker_name;
    const char *prompt;
    const char *time_zone;
    const char *workspace; /* absolute path */
    const json_t *tools;   /* host tools; NULL when absent, as mcp */
    const json_t *mcp;     /* [{server, tools[]}] */
    bool reset;
    int64_t deadline_ms; /* 1..600000, from when the line was read */
};

/* Parses and checks one line (its newline already removed). ERR_INVALID_JSON, or ERR_INVALID with the place
 * and rule of the first faults; no text of the turn is repeated in the error. */
MUST_USE int turn_parse(const char *line, size_t len, struct turn *ret, struct err *err);
void turn_free(struct turn *turn); /* accepts an untouched {0}; usable as CLEANUP(turn_free) */
