/* The models without an account: whatever was said, they answer like a model, call only tools that were
 * offered, obey no tool's result, and never outlast the deadline. */
#include "support/fuzz.h"

#include "base/clock.h"
#include "base/limits.h"
#include "broker/embedded.h"
#include "broker/model.h"
#include "schemas/model_input.h"

#include <string.h>

static bool is_offered(const json_t *tools, const char *name)
{
    json_t *tool;
    size_t i;

    json_array_foreach(tools, i, tool) {
        if (strcmp(json_str(json_object_get(tool, "function"), "name"), name) == 0)
            return true;
    }
    return false;
}

/* A line of the last user message that could be a call of this tool. */
static bool user_calls(const json_t *messages, const char *name)
{
    const char *user = "";
    char line[80] = "/call ";
    json_t *message;
    size_t i;

    json_array_foreach(messages, i, message) {
        if (strcmp(json_str(message, "role"), "user") == 0)
            user = json_str(message, "content");
    }
    strncat(line, name, sizeof line - 7);
    const char *found = strstr(user, line);
    while (found && found != user && found[-1] != '\n')
        found = strstr(found + 1, line);
    return found != NULL;
}

static void check_call(const json_t *messages, const json_t *tools, const json_t *message)
{
    const json_t *calls = json_object_get(message, "tool_calls");
    const json_t *function = json_object_get(json_array_get(calls, 0), "function");
    const char *name = json_str(function, "name"), *arguments = json_str(function, "arguments");
    CLEANUP(json_free) json_t *parsed = NULL;
    struct err err;

    if (!calls)
        return;
    PROPERTY(json_array_size(calls) == 1 && name && arguments, "not one call");
    PROPERTY(is_offered(tools, name), "%s was not offered", name);
    PROPERTY(user_calls(messages, name), "nobody asked for %s", name);
    PROPERTY(json_parse(arguments, strlen(arguments), &parsed, &err) == 0 && json_is_object(parsed),
             "arguments: %s", arguments);
}

static void check_answer(enum embedded_model model, const json_t *messages, const json_t *tools,
                         const struct buf *text)
{
    struct model_reply reply = {0};
    CLEANUP(json_free) json_t *answer = NULL;
    struct err err = {0};

    PROPERTY(model_read_answer(text->data, text->len, NULL, &reply, &err) == 0,
             "no answer of a model: %s: %s", err.text, text->data);
    PROPERTY(json_parse(reply.text, strlen(reply.text), &answer, &err) == 0, "%s", err.text);
    PROPERTY(reply.prompt_tokens > 0 && reply.completion_tokens > 0, "no tokens");
    const json_t *choice = json_array_get(json_object_get(answer, "choices"), 0);
    const json_t *message = json_object_get(choice, "message");
    check_call(messages, tools, message);
    if (model == EMBEDDED_ECHO)
        PROPERTY(!json_object_get(message, "tool_calls"), "the echo calls a tool");
    free(reply.text);
}

static void run(enum embedded_model model, const json_t *messages, const json_t *tools)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT(LIMIT_UPSTREAM_ANSWER);
    struct err err = {0};
    int64_t start = clock_mono_ms();

    /* The deadline has passed, so that a script's sleep is over at once. */
    if (embedded_answer(model, messages, tools, start, -1, &text, &err) == 0) {
        check_answer(model, messages, tools, &text);
        return;
    }
    fuzz_check_err(&err);
    PROPERTY((err.code == ERR_TIMEOUT && model == EMBEDDED_SCRIPT) || err.code == ERR_TOO_LARGE, "%s: %s",
             err_name(err.code), err.text);
    PROPERTY(text.len == 0, "half an answer");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CLEANUP(free_str) char *text = fuzz_text(data, size);
    CLEANUP(json_free) json_t *body = fuzz_json(text, size);
    CLEANUP(json_free) json_t *messages = NULL;
    CLEANUP(json_free) json_t *tools = NULL;
    CLEANUP(json_faults_free) struct json_faults faults = {0};

    if (!body || model_input(body, "", &messages, &tools, &faults) < 0)
        return 0;
    run(EMBEDDED_ECHO, messages, tools);
    run(EMBEDDED_SCRIPT, messages, tools);
    return 0;
}
