#include "broker/model.h"

#include <string.h>

#define TOKENS_MAX        ((json_int_t)1 << 40) /* of one answer; more is a lie */
#define FINISH_REASON_MAX 32

static int unusable(struct err *err, const char *what)
{
    return err_set(err, ERR_UPSTREAM, "the model's answer has no usable %s", what);
}

/* A name or an id that is absent or no string becomes "": which ones are valid is for the worker to say, who
 * answers a bad name with a refusal that the model can learn from. (mission.md 7) */
static int rebuild_call(const json_t *call, json_t **ret, struct err *err)
{
    const json_t *function = json_object_get(call, "function");
    const char *type = json_str(call, "type"), *id = json_str(call, "id");
    const char *name = json_str(function, "name");
    const json_t *arguments = json_object_get(function, "arguments");

    if (!json_is_string(arguments) || (type && strcmp(type, "function") != 0))
        return unusable(err, "tool_calls");
    *ret = json_pack("{s:s, s:s, s:{s:s, s:O}}", "id", id ? id : "", "type", "function", "function", "name",
                     name ? name : "", "arguments", arguments);
    return *ret ? 0 : err_no_memory(err);
}

static int rebuild_calls(const json_t *calls, json_t **ret, struct err *err)
{
    CLEANUP(json_free) json_t *list = NULL;

    if (calls && !json_is_null(calls) && !json_is_array(calls))
        return unusable(err, "tool_calls");
    if (json_array_size(calls) == 0)
        return 0;
    list = json_array();
    for (size_t i = 0; i < json_array_size(calls); i++) {
        json_t *call = NULL;
        if (rebuild_call(json_array_get(calls, i), &call, err) < 0)
            return -1;
        if (json_array_append_new(list, call) < 0)
            return err_no_memory(err);
    }
    *ret = json_steal(&list);
    return 0;
}

/* content is always a string, so that the guest can send the message back as it came. */
static int rebuild_message(const json_t *message, json_t **ret, struct err *err)
{
    const json_t *content = json_object_get(message, "content");
    json_t *calls = NULL;

    if (!json_is_object(message) || (content && !json_is_null(content) && !json_is_string(content)))
        return unusable(err, "message");
    if (rebuild_calls(json_object_get(message, "tool_calls"), &calls, err) < 0)
        return -1;
    *ret = json_pack("{s:s, s:s, s:o*}", "role", "assistant", "content",
                     json_is_string(content) ? json_string_value(content) : "", "tool_calls", calls);
    return *ret ? 0 : err_no_memory(err);
}

static json_int_t tokens_of(const json_t *usage, const char *key)
{
    json_int_t n = json_integer_value(json_object_get(usage, key));

    return n < 0 || n > TOKENS_MAX ? 0 : n;
}

static json_t *rebuild_usage(const json_t *usage, struct model_reply *counts)
{
    if (!json_is_object(usage))
        return NULL;
    json_int_t prompt = tokens_of(usage, "prompt_tokens");
    json_int_t completion = tokens_of(usage, "completion_tokens");
    counts->prompt_tokens = (uint64_t)prompt;
    counts->completion_tokens = (uint64_t)completion;
    return json_pack("{s:I, s:I, s:I}", "prompt_tokens", prompt, "completion_tokens", completion,
                     "total_tokens", prompt + completion);
}

int model_rebuild(const json_t *answer, json_t **ret, struct model_reply *counts, struct err *err)
{
    const json_t *choice = json_array_get(json_object_get(answer, "choices"), 0);
    const char *reason = json_str(choice, "finish_reason");
    json_t *message = NULL;

    if (!json_is_object(choice))
        return unusable(err, "choices");
    if (reason && strlen(reason) > FINISH_REASON_MAX)
        reason = NULL;
    if (rebuild_message(json_object_get(choice, "message"), &message, err) < 0)
        return -1;
    json_t *usage = rebuild_usage(json_object_get(answer, "usage"), counts);
    *ret = json_pack("{s:s, s:[{s:i, s:o, s:s?}], s:o*}", "object", "chat.completion", "choices", "index", 0,
                     "message", message, "finish_reason", reason, "usage", usage);
    return *ret ? 0 : err_no_memory(err);
}
