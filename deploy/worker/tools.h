/* tools.h: the tools offered to the model in one turn: the memory tools, the host's as host_<name>, those of
 * MCP servers as mcp_<index of the server in the turn>_<name>, the caller's under their own names.
 * (mission.md section 7) */
#pragma once

#include "turn.h"

enum tool_kind { TOOL_MEMORY_SET, TOOL_MEMORY_GET, TOOL_MEMORY_REMOVE, TOOL_HOST, TOOL_MCP, TOOL_CALLER };

struct tool {
    enum tool_kind kind;
    char name[65];      /* as the model sees it */
    const char *server; /* TOOL_MCP; borrowed from the turn */
    const char *target; /* TOOL_HOST, TOOL_MCP: the name without prefix; borrowed from the turn */
};

struct tools {
    struct tool *list;
    size_t count;
    json_t *definitions; /* chat-completions `tools`, in the order of the list; at most 32 KiB as JSON */
};

/* The turn must outlive the result. Descriptions are cut evenly when the definitions take more than 32 KiB.
 * ERR_INVALID when they do not fit even so, when there are more than 128, or when a name stands twice. */
MUST_USE int tools_build(const struct turn *turn, struct tools *ret, struct err *err);
void tools_free(struct tools *tools);
/* NULL when no such tool was offered. */
const struct tool *tools_find(const struct tools *tools, const char *name);
