/* agent.h: the loop of model calls and tool calls that ends in a reply. (mission.md section 7) */
#pragma once

#include "context.h"
#include "runner.h"

struct agent {
    struct context *context; /* borrowed, as all here */
    struct runner *runner;
    const struct tools *tools;
    const struct broker_link *link;
    struct call_ids *ids;
};

struct agent_reply {
    char *text;         /* owned */
    json_t *tool_calls; /* owned; NULL unless a tool of the caller was called */
};

/* At most 12 model calls. ERR_UPSTREAM: the model failed or gave nothing usable, or did not come to an end;
 * ERR_BUDGET, ERR_TIMEOUT, ERR_CANCELED, ERR_TOO_LARGE, ERR_NO_MEMORY. */
MUST_USE int agent_run(struct agent *a, struct agent_reply *ret, struct err *err);
void agent_reply_free(struct agent_reply *reply);
