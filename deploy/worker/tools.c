#include "tools.h"

#include "text.h"

#include "base/limits.h"
#include "schemas/tool_size.h"

#include <stdio.h>
#include <string.h>

#define SCOPE                                                                                                \
    "\"scope\":{\"type\":\"string\",\"enum\":[\"speaker\",\"channel\"],\"description\":\"speaker: only for " \
    "the current speaker; channel: for everyone in this channel\"}"
#define KEY   "\"key\":{\"type\":\"string\",\"description\":\"1 to 128 characters\"}"
#define VALUE "\"value\":{\"type\":\"string\",\"description\":\"at most 2048 characters\"}"

static const struct {
    enum tool_kind kind;
    const char *name;
    const char *description;
    const char *parameters;
} memory_tools[] = {
    {TOOL_MEMORY_SET, "memory_set", "Remembers a value under a key, beyond this conversation.",
     "{\"type\":\"object\",\"properties\":{" SCOPE "," KEY "," VALUE
     "},\"required\":[\"scope\",\"key\",\"value\"],\"additionalProperties\":false}"},
    {TOOL_MEMORY_GET, "memory_get", "Gives the value under a key, or all keys of the scope without one.",
     "{\"type\":\"object\",\"properties\":{" SCOPE "," KEY
     "},\"required\":[\"scope\"],\"additionalProperties\":false}"},
    {TOOL_MEMORY_REMOVE, "memory_remove", "Forgets a key.",
     "{\"type\":\"object\",\"properties\":{" SCOPE "," KEY
     "},\"required\":[\"scope\",\"key\"],\"additionalProperties\":false}"},
};

static int add(struct tools *t, const struct tool *tool, const char *description, json_t *parameters,
               struct err *err)
{
    if (tools_find(t, tool->name))
        return err_set(err, ERR_INVALID, "the tool %s stands twice", tool->name);
    if (t->count == LIMIT_TOOLS)
        return err_set(err, ERR_INVALID, "more than %d tools", LIMIT_TOOLS);
    json_t *definition = json_pack("{s:s, s:{s:s, s:s, s:O}}", "type", "function", "function", "name",
                                   tool->name, "description", description, "parameters", parameters);
    if (!definition || json_array_append_new(t->definitions, definition) < 0)
        return err_no_memory(err);
    t->list[t->count++] = *tool;
    return 0;
}

static int add_memory(struct tools *t, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(memory_tools); i++) {
        CLEANUP(json_free) json_t *parameters = NULL;
        struct tool tool = {.kind = memory_tools[i].kind};

        snprintf(tool.name, sizeof tool.name, "%s", memory_tools[i].name);
        if (json_parse(memory_tools[i].parameters, strlen(memory_tools[i].parameters), &parameters, err) < 0)
            return err_wrap(err, "%s", tool.name);
        if (add(t, &tool, memory_tools[i].description, parameters, err) < 0)
            return -1;
    }
    return 0;
}

/* Entries {name, description, parameters} of the operator. */
static int add_declared(struct tools *t, const json_t *entries, const char *server, size_t index,
                        struct err *err)
{
    const json_t *entry;
    size_t i;

    json_array_foreach(entries, i, entry) {
        const char *name = json_str(entry, "name");
        struct tool tool = {.kind = server ? TOOL_MCP : TOOL_HOST, .server = server, .target = name};
        if (server)
            snprintf(tool.name, sizeof tool.name, "mcp_%zu_%s", index, name);
        else
            snprintf(tool.name, sizeof tool.name, "host_%s", name);
        if (add(t, &tool, json_str(entry, "description"), json_object_get(entry, "parameters"), err) < 0)
            return -1;
    }
    return 0;
}

static int add_caller(struct tools *t, const json_t *entries, struct err *err)
{
    const json_t *entry;
    size_t i;

    json_array_foreach(entries, i, entry) {
        const json_t *function = json_object_get(entry, "function");
        struct tool tool = {.kind = TOOL_CALLER};
        snprintf(tool.name, sizeof tool.name, "%s", json_str(function, "name"));
        if (add(t, &tool, json_str(function, "description"), json_object_get(function, "parameters"), err) <
            0)
            return -1;
    }
    return 0;
}

static int cut_descriptions(struct tools *t, size_t most, struct err *err)
{
    json_t *definition;
    size_t i;

    json_array_foreach(t->definitions, i, definition) {
        json_t *function = json_object_get(definition, "function");
        CLEANUP(free_str) char *cut = NULL;
        if (text_cut(json_str(function, "description"), most, &cut, err) < 0)
            return -1;
        if (json_object_set_new(function, "description", json_string(cut)) < 0)
            return err_no_memory(err);
    }
    return 0;
}

/* Halves the longest allowed description until all definitions fit. */
static int fit(struct tools *t, struct err *err)
{
    size_t size, most = LIMIT_WORKER_TOOLS;

    if (tool_size(t->definitions, most, &size, err) < 0)
        return -1;
    if (size <= LIMIT_WORKER_TOOLS)
        return 0;
    while (size > LIMIT_WORKER_TOOLS && most > LIMIT_TOOL_DESCRIPTION) {
        most /= 2;
        if (tool_size(t->definitions, most, &size, err) < 0)
            return -1;
    }
    if (size > LIMIT_WORKER_TOOLS)
        return err_set(err, ERR_INVALID, "the tools take more than %d KiB even without their descriptions",
                       LIMIT_WORKER_TOOLS / 1024);
    return cut_descriptions(t, most, err);
}

int tools_build(const struct turn *turn, struct tools *ret, struct err *err)
{
    CLEANUP(tools_free)
    struct tools t = {.list = calloc(LIMIT_TOOLS, sizeof *t.list), .definitions = json_array()};
    const json_t *entry;
    size_t i;

    if (!t.list || !t.definitions)
        return err_no_memory(err);
    if (add_memory(&t, err) < 0 || add_declared(&t, turn->tools, NULL, 0, err) < 0)
        return -1;
    json_array_foreach(turn->mcp, i, entry) {
        if (add_declared(&t, json_object_get(entry, "tools"), json_str(entry, "server"), i, err) < 0)
            return -1;
    }
    if (add_caller(&t, turn->caller_tools, err) < 0 || fit(&t, err) < 0)
        return -1;
    *ret = t;
    t = (struct tools){0};
    return 0;
}

void tools_free(struct tools *tools)
{
    free(tools->list);
    json_decref(tools->definitions);
    *tools = (struct tools){0};
}

const struct tool *tools_find(const struct tools *tools, const char *name)
{
    for (size_t i = 0; i < tools->count; i++)
        if (strcmp(tools->list[i].name, name) == 0)
            return &tools->list[i];
    return NULL;
}
