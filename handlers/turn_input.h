/* handlers/turn_input.h: messages and tools of POST /v1/turns (mission.md sections 1 and 5). Pure. */
#pragma once

#include "base/json.h"
#include "config/config.h"

/* Checks `messages` and `tools` where the body has them, and puts the rebuilt ones in their place; every
 * fault is added with its pointer. -1 only for ERR_NO_MEMORY. */
MUST_USE int turn_input(json_t *body, struct json_faults *faults, struct err *err);
/* `limits` may only lower what the operator has set. */
void turn_limits(const json_t *body, const struct config *config, struct json_faults *faults);
