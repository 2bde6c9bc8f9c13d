/* The sanitizer of model traffic: what it lets through it lets through again unchanged, and it holds nothing
 * but what mission.md section 5 allows; a refusal names a place that is there. */
#include "support/fuzz.h"

#include "base/limits.h"
#include "handlers/turn_input.h"
#include "schemas/model_input.h"

#include <string.h>

static bool has_only(const json_t *object, const char *const *names)
{
    const char *key;
    json_t *member;

    if (!json_is_object(object))
        return false;
    json_object_foreach((json_t *)(uintptr_t)object, key, member) {
        bool known = false;
        for (size_t i = 0; names[i]; i++)
            known = known || strcmp(names[i], key) == 0;
        if (!known)
            return false;
    }
    return true;
}

static void check_messages(const json_t *messages)
{
    static const char *const fields[] = {"role", "content", "tool_calls", "tool_call_id", NULL};
    static const char *const of_call[] = {"id", "type", "function", NULL};
    static const char *const of_function[] = {"name", "arguments", NULL};
    json_t *message, *call;
    size_t i, n;

    PROPERTY(json_array_size(messages) <= LIMIT_MESSAGES, "%zu messages", json_array_size(messages));
    json_array_foreach(messages, i, message) {
        const json_t *calls = json_object_get(message, "tool_calls");
        const char *role = json_str(message, "role");
        PROPERTY(has_only(message, fields) && role && json_str(message, "content"), "a message's fields");
        PROPERTY(!calls || strcmp(role, "assistant") == 0, "tool_calls of %s", role);
        PROPERTY((strcmp(role, "tool") == 0) == (json_str(message, "tool_call_id") != NULL), "tool_call_id");
        PROPERTY(json_array_size(calls) <= LIMIT_TOOL_CALLS, "%zu calls", json_array_size(calls));
        json_array_foreach(calls, n, call) {
            const json_t *function = json_object_get(call, "function");
            PROPERTY(has_only(call, of_call) && has_only(function, of_function), "a call's fields");
            PROPERTY(model_function_name(json_str(function, "name")) && model_call_id(json_str(call, "id")),
                     "a call's names");
        }
    }
}

static void check_tools(const json_t *tools)
{
    static const char *const fields[] = {"type", "function", NULL};
    static const char *const of_function[] = {"name", "description", "parameters", NULL};
    json_t *tool;
    size_t i, n;

    PROPERTY(json_array_size(tools) <= LIMIT_TOOLS, "%zu tools", json_array_size(tools));
    json_array_foreach(tools, i, tool) {
        const json_t *function = json_object_get(tool, "function");
        const char *name = json_str(function, "name");
        PROPERTY(has_only(tool, fields) && has_only(function, of_function) && name, "a tool's fields");
        for (n = 0; n < i; n++)
            PROPERTY(strcmp(name, json_str(json_object_get(json_array_get(tools, n), "function"), "name")) !=
                         0,
                     "%s stands twice", name);
    }
}

static void check_again(json_t *messages, json_t *tools)
{
    CLEANUP(json_free) json_t *body = json_pack("{s:O, s:O*}", "messages", messages, "tools", tools);
    CLEANUP(json_free) json_t *messages_again = NULL;
    CLEANUP(json_free) json_t *tools_again = NULL;
    struct json_faults faults = {0};

    PROPERTY(model_input(body, "", &messages_again, &tools_again, &faults) == 0,
             "refused what it let through");
    PROPERTY(json_equal(messages, messages_again), "messages changed the second time");
    PROPERTY(tools ? json_equal(tools, tools_again) : !tools_again, "tools changed the second time");
}

/* The same as a caller's: turn_input may refuse more, never less. */
static void check_as_caller(const json_t *body, const json_t *messages, const json_t *tools, bool refused)
{
    CLEANUP(json_free) json_t *copy = json_deep_copy(body);
    CLEANUP(json_faults_free) struct json_faults faults = {0};
    struct err err = {0};

    if (!json_object_get(copy, "messages"))
        return;
    PROPERTY(turn_input(copy, &faults, &err) == 0, "%s", err.text);
    fuzz_check_faults(body, &faults);
    PROPERTY(!refused || faults.total > 0, "a caller may send what the broker refuses");
    if (faults.total > 0)
        return;
    PROPERTY(json_equal(json_object_get(copy, "messages"), messages), "other messages");
    PROPERTY(!tools || json_equal(json_object_get(copy, "tools"), tools), "other tools");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CLEANUP(free_str) char *text = fuzz_text(data, size);
    CLEANUP(json_free) json_t *body = fuzz_json(text, size);
    CLEANUP(json_free) json_t *messages = NULL;
    CLEANUP(json_free) json_t *tools = NULL;
    CLEANUP(json_faults_free) struct json_faults faults = {0};

    if (!body)
        return 0;
    CLEANUP(json_free) json_t *before = json_deep_copy(body);
    int rc = model_input(body, "", &messages, &tools, &faults);
    PROPERTY((rc == 0) == (faults.total == 0), "%d with %zu faults", rc, faults.total);
    PROPERTY(json_equal(body, before), "the input was changed");
    fuzz_check_faults(body, &faults);
    if (rc == 0) {
        check_messages(messages);
        check_tools(tools);
        check_again(messages, tools);
    } else {
        PROPERTY(!messages && !tools, "outputs beside a refusal");
    }
    if (json_is_object(body))
        check_as_caller(body, messages, tools, rc < 0);
    return 0;
}
