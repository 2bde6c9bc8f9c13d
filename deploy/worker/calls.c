#include "calls.h"

#include "text.h"

#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

#define INVALID_TOOL "invalid_tool"

int call_ids_new(struct call_ids *ret, struct err *err)
{
    json_t *seen = json_object();

    if (!seen)
        return err_no_memory(err);
    *ret = (struct call_ids){.seen = seen, .next = 1};
    return 0;
}

void call_ids_free(struct call_ids *ids)
{
    json_decref(ids->seen);
    *ids = (struct call_ids){0};
}

static bool id_valid(const char *id)
{
    size_t len = id ? strlen(id) : 0;

    return len > 0 && utf8_chars(id, len) <= LIMIT_CALL_ID_CHARS && !utf8_has_control(id, len);
}

int call_ids_take(struct call_ids *ids, const char *wanted, char out[CALL_ID_SIZE], struct err *err)
{
    if (id_valid(wanted))
        snprintf(out, CALL_ID_SIZE, "%s", wanted);
    else
        snprintf(out, CALL_ID_SIZE, "call_%u", ids->next++);
    while (json_object_get(ids->seen, out))
        snprintf(out, CALL_ID_SIZE, "call_%u", ids->next++);
    return json_object_set_new(ids->seen, out, json_true()) < 0 ? err_no_memory(err) : 0;
}

/* One assistant message with its calls: old and new id of each, in order, until an answer takes it. */
struct renames {
    struct {
        const json_t *old; /* a reference of its own, since the call's member is replaced */
        char fresh[CALL_ID_SIZE];
        bool answered;
    } list[LIMIT_TOOL_CALLS];
    size_t count;
};

static void renames_clear(struct renames *r)
{
    for (size_t i = 0; i < r->count; i++)
        json_decref((json_t *)(uintptr_t)r->list[i].old);
    r->count = 0;
}

static int rename_calls(struct call_ids *ids, json_t *calls, struct renames *r, struct err *err)
{
    json_t *call;
    size_t i;

    renames_clear(r);
    json_array_foreach(calls, i, call) {
        json_t *old = json_object_get(call, "id");
        if (r->count == LIMIT_TOOL_CALLS)
            return err_set(err, ERR_INVALID, "more than %d tool calls in a message", LIMIT_TOOL_CALLS);
        if (call_ids_take(ids, json_string_value(old), r->list[r->count].fresh, err) < 0)
            return -1;
        r->list[r->count].old = json_incref(old);
        r->list[r->count].answered = false;
        if (json_object_set_new(call, "id", json_string(r->list[r->count++].fresh)) < 0)
            return err_no_memory(err);
    }
    return 0;
}

static int rename_answer(json_t *message, struct renames *r, struct err *err)
{
    const json_t *old = json_object_get(message, "tool_call_id");

    for (size_t i = 0; i < r->count; i++) {
        if (r->list[i].answered || !json_equal(old, r->list[i].old))
            continue;
        r->list[i].answered = true;
        if (json_object_set_new(message, "tool_call_id", json_string(r->list[i].fresh)) < 0)
            return err_no_memory(err);
        break;
    }
    return 0;
}

int call_ids_repair(struct call_ids *ids, json_t *messages, struct err *err)
{
    CLEANUP(renames_clear) struct renames r = {.count = 0};
    json_t *message;
    size_t i;

    json_array_foreach(messages, i, message) {
        json_t *calls = json_object_get(message, "tool_calls");
        if (calls && rename_calls(ids, calls, &r, err) < 0)
            return -1;
        if (json_object_get(message, "tool_call_id") && rename_answer(message, &r, err) < 0)
            return -1;
    }
    return 0;
}

static json_t *call_json(const char *id, const char *name, const char *arguments)
{
    return json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", id, "type", "function", "function", "name", name,
                     "arguments", arguments);
}

/* The call of a tool that was not offered keeps the name the model used, so that it sees what it did. */
static json_t *invalid_json(const char *id, const char *name, struct err *err)
{
    CLEANUP(free_str) char *cut = NULL;
    CLEANUP(free_str) char *arguments = NULL;
    CLEANUP(json_free) json_t *object = NULL;

    if (text_cut(name ? name : "", 256, &cut, err) < 0)
        return NULL;
    object = json_pack("{s:s}", "name", cut);
    if (!object || json_text(object, &arguments, err) < 0)
        return NULL;
    return call_json(id, INVALID_TOOL, arguments);
}

static json_t *shown_json(const struct call *call, const char *arguments)
{
    char note[64];
    size_t size = text_encoded(arguments, strlen(arguments));

    if (!call->arguments)
        return call_json(call->id, call->tool->name, "{}");
    if (size <= LIMIT_WORKER_ARGUMENTS)
        return call_json(call->id, call->tool->name, arguments);
    snprintf(note, sizeof note, "{\"left_out\":\"%zu bytes of arguments\"}", strlen(arguments));
    return call_json(call->id, call->tool->name, note);
}

static int read_call(const json_t *entry, const struct tools *tools, struct call_ids *ids, struct call *ret,
                     struct err *err)
{
    const json_t *function = json_object_get(entry, "function");
    const char *name = json_str(function, "name"), *arguments = json_str(function, "arguments");
    struct err ignored;

    *ret = (struct call){.tool = name ? tools_find(tools, name) : NULL};
    if (call_ids_take(ids, json_str(entry, "id"), ret->id, err) < 0)
        return -1;
    if (!arguments || !*arguments)
        arguments = "{}";
    if (!ret->tool) {
        ret->shown = invalid_json(ret->id, name, err);
        return ret->shown ? 0 : err_no_memory(err);
    }
    if (json_parse(arguments, strlen(arguments), &ret->arguments, &ignored) == 0 &&
        !json_is_object(ret->arguments)) {
        json_decref(ret->arguments);
        ret->arguments = NULL;
    }
    ret->shown = shown_json(ret, arguments);
    ret->whole = call_json(ret->id, ret->tool->name, arguments);
    return ret->shown && ret->whole ? 0 : err_no_memory(err);
}

int calls_read(const json_t *message, const struct tools *tools, struct call_ids *ids, struct calls *ret,
               struct err *err)
{
    const json_t *entries = json_object_get(message, "tool_calls");
    const json_t *entry;
    size_t i;

    *ret = (struct calls){.count = 0};
    json_array_foreach(entries, i, entry) {
        if (ret->count == LIMIT_TOOL_CALLS) {
            ret->dropped = json_array_size(entries) - ret->count;
            break;
        }
        if (read_call(entry, tools, ids, &ret->list[ret->count++], err) < 0) {
            calls_free(ret);
            return -1;
        }
    }
    return 0;
}

void calls_free(struct calls *calls)
{
    for (size_t i = 0; i < calls->count; i++) {
        json_decref(calls->list[i].arguments);
        json_decref(calls->list[i].shown);
        json_decref(calls->list[i].whole);
    }
    *calls = (struct calls){.count = 0};
}
