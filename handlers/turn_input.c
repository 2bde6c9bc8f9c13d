#include "handlers/turn_input.h"

#include "base/limits.h"
#include "schemas/model_input.h"
#include "schemas/tool_size.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The worker's own tools have these names. (mission.md section 1) */
static bool is_taken(const char *name)
{
    return strncmp(name, "host_", 5) == 0 || strncmp(name, "mcp_", 4) == 0 ||
           strncmp(name, "memory_", 7) == 0 || strcmp(name, "fetch_url") == 0;
}

/* The worker offers the tools with their descriptions cut as far as it must; the rest has to fit beside its
 * own.
 */
static int check_tools_size(const json_t *tools, struct json_faults *faults, struct err *err)
{
    const size_t most = LIMIT_WORKER_TOOLS - LIMIT_OWN_TOOLS_BYTES;
    size_t size = 0;

    if (tool_size(tools, LIMIT_TOOL_DESCRIPTION, &size, err) < 0)
        return -1;
    if (size > most)
        json_fault(faults, "/tools",
                   "must have at most %zu bytes as JSON, of each description %d counted, has %zu", most,
                   LIMIT_TOOL_DESCRIPTION, size);
    return 0;
}

static int check_tools(const json_t *tools, struct json_faults *faults, struct err *err)
{
    size_t i;
    json_t *tool;

    if (json_array_size(tools) > LIMIT_TOOLS - LIMIT_OWN_TOOLS)
        json_fault(faults, "/tools", "must have at most %d elements: the memory tools take %d of %d places",
                   LIMIT_TOOLS - LIMIT_OWN_TOOLS, LIMIT_OWN_TOOLS, LIMIT_TOOLS);
    json_array_foreach(tools, i, tool) {
        char pointer[64];
        const char *name = json_str(json_object_get(tool, "function"), "name");
        snprintf(pointer, sizeof pointer, "/tools/%zu/function/name", i);
        if (name && is_taken(name))
            json_fault(faults, pointer,
                       "begins with host_, mcp_ or memory_, or is fetch_url: these are taken");
    }
    return check_tools_size(tools, faults, err);
}

static int check_messages(const json_t *messages, struct json_faults *faults, struct err *err)
{
    const char *role = json_str(json_array_get(messages, 0), "role");
    CLEANUP(free_str) char *text = NULL;

    /* One place is the operator's prompt, unless the caller's own system message can follow it in one. */
    if (json_array_size(messages) == LIMIT_MESSAGES && (!role || strcmp(role, "system") != 0))
        json_fault(faults, "/messages", "must have at most %d elements when the first is not of role system",
                   LIMIT_MESSAGES - 1);
    if (json_text(messages, &text, err) < 0)
        return -1;
    if (strlen(text) > LIMIT_MESSAGES_BYTES)
        json_fault(faults, "/messages", "must have at most %d bytes as JSON, has %zu", LIMIT_MESSAGES_BYTES,
                   strlen(text));
    return 0;
}

int turn_input(json_t *body, struct json_faults *faults, struct err *err)
{
    json_t *messages = json_object_get(body, "messages"), *tools = json_object_get(body, "tools");
    json_t *rebuilt = NULL;

    if (messages && model_messages(messages, "/messages", &rebuilt, faults) == 0) {
        if (json_array_size(rebuilt) == 0)
            json_fault(faults, "/messages", "must not be empty");
        int rc = check_messages(rebuilt, faults, err);
        if (json_object_set_new(body, "messages", rebuilt) < 0)
            return err_no_memory(err);
        if (rc < 0)
            return -1;
    }
    if (tools && model_tools(tools, "/tools", &rebuilt, faults) == 0) {
        int rc = check_tools(rebuilt, faults, err);
        if (json_object_set_new(body, "tools", rebuilt) < 0)
            return err_no_memory(err);
        if (rc < 0)
            return -1;
    }
    return 0;
}

void turn_limits(const json_t *body, const struct config *config, struct json_faults *faults)
{
    const struct {
        const char *name;
        double most;
    } table[] = {{"timeout_ms", config->limits.timeout_ms},
                 {"memory_mb", config->limits.memory_mb},
                 {"cpus", config->limits.cpus},
                 {"pids", config->limits.pids}};
    const json_t *limits = json_object_get(body, "limits");

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        const json_t *wanted = json_object_get(limits, table[i].name);
        char pointer[64];
        snprintf(pointer, sizeof pointer, "/limits/%s", table[i].name);
        if (json_is_number(wanted) && json_number_value(wanted) > table[i].most)
            json_fault(faults, pointer, "may only lower the operator's %.15g", table[i].most);
    }
}
