#include "turn.h"

#include "schemas/model_input.h"
#include "schemas/schema.h"

#include <string.h>

/* Puts the first faults into one sentence. */
static int refuse(const struct json_faults *faults, struct err *err)
{
    size_t i;
    json_t *fault;

    err_set(err, ERR_INVALID, "the turn breaks %zu rules", faults->total);
    json_array_foreach(faults->list, i, fault) {
        size_t used = strlen(err->text);
        const char *pointer = json_str(fault, "pointer"), *detail = json_str(fault, "detail");
        snprintf(err->text + used, sizeof err->text - used, "; %s: %s", pointer ? pointer : "",
                 detail ? detail : "");
    }
    return -1;
}

/* A tool of the operator whose schema leads outside would make the broker refuse every call of the turn. */
static int check_tools(const json_t *tools, const char *pointer, struct json_faults *faults)
{
    size_t i, before = faults->total;
    json_t *tool;

    json_array_foreach(tools, i, tool) {
        char at[64];
        snprintf(at, sizeof at, "%s/%zu/parameters", pointer, i);
        (void)!json_schema_local(json_object_get(tool, "parameters"), at, faults);
    }
    return faults->total > before ? -1 : 0;
}

static int check_all_tools(const json_t *root, struct json_faults *faults)
{
    int rc = check_tools(json_object_get(root, "tools"), "/tools", faults);
    size_t i;
    json_t *server;

    json_array_foreach(json_object_get(root, "mcp"), i, server) {
        char at[32];
        snprintf(at, sizeof at, "/mcp/%zu/tools", i);
        rc |= check_tools(json_object_get(server, "tools"), at, faults);
    }
    return rc;
}

/* Caller's content goes through the sanitizer that every model input passes. (mission.md section 5) */
static int sanitize(const json_t *root, struct turn *t, struct json_faults *faults)
{
    const json_t *messages = json_object_get(root, "messages");
    const json_t *tools = json_object_get(root, "caller_tools");

    if (messages && model_messages(messages, "/messages", &t->messages, faults) < 0)
        return -1;
    return tools ? model_tools(tools, "/caller_tools", &t->caller_tools, faults) : 0;
}

int turn_parse(const char *line, size_t len, struct turn *ret, struct err *err)
{
    CLEANUP(turn_free) struct turn t = {0};
    CLEANUP(json_faults_free) struct json_faults faults = {0};

    if (json_parse(line, len, &t.root, err) < 0)
        return err_wrap(err, "the turn");
    if (schema_check("worker_turn", t.root, "", &faults) < 0 || check_all_tools(t.root, &faults) < 0 ||
        sanitize(t.root, &t, &faults) < 0)
        return refuse(&faults, err);

    const json_t *speaker = json_object_get(t.root, "speaker");
    t.id = json_str(t.root, "id");
    t.text = json_str(t.root, "text");
    t.speaker_id = json_str(speaker, "id");
    t.speaker_name = json_str(speaker, "name");
    t.prompt = json_str(t.root, "prompt");
    t.time_zone = json_str(t.root, "time_zone");
    t.workspace = json_str(t.root, "workspace");
    t.tools = json_object_get(t.root, "tools");
    t.mcp = json_object_get(t.root, "mcp");
    t.reset = json_is_true(json_object_get(t.root, "reset"));
    t.deadline_ms = json_integer_value(json_object_get(t.root, "deadline_ms"));
    *ret = t;
    t = (struct turn){0};
    return 0;
}

void turn_free(struct turn *turn)
{
    json_decref(turn->root);
    json_decref(turn->messages);
    json_decref(turn->caller_tools);
    *turn = (struct turn){0};
}
