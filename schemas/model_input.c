#include "schemas/model_input.h"

#include "base/limits.h"
#include "base/utf8.h"
#include "schemas/place.h"

#include <string.h>

static int no_memory(struct json_faults *faults)
{
    json_faults_no_memory(faults);
    return -1;
}

/* Puts a value that a constructor of jansson may have failed to make. */
static int put(json_t *object, const char *key, json_t *steal, struct json_faults *faults)
{
    return json_object_set_new(object, key, steal) < 0 ? no_memory(faults) : 0;
}

bool model_function_name(const char *name)
{
    size_t len = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");

    return name[0] >= 'a' && name[0] <= 'z' && len <= 64 && name[len] == '\0';
}

bool model_call_id(const char *id)
{
    size_t chars = utf8_chars(id, strlen(id));

    return chars >= 1 && chars <= LIMIT_CALL_ID_CHARS;
}

/* --- tool calls ----------------------------------------------------------------------------------------- */

/* The function that a call or a tool names, or NULL with a fault. */
static const json_t *function_of(const json_t *value, const struct place *at, struct json_faults *faults)
{
    const char *type = json_str(value, "type");

    if (!json_is_object(value)) {
        place_fault(faults, at, "must be an object");
        return NULL;
    }
    if (!type || strcmp(type, "function") != 0)
        place_fault(faults, &MEMBER(at, "type"), "must be \"function\"");
    const json_t *function = json_object_get(value, "function");
    if (!json_is_object(function)) {
        place_fault(faults, &MEMBER(at, "function"), "must be an object");
        return NULL;
    }
    const char *name = json_str(function, "name");
    const struct place in = MEMBER(at, "function");
    if (!name || !model_function_name(name))
        place_fault(faults, &MEMBER(&in, "name"),
                    "must be a lower-case letter and at most 63 lower-case letters, digits or _");
    return function;
}

static json_t *rebuild_call(const json_t *value, const struct place *at, struct json_faults *faults)
{
    size_t before = faults->total;
    const json_t *function = function_of(value, at, faults);
    const json_t *arguments = json_object_get(function, "arguments");
    const char *id = json_str(value, "id");

    if (json_is_object(value) && (!id || !model_call_id(id)))
        place_fault(faults, &MEMBER(at, "id"), "must be a string of 1 to %d characters", LIMIT_CALL_ID_CHARS);
    if (function && !json_is_string(arguments)) {
        const struct place in = MEMBER(at, "function");
        place_fault(faults, &MEMBER(&in, "arguments"), "must be a string");
    }
    if (faults->total > before)
        return NULL;
    json_t *call =
        json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", json_object_get(value, "id"), "type", "function",
                  "function", "name", json_object_get(function, "name"), "arguments", arguments);
    if (!call)
        no_memory(faults);
    return call;
}

/* What the three lists have in common: an array, a bound, every element rebuilt. */
typedef json_t *rebuild_fn(const json_t *value, const struct place *at, struct json_faults *faults);

static int rebuild_list(const json_t *value, size_t most, rebuild_fn *rebuild, const struct place *at,
                        json_t **ret, struct json_faults *faults)
{
    size_t before = faults->total;
    CLEANUP(json_free) json_t *list = json_array();

    if (!list)
        return no_memory(faults);
    if (!json_is_array(value))
        return place_fault(faults, at, "must be an array");
    if (json_array_size(value) > most)
        place_fault(faults, at, "must have at most %zu elements", most);
    for (size_t i = 0; i < json_array_size(value) && i < most; i++) {
        const struct place here = ELEMENT(at, i);
        json_t *rebuilt = rebuild(json_array_get(value, i), &here, faults);
        if (rebuilt && json_array_append_new(list, rebuilt) < 0)
            no_memory(faults);
    }
    if (faults->total > before)
        return -1;
    *ret = json_steal(&list);
    return 0;
}

int model_tool_calls(const json_t *value, const char *pointer, json_t **ret, struct json_faults *faults)
{
    return rebuild_list(value, LIMIT_TOOL_CALLS, rebuild_call, &TOP(pointer), ret, faults);
}

/* --- messages ------------------------------------------------------------------------------------------- */

static bool one_of(const char *word, const char *const list[], size_t n)
{
    for (size_t i = 0; word && i < n; i++)
        if (strcmp(word, list[i]) == 0)
            return true;
    return false;
}

static void check_message_keys(const json_t *value, const struct place *at, struct json_faults *faults)
{
    static const char *const allowed[] = {"role", "content", "tool_calls", "tool_call_id"};
    const char *key;
    json_t *member;

    json_object_foreach(place_iterable(value), key, member) {
        if (!one_of(key, allowed, ARRAY_LEN(allowed)))
            place_fault(faults, &MEMBER(at, key), "is not allowed in a message");
    }
}

static void add_tool_call_id(const json_t *value, bool is_tool, json_t *message, const struct place *at,
                             struct json_faults *faults)
{
    json_t *id = json_object_get(value, "tool_call_id");
    const struct place here = MEMBER(at, "tool_call_id");

    if (!is_tool) {
        if (id)
            place_fault(faults, &here, "is allowed only where role is tool");
        return;
    }
    if (!json_is_string(id) || !model_call_id(json_string_value(id)))
        place_fault(faults, &here, "must be a string of 1 to %d characters", LIMIT_CALL_ID_CHARS);
    else
        (void)put(message, "tool_call_id", json_incref(id), faults);
}

