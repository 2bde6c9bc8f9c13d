#include "turn.h"

#include "schemas/schema.h"

#include <string.h>

/* Puts the first faults into one sentence. */
static int refuse(const struct json_faults *faults, struct err *err)
{
    size_t i;
    json_t *fault;

    err_set(err, ERR_INVALID, "the turn breaks %zu rules", faults->total);
    json_array_foreach(faults->list, i, fault)
    {
        size_t used = strlen(err->text);
        const char *pointer = json_str(fault, "pointer"), *detail = json_str(fault, "detail");
        snprintf(err->text + used, sizeof err->text - used, "; %s: %s", pointer ? pointer : "",
                 detail ? detail : "");
    }
    return -1;
}

int turn_parse(const char *line, size_t len, struct turn *ret, struct err *err)
{
    CLEANUP(json_free)
    json_t *root = NULL;
    CLEANUP(json_faults_free)
    struct json_faults faults = {0};

    if (json_parse(line, len, &root, err) < 0)
        return err_wrap(err, "the turn");
    if (schema_check("worker_turn", root, "", &faults) < 0)
        return refuse(&faults, err);

    const json_t *speaker = json_object_get(root, "speaker");
    *ret = (struct turn){
        .id = json_str(root, "id"),
        .text = json_str(root, "text"),
        .messages = json_object_get(root, "messages"),
        .speaker_id = json_str(speaker, "id"),
        .speaker_name = json_str(speaker, "name"),
        .prompt = json_str(root, "prompt"),
        .time_zone = json_str(root, "time_zone"),
        .workspace = json_str(root, "workspace"),
        .tools = json_object_get(root, "tools"),
        .mcp = json_object_get(root, "mcp"),
        .caller_tools = json_object_get(root, "caller_tools"),
        .reset = json_is_true(json_object_get(root, "reset")),
        .deadline_ms = json_integer_value(json_object_get(root, "deadline_ms")),
    };
    ret->root = json_steal(&root);
    return 0;
}

void turn_free(struct turn *turn)
{
    json_decref(turn->root);
    *turn = (struct turn){0};
}
