#include "schemas/protocol.h"

#include "base/limits.h"
#include "schemas/schema.h"

#include <string.h>

int worker_turn_line(const struct worker_turn *turn, char **ret, struct err *err)
{
    CLEANUP(json_free)
    json_t *line =
        json_pack("{s:i, s:s, s:O, s:O, s:s, s:s, s:s, s:[], s:[], s:[], s:b, s:s, s:I}", "version",
                  PROTOCOL_VERSION, "id", turn->id, "text", json_object_get(turn->request, "text"), "speaker",
                  json_object_get(turn->request, "speaker"), "model", turn->model, "prompt", turn->prompt,
                  "time_zone", turn->time_zone, "tools", "mcp", "caller_tools", "reset", (int)turn->reset,
                  "workspace", PROTOCOL_WORKSPACE, "deadline_ms", (json_int_t)turn->deadline_ms);
    char *text = NULL;

    if (!line)
        return err_no_memory(err);
    if (json_text(line, &text, err) < 0)
        return -1;
    if (strlen(text) >= LIMIT_TURN_LINE) {
        free(text);
        return err_set(err, ERR_INVALID, "the turn is longer than the %d bytes that a worker takes",
                       LIMIT_TURN_LINE);
    }
    *ret = text;
    return 0;
}

static int first_fault(struct json_faults *faults, struct err *err)
{
    const json_t *first = json_array_get(faults->list, 0);
    const char *pointer = json_str(first, "pointer"), *detail = json_str(first, "detail");

    err_set(err, ERR_INVALID, "%s: %s", pointer ? pointer : "", detail ? detail : "out of memory");
    json_faults_free(faults);
    return -1;
}

int worker_reply_parse(const char *line, size_t len, struct worker_reply *ret, struct err *err)
{
    CLEANUP(json_free)
    json_t *value = NULL;
    struct json_faults faults = {0};

    if (json_parse(line, len, &value, err) < 0)
        return -1;
    if (schema_check("worker_reply", value, "", &faults) < 0)
        return first_fault(&faults, err);
    ret->ok = json_is_true(json_object_get(value, "ok"));
    if (json_object_del(value, "ok") < 0)
        return err_set(err, ERR_INTERNAL, "a checked reply lost its ok");
    ret->reply = json_steal(&value);
    return 0;
}