static void add_tool_calls(const json_t *value, bool is_assistant, json_t *message, const struct place *at,
                           struct json_faults *faults)
{
    const json_t *calls = json_object_get(value, "tool_calls");
    const struct place here = MEMBER(at, "tool_calls");
    json_t *rebuilt = NULL;

    if (!calls)
        return;
    if (!is_assistant)
        place_fault(faults, &here, "is allowed only where role is assistant");
    else if (rebuild_list(calls, LIMIT_TOOL_CALLS, rebuild_call, &here, &rebuilt, faults) == 0)
        (void)put(message, "tool_calls", rebuilt, faults);
}

static json_t *rebuild_message(const json_t *value, const struct place *at, struct json_faults *faults)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    size_t before = faults->total;
    json_t *role = json_object_get(value, "role"), *content = json_object_get(value, "content");
    const char *name = json_string_value(role);
    CLEANUP(json_free) json_t *message = json_object();

    if (!message) {
        no_memory(faults);
        return NULL;
    }
    if (!json_is_object(value)) {
        place_fault(faults, at, "must be an object");
        return NULL;
    }
    check_message_keys(value, at, faults);
    if (!one_of(name, roles, ARRAY_LEN(roles)))
        place_fault(faults, &MEMBER(at, "role"), "must be system, user, assistant or tool");
    else
        (void)put(message, "role", json_incref(role), faults);
    if (!json_is_string(content))
        place_fault(faults, &MEMBER(at, "content"),
                    "must be a string: images, files and audio are not supported");
    else
        (void)put(message, "content", json_incref(content), faults);
    add_tool_calls(value, name && strcmp(name, "assistant") == 0, message, at, faults);
    add_tool_call_id(value, name && strcmp(name, "tool") == 0, message, at, faults);
    return faults->total > before ? NULL : json_steal(&message);
}

int model_messages(const json_t *value, const char *pointer, json_t **ret, struct json_faults *faults)
{
    return rebuild_list(value, LIMIT_MESSAGES, rebuild_message, &TOP(pointer), ret, faults);
}

/* --- tools ---------------------------------------------------------------------------------------------- */

static json_t *rebuild_tool(const json_t *value, const struct place *at, struct json_faults *faults)
{
    size_t before = faults->total;
    const json_t *function = function_of(value, at, faults);
    const struct place in = MEMBER(at, "function");

    if (!function)
        return NULL;
    const json_t *description = json_object_get(function, "description");
    const json_t *parameters = json_object_get(function, "parameters");
    if (!json_is_string(description))
        place_fault(faults, &MEMBER(&in, "description"), "must be a string");
    if (!json_is_object(parameters))
        place_fault(faults, &MEMBER(&in, "parameters"), "must be an object");
    else
        place_check_schema(parameters, &MEMBER(&in, "parameters"), faults);
    if (faults->total > before)
        return NULL;
    json_t *tool =
        json_pack("{s:s, s:{s:O, s:O, s:O}}", "type", "function", "function", "name",
                  json_object_get(function, "name"), "description", description, "parameters", parameters);
    if (!tool)
        no_memory(faults);
    return tool;
}

static void check_unique(const json_t *tools, const struct place *at, struct json_faults *faults)
{
    CLEANUP(json_free) json_t *seen = json_object();

    for (size_t i = 0; i < json_array_size(tools) && i < LIMIT_TOOLS; i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        const char *name = json_str(function, "name");
        const struct place tool = ELEMENT(at, i), in = MEMBER(&tool, "function");
        if (!name)
            continue;
        if (json_object_get(seen, name))
            place_fault(faults, &MEMBER(&in, "name"), "must be unique among the tools");
        else if (json_object_set_new(seen, name, json_true()) < 0)
            no_memory(faults);
    }
}

static int rebuild_tools(const json_t *value, const struct place *at, json_t **ret,
                         struct json_faults *faults)
{
    size_t before = faults->total;
    CLEANUP(json_free) json_t *tools = NULL;

    check_unique(value, at, faults);
    if (rebuild_list(value, LIMIT_TOOLS, rebuild_tool, at, &tools, faults) < 0 || faults->total > before)
        return -1;
    *ret = json_steal(&tools);
    return 0;
}

int model_tools(const json_t *value, const char *pointer, json_t **ret, struct json_faults *faults)
{
    return rebuild_tools(value, &TOP(pointer), ret, faults);
}

int model_input(const json_t *body, const char *pointer, json_t **ret_messages, json_t **ret_tools,
                struct json_faults *faults)
{
    const struct place top = TOP(pointer);
    CLEANUP(json_free) json_t *messages = NULL;
    CLEANUP(json_free) json_t *tools = NULL;

    if (!json_is_object(body))
        return place_fault(faults, &top, "must be an object");
    int bad = rebuild_list(json_object_get(body, "messages"), LIMIT_MESSAGES, rebuild_message,
                           &MEMBER(&top, "messages"), &messages, faults);
    const json_t *given = json_object_get(body, "tools");
    if (given)
        bad |= rebuild_tools(given, &MEMBER(&top, "tools"), &tools, faults);
    if (bad)
        return -1;
    *ret_messages = json_steal(&messages);
    *ret_tools = json_steal(&tools);
    return 0;
}
