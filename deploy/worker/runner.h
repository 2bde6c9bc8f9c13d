/* runner.h: runs one tool call that is not the caller's: memory here, host and MCP tools through the broker.
 * (mission.md sections 6 and 7) */
#pragma once

#include "broker_client.h"
#include "calls.h"
#include "memory.h"

struct runner {
    struct memory *memory;          /* borrowed */
    const struct broker_link *link; /* borrowed */
    int next_rpc_id;                /* JSON-RPC id of the next MCP call */
};

/* The answer for the model, at most 4 KiB as JSON; a tool that fails or refuses answers with a sentence.
 * Caller frees. -1 when the turn cannot go on: ERR_TIMEOUT, ERR_CANCELED, ERR_NO_MEMORY. */
MUST_USE int runner_call(struct runner *r, const struct call *call, char **ret, struct err *err);
