/* schemas/model_input.h: the one sanitizer of model traffic (mission.md 5), for REST callers, the broker and
 * the worker.
 *
 * Each function checks a value and rebuilds it with the allowed fields only. All faults are reported at once:
 * a JSON pointer (RFC 6901; `pointer` is what the value's own pointer starts with, "" for a whole document)
 * and a sentence with the rule. 0, or -1 exactly when faults->total has grown (out of memory is a fault too);
 * outputs are written only on 0 and belong to the caller. What is rebuilt shares strings and `parameters`
 * with the input: treat both as unchangeable. Pure and thread-safe for values that threads do not share; the
 * depth of recursion is that of the value, which json_parse bounds (LIMIT_JSON_DEPTH). */
#pragma once

#include "base/json.h"

#include <stdbool.h>

/* Members `messages` (required) and `tools` of an object; its other members are not looked at. *ret_tools is
 * NULL when there is no `tools`. */
MUST_USE int model_input(const json_t *body, const char *pointer, json_t **ret_messages, json_t **ret_tools,
                         struct json_faults *faults);
/* At most LIMIT_MESSAGES of {role, content, tool_calls?, tool_call_id?}; any other key is a fault. */
MUST_USE int model_messages(const json_t *value, const char *pointer, json_t **ret,
                            struct json_faults *faults);
/* At most LIMIT_TOOLS of {type: "function", function: {name, description, parameters}}, names unique; other
 * keys are left out. */
MUST_USE int model_tools(const json_t *value, const char *pointer, json_t **ret, struct json_faults *faults);
/* At most LIMIT_TOOL_CALLS of {id, type: "function", function: {name, arguments}}; other keys are left out.
 */
MUST_USE int model_tool_calls(const json_t *value, const char *pointer, json_t **ret,
                              struct json_faults *faults);
/* True or false, or an object that refers to nothing outside itself at any schema position. */
MUST_USE int json_schema_local(const json_t *schema, const char *pointer, struct json_faults *faults);

/* ^[a-z][a-z0-9_]{0,63}$ (mission.md 1) */
bool model_function_name(const char *name);
/* 1 to LIMIT_CALL_ID_CHARS code points; `id` is valid UTF-8. */
bool model_call_id(const char *id);
