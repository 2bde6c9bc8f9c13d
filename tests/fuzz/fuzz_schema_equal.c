/* schemas/common.json says in public what the sanitizer enforces: both must accept the same messages and
 * tools, but for the rules that the schema's descriptions give in words (which role may have what, names met
 * once, local schemas) and for keys that the sanitizer leaves out of tool calls. */
#include "support/fuzz.h"

#include "base/limits.h"
#include "schemas/model_input.h"
#include "schemas/schema.h"

#include <string.h>

/* The members of `object` that are named, as a new object; what is no object stays. */
static json_t *only(json_t *object, const char *const *names)
{
    if (!json_is_object(object))
        return json_incref(object);
    json_t *out = json_object();
    for (size_t i = 0; names[i]; i++)
        if (json_object_get(object, names[i]))
            json_object_set(out, names[i], json_object_get(object, names[i]));
    return out;
}

static json_t *plain_call(json_t *call)
{
    static const char *const of_call[] = {"id", "type", "function", NULL};
    static const char *const of_function[] = {"name", "arguments", NULL};
    json_t *out = only(call, of_call);

    if (json_is_object(json_object_get(out, "function")))
        json_object_set_new(out, "function", only(json_object_get(out, "function"), of_function));
    return out;
}

/* The message as the schema sees it when the keys are gone that the sanitizer would leave out. */
static json_t *plain_message(json_t *message)
{
    json_t *out = json_copy(message), *calls = json_object_get(message, "tool_calls"), *call;
    size_t i;

    if (!json_is_array(calls))
        return out;
    json_t *list = json_array();
    json_array_foreach(calls, i, call)
        json_array_append_new(list, plain_call(call));
    json_object_set_new(out, "tool_calls", list);
    return out;
}

static bool schema_accepts(const char *definition, json_t *value)
{
    CLEANUP(json_faults_free) struct json_faults faults = {0};

    bool accepted = schema_check(definition, value, "", &faults) == 0;
    fuzz_check_faults(value, &faults);
    return accepted;
}

static bool role_rules_hold(const json_t *message)
{
    const char *role = json_str(message, "role");
    bool is_tool = role && strcmp(role, "tool") == 0, is_assistant = role && strcmp(role, "assistant") == 0;

    return is_tool == (json_object_get(message, "tool_call_id") != NULL) &&
           (is_assistant || !json_object_get(message, "tool_calls"));
}

static void compare_message(json_t *message, const char *text)
{
    CLEANUP(json_free) json_t *list = json_pack("[O]", message);
    CLEANUP(json_free) json_t *rebuilt = NULL;
    CLEANUP(json_free) json_t *plain = plain_message(message);
    CLEANUP(json_faults_free) struct json_faults faults = {0};

    bool sanitizer = model_messages(list, "", &rebuilt, &faults) == 0;
    bool schema = schema_accepts("common#message", plain) && role_rules_hold(message);
    PROPERTY(sanitizer == schema, "a message: sanitizer %d, schema %d: %s", sanitizer, schema, text);
    if (sanitizer)
        PROPERTY(json_equal(json_array_get(rebuilt, 0), plain), "rebuilt as something else: %s", text);
}

static void compare_calls(json_t *calls, const char *text)
{
    CLEANUP(json_free) json_t *rebuilt = NULL;
    CLEANUP(json_faults_free) struct json_faults faults = {0};
    bool schema = json_is_array(calls) && json_array_size(calls) <= LIMIT_TOOL_CALLS;
    json_t *call;
    size_t i;

    json_array_foreach(calls, i, call) {
        CLEANUP(json_free) json_t *plain = plain_call(call);
        schema = schema && schema_accepts("common#tool_call", plain);
    }
    bool sanitizer = model_tool_calls(calls, "", &rebuilt, &faults) == 0;
    PROPERTY(sanitizer == schema, "calls: sanitizer %d, schema %d: %s", sanitizer, schema, text);
}

static void compare_tool(json_t *tool, const char *text)
{
    CLEANUP(json_free) json_t *list = json_pack("[O]", tool);
    CLEANUP(json_free) json_t *rebuilt = NULL;
    CLEANUP(json_faults_free) struct json_faults faults = {0}, foreign = {0};
    json_t *parameters = json_object_get(json_object_get(tool, "function"), "parameters");

    bool sanitizer = model_tools(list, "", &rebuilt, &faults) == 0;
    bool schema = schema_accepts("common#caller_tool", tool);
    if (json_is_object(parameters) && json_schema_local(parameters, "", &foreign) < 0)
        schema = false;
    fuzz_check_faults(parameters, &foreign);
    json_faults_free(&foreign);
    PROPERTY(sanitizer == schema, "a tool: sanitizer %d, schema %d: %s", sanitizer, schema, text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CLEANUP(free_str) char *text = fuzz_text(data, size);
    CLEANUP(json_free) json_t *value = fuzz_json(text, size);
    json_t *item;
    size_t i;

    if (!value)
        return 0;
    compare_message(value, text);
    compare_calls(value, text);
    compare_tool(value, text);
    json_array_foreach(value, i, item) {
        compare_message(item, text);
        compare_tool(item, text);
    }
    return 0;
}
