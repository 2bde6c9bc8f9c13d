#include "agent.h"

#include "note.h"
#include "text.h"

#include <string.h>

static int refused(const struct broker_answer *answer, struct err *err)
{
    enum err_code code = answer->status == 410   ? ERR_CANCELED
                         : answer->status == 429 ? ERR_BUDGET
                         : answer->status == 413 ? ERR_TOO_LARGE
                                                 : ERR_UPSTREAM;
    CLEANUP(json_free) json_t *fault = NULL;
    struct err ignored;

    if (json_parse(answer->body.data ? answer->body.data : "", answer->body.len, &fault, &ignored) < 0)
        return err_set(err, code, "the broker answered %d", answer->status);
    const char *name = json_str(json_object_get(fault, "error"), "code");
    return err_set(err, code, "the broker answered %d %.64s", answer->status, name ? name : "");
}

/* One model call: the message of the first choice. */
static int ask_model(struct agent *a, json_t **ret, struct err *err)
{
    CLEANUP(free_str) char *request = NULL;
    CLEANUP(buf_free) struct buf body = BUF_INIT(LIMIT_UPSTREAM_ANSWER);
    CLEANUP(json_free) json_t *parsed = NULL;
    struct broker_answer answer = {0};

    if (context_request(a->context, &request, err) < 0)
        return -1;
    if (broker_post(a->link, "/model", request, strlen(request), &answer, err) < 0)
        return err_wrap(err, "model call");
    body = answer.body;
    if (answer.status != 200)
        return refused(&answer, err);
    if (json_parse(body.data ? body.data : "", body.len, &parsed, err) < 0) {
        err->code = err->code == ERR_NO_MEMORY ? ERR_NO_MEMORY : ERR_UPSTREAM;
        return err_wrap(err, "model answer");
    }
    json_t *choice = json_array_get(json_object_get(parsed, "choices"), 0);
    json_t *message = json_object_get(choice, "message");
    if (!json_is_object(message))
        return err_set(err, ERR_UPSTREAM, "model answer: no message in the first choice");
    *ret = json_incref(message);
    return 0;
}

static int copy_text(const char *text, char **ret, struct err *err)
{
    *ret = strdup(text);
    return *ret ? 0 : err_no_memory(err);
}

static bool calls_caller(const struct calls *calls)
{
    for (size_t i = 0; i < calls->count; i++)
        if (calls->list[i].tool && calls->list[i].tool->kind == TOOL_CALLER)
            return true;
    return false;
}

static bool is_memory(const struct call *call)
{
    return call->tool && call->tool->kind <= TOOL_MEMORY_REMOVE;
}

/* The caller's calls end the turn. Memory calls beside them are run, since they only concern this channel;
 * host and MCP calls are not, since their results would reach nobody: the model asks again when it goes on.
 */
static int end_with_calls(struct agent *a, const struct calls *calls, const char *content,
                          struct agent_reply *ret, struct err *err)
{
    CLEANUP(json_free) json_t *list = json_array();

    for (size_t i = 0; i < calls->count; i++) {
        const struct call *call = &calls->list[i];
        CLEANUP(free_str) char *answer = NULL;
        if (is_memory(call) && runner_call(a->runner, call, &answer, err) < 0)
            return -1;
        if (call->tool && call->tool->kind == TOOL_CALLER && json_array_append(list, call->whole) < 0)
            return err_no_memory(err);
    }
    if (copy_text(content, &ret->text, err) < 0)
        return -1;
    ret->tool_calls = json_steal(&list);
    return 0;
}

/* Runs the calls and adds them with their answers to the context. */
static int go_on(struct agent *a, const struct calls *calls, const char *content, struct err *err)
{
    CLEANUP(free_str) char *said = NULL;
    CLEANUP(json_free) json_t *group = json_array();
    CLEANUP(json_free) json_t *shown = json_array();

    if (text_cut(content, LIMIT_WORKER_SAYING, &said, err) < 0)
        return -1;
    for (size_t i = 0; i < calls->count; i++)
        if (json_array_append(shown, calls->list[i].shown) < 0)
            return err_no_memory(err);
    if (json_array_append_new(group, json_pack("{s:s, s:s, s:O}", "role", "assistant", "content", said,
                                               "tool_calls", shown)) < 0)
        return err_no_memory(err);
    for (size_t i = 0; i < calls->count; i++) {
        CLEANUP(free_str) char *answer = NULL;
        if (runner_call(a->runner, &calls->list[i], &answer, err) < 0)
            return -1;
        if (json_array_append_new(group, json_pack("{s:s, s:s, s:s}", "role", "tool", "content", answer,
                                                   "tool_call_id", calls->list[i].id)) < 0)
            return err_no_memory(err);
    }
    return context_add_group(a->context, json_steal(&group), err);
}

int agent_run(struct agent *a, struct agent_reply *ret, struct err *err)
{
    for (unsigned n = 0; n < LIMIT_WORKER_MODEL_CALLS; n++) {
        CLEANUP(json_free) json_t *message = NULL;
        CLEANUP(calls_free) struct calls calls = {.count = 0};

        if (ask_model(a, &message, err) < 0)
            return -1;
        const char *content = json_str(message, "content");
        if (!content)
            content = "";
        if (calls_read(message, a->tools, a->ids, &calls, err) < 0)
            return -1;
        if (calls.dropped > 0)
            note("%zu tool calls beyond the %dth were left out", calls.dropped, LIMIT_TOOL_CALLS);
        if (calls.count == 0)
            return copy_text(content, &ret->text, err);
        if (calls_caller(&calls))
            return end_with_calls(a, &calls, content, ret, err);
        if (go_on(a, &calls, content, err) < 0)
            return -1;
    }
    return err_set(err, ERR_UPSTREAM, "the model still called tools after %d model calls",
                   LIMIT_WORKER_MODEL_CALLS);
}

void agent_reply_free(struct agent_reply *reply)
{
    free(reply->text);
    json_decref(reply->tool_calls);
    *reply = (struct agent_reply){0};
}
