#include "schemas/protocol.h"

#include "base/limits.h"
#include "schemas/model_input.h"
#include "schemas/schema.h"

#include <stdio.h>
#include <string.h>

/* Copies a member of the request under the worker's name for it; absent stays absent. */
static int pass(json_t *line, const char *name, const json_t *request, const char *member)
{
    json_t *value = json_object_get(request, member);

    return value ? json_object_set(line, name, value) : 0;
}

/* What every turn has; no operator's tools yet. NULL: out of memory. */
static json_t *common_members(const struct worker_turn *turn)
{
    return json_pack("{s:i, s:s, s:O, s:s, s:s, s:s, s:[], s:[], s:[], s:b, s:s, s:I}", "version",
                     PROTOCOL_VERSION, "id", turn->id, "speaker", json_object_get(turn->request, "speaker"),
                     "model", turn->model, "prompt", turn->prompt, "time_zone", turn->time_zone, "tools",
                     "mcp", "caller_tools", "reset", (int)turn->reset, "workspace", PROTOCOL_WORKSPACE,
                     "deadline_ms", (json_int_t)turn->deadline_ms);
}

/* What a value was read from, and a string, grow at most so many times when they are written: 1e9 is
 * 1000000000.0, a control character \u0001. */
#define VALUE_GROWS  8
#define STRING_GROWS 6
#define FRAME        4096 /* all the rest of a line */

bool worker_turn_fits(const struct worker_turn *turn, size_t body)
{
    size_t strings = strlen(turn->model) + strlen(turn->prompt) + strlen(turn->time_zone);

    return body < LIMIT_TURN_LINE / VALUE_GROWS &&
           FRAME + VALUE_GROWS * body + STRING_GROWS * strings < LIMIT_TURN_LINE - LIMIT_WORKER_ADDS;
}

int worker_turn_line(const struct worker_turn *turn, char **ret, struct err *err)
{
    CLEANUP(json_free) json_t *line = common_members(turn);
    CLEANUP(free_str) char *text = NULL;
    size_t most = LIMIT_TURN_LINE;

    if (!line || pass(line, "text", turn->request, "text") < 0 ||
        pass(line, "messages", turn->request, "messages") < 0 ||
        pass(line, "caller_tools", turn->request, "tools") < 0)
        return err_no_memory(err);
    if (json_object_get(line,
                        "messages")) /* all of it goes to the model in one body, with what the worker adds */
        most -= LIMIT_WORKER_ADDS;
    if (json_text(line, &text, err) < 0)
        return -1;
    if (strlen(text) >= most)
        return err_set(err, ERR_INVALID, "the turn is longer than the %zu bytes that a worker takes", most);
    if (asprintf(ret, "%s\n", text) >= 0)
        return 0;
    *ret = NULL;
    return err_no_memory(err);
}

static int first_fault(struct json_faults *faults, struct err *err)
{
    const json_t *first = json_array_get(faults->list, 0);
    const char *pointer = json_str(first, "pointer"), *detail = json_str(first, "detail");

    if (faults->no_memory)
        err_no_memory(err);
    else
        err_set(err, ERR_INVALID, "%s: %s", pointer ? pointer : "", detail ? detail : "");
    json_faults_free(faults);
    return -1;
}

/* Tool calls go through the sanitizer that every model input passes, and keep its known fields only. */
static int rebuild_calls(json_t *reply, struct json_faults *faults)
{
    const json_t *calls = json_object_get(reply, "tool_calls");
    json_t *rebuilt = NULL;

    if (!calls)
        return 0;
    if (model_tool_calls(calls, "/tool_calls", &rebuilt, faults) < 0)
        return -1;
    if (json_object_set_new(reply, "tool_calls", rebuilt) == 0)
        return 0;
    json_faults_no_memory(faults);
    return -1;
}

int worker_reply_parse(const char *line, size_t len, struct worker_reply *ret, struct err *err)
{
    CLEANUP(json_free) json_t *value = NULL;
    struct json_faults faults = {0};

    if (json_parse(line, len, &value, err) < 0)
        return -1;
    if (schema_check("worker_reply", value, "", &faults) < 0 || rebuild_calls(value, &faults) < 0)
        return first_fault(&faults, err);
    ret->ok = json_is_true(json_object_get(value, "ok"));
    if (json_object_del(value, "ok") < 0)
        return err_set(err, ERR_INTERNAL, "a checked reply lost its ok");
    ret->reply = json_steal(&value);
    return 0;
}
