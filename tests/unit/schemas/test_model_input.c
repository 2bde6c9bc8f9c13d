#include "base/limits.h"
#include "schemas/model_input.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static json_t *parse(const char *text)
{
    json_t *value = NULL;
    struct err err;

    if (json_parse(text, strlen(text), &value, &err) < 0)
        cr_assert_fail("test data: %s: %s", err.text, text);
    return value;
}

static bool has_fault(const struct json_faults *faults, const char *pointer)
{
    for (size_t i = 0; i < json_array_size(faults->list); i++)
        if (strcmp(json_str(json_array_get(faults->list, i), "pointer"), pointer) == 0)
            return true;
    return false;
}

/* The body passes and is rebuilt as `expected` ({"messages": …, "tools": … or null}). */
static void good(const char *body, const char *expected)
{
    struct json_faults faults = {0};
    json_t *in = parse(body), *want = parse(expected), *messages = NULL, *tools = NULL;

    int rc = model_input(in, "", &messages, &tools, &faults);
    if (rc != 0)
        cr_assert_fail("refused: %s: %s", body, json_dumps(faults.list, 0));
    json_t *got = json_pack("{s:o, s:o?}", "messages", messages, "tools", tools);
    json_t *both = json_pack("{s:O, s:O?}", "messages", json_object_get(want, "messages"), "tools",
                             json_object_get(want, "tools"));
    cr_assert(json_equal(got, both), "%s", json_dumps(got, 0));
    json_decref(got);
    json_decref(both);
    json_decref(in);
    json_decref(want);
    json_faults_free(&faults);
}

/* The body is refused with exactly one fault, at `pointer`, whose sentence holds `rule`. */
static void bad(const char *body, const char *pointer, const char *rule)
{
    struct json_faults faults = {0};
    json_t *in = parse(body), *messages = NULL, *tools = NULL;

    cr_assert(model_input(in, "", &messages, &tools, &faults) == -1, "passed: %s", body);
    cr_assert(faults.total == 1 && has_fault(&faults, pointer), "%s: %s", body, json_dumps(faults.list, 0));
    cr_assert(strstr(json_str(json_array_get(faults.list, 0), "detail"), rule), "%s: %s", body,
              json_dumps(faults.list, 0));
    cr_assert(messages == NULL && tools == NULL);
    json_decref(in);
    json_faults_free(&faults);
}

#define MESSAGES(list) "{\"messages\":" list "}"
#define CALL           "{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}"
#define CALLING(call)  MESSAGES("[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[" call "]}]")
#define TOOLS(list)    "{\"messages\":[],\"tools\":" list "}"
#define TOOL(name)                                                                                           \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"description\":\"d\",\"parameters\":{}}}"

Test(model_input, every_role_passes)
{
    const char *body =
        MESSAGES("[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"\"},"
                 "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[" CALL "]},"
                 "{\"role\":\"tool\",\"content\":\"r\",\"tool_call_id\":\"c1\"}]");
    good(body, body);
    good(MESSAGES("[]"), MESSAGES("[]"));
}

Test(model_input, top_level_keys_are_ignored)
{
    good("{\"model\":\"x\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"stream\":"
         "true}",
         MESSAGES("[{\"role\":\"user\",\"content\":\"a\"}]"));
}

Test(model_input, body_and_messages_have_their_type)
{
    bad("[]", "", "object");
    bad("\"x\"", "", "object");
    bad("{}", "/messages", "array");
    bad("{\"messages\":{}}", "/messages", "array");
    bad("{\"messages\":null}", "/messages", "array");
    bad(MESSAGES("[1]"), "/messages/0", "object");
}

Test(model_input, message_rules)
{
    bad(MESSAGES("[{\"content\":\"a\"}]"), "/messages/0/role", "system, user");
    bad(MESSAGES("[{\"role\":\"developer\",\"content\":\"a\"}]"), "/messages/0/role", "system, user");
    bad(MESSAGES("[{\"role\":7,\"content\":\"a\"}]"), "/messages/0/role", "system, user");
    bad(MESSAGES("[{\"role\":\"user\"}]"), "/messages/0/content", "string");
    bad(MESSAGES("[{\"role\":\"assistant\",\"content\":null}]"), "/messages/0/content", "string");
    bad(MESSAGES("[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"http://h/"
                 "\"}}]}]"),
        "/messages/0/content", "images");
    bad(MESSAGES("[{\"role\":\"user\",\"content\":\"a\",\"name\":\"n\"}]"), "/messages/0/name",
        "not allowed");
    bad(MESSAGES("[{\"role\":\"user\",\"content\":\"a\",\"file/x~\":\"n\"}]"), "/messages/0/file~1x~0",
        "not allowed");
    bad(MESSAGES("[{\"role\":\"user\",\"content\":\"a\",\"audio\":{}}]"), "/messages/0/audio", "not allowed");
}

Test(model_input, tool_calls_only_on_assistant)
{
    bad(MESSAGES("[{\"role\":\"user\",\"content\":\"a\",\"tool_calls\":[]}]"), "/messages/0/tool_calls",
        "assistant");
    bad(MESSAGES("[{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":{}}]"), "/messages/0/tool_calls",
        "array");
    good(MESSAGES("[{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":[]}]"),
         MESSAGES("[{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":[]}]"));
}

Test(model_input, tool_call_id_exactly_on_tool)
{
    bad(MESSAGES("[{\"role\":\"tool\",\"content\":\"a\"}]"), "/messages/0/tool_call_id", "1 to 128");
    bad(MESSAGES("[{\"role\":\"tool\",\"content\":\"a\",\"tool_call_id\":\"\"}]"), "/messages/0/tool_call_id",
        "1 to 128");
    bad(MESSAGES("[{\"role\":\"tool\",\"content\":\"a\",\"tool_call_id\":3}]"), "/messages/0/tool_call_id",
        "1 to 128");
    bad(MESSAGES("[{\"role\":\"user\",\"content\":\"a\",\"tool_call_id\":\"c\"}]"),
        "/messages/0/tool_call_id", "role is tool");
}

Test(model_input, tool_call_rules)
{
    bad(CALLING("1"), "/messages/0/tool_calls/0", "object");
    bad(CALLING("{\"id\":\"c\",\"type\":\"custom\",\"function\":{\"name\":\"f\",\"arguments\":\"\"}}"),
        "/messages/0/tool_calls/0/type", "function");
    bad(CALLING("{\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":\"\"}}"),
        "/messages/0/tool_calls/0/type", "function");
    bad(CALLING("{\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"\"}}"),
        "/messages/0/tool_calls/0/id", "1 to 128");
    bad(CALLING("{\"id\":\"c\",\"type\":\"function\"}"), "/messages/0/tool_calls/0/function", "object");
    bad(CALLING("{\"id\":\"c\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{}}}"),
        "/messages/0/tool_calls/0/function/arguments", "string");
    bad(CALLING("{\"id\":\"c\",\"type\":\"function\",\"function\":{\"name\":\"f\"}}"),
        "/messages/0/tool_calls/0/function/arguments", "string");
    bad(CALLING("{\"id\":\"c\",\"type\":\"function\",\"function\":{\"name\":\"F\",\"arguments\":\"\"}}"),
        "/messages/0/tool_calls/0/function/name", "lower-case");
}

Test(model_input, calls_are_rebuilt_with_only_their_fields)
{
    good(CALLING("{\"id\":\"c1\",\"index\":0,\"type\":\"function\",\"function\":{\"name\":\"f\","
                 "\"arguments\":\"{}\","
                 "\"strict\":true}}"),
         CALLING(CALL));
}

Test(model_input, tool_rules)
{
    bad(TOOLS("{}"), "/tools", "array");
    bad(TOOLS("null"), "/tools", "array");
    bad(TOOLS("[null]"), "/tools/0", "object");
    bad(TOOLS("[{\"type\":\"web_search\",\"function\":{\"name\":\"a\",\"description\":\"d\",\"parameters\":{}"
              "}}]"),
        "/tools/0/type", "function");
    bad(TOOLS("[{\"type\":\"function\"}]"), "/tools/0/function", "object");
    bad(TOOLS("[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"parameters\":{}}}]"),
        "/tools/0/function/description", "string");
    bad(TOOLS("[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"description\":\"d\"}}]"),
        "/tools/0/function/parameters", "object");
    bad(TOOLS("[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"description\":\"d\",\"parameters\":"
              "true}}]"),
        "/tools/0/function/parameters", "object");
    bad(TOOLS("[" TOOL("1a") "]"), "/tools/0/function/name", "lower-case");
    bad(TOOLS("[" TOOL("a") "," TOOL("b") "," TOOL("a") "]"), "/tools/2/function/name", "unique");
    good(TOOLS("[]"), TOOLS("[]"));
    good(TOOLS("[{\"type\":\"function\",\"cache\":1,\"function\":{\"name\":\"a\",\"description\":\"d\","
               "\"strict\":true,"
               "\"parameters\":{}}}]"),
         TOOLS("[" TOOL("a") "]"));
}

/* n copies of `item` (with %zu for its number, when given) as an array inside before…after. */
static char *repeat(const char *before, const char *item, size_t n, const char *after)
{
    struct buf b = BUF_INIT(4 * 1024 * 1024);
    struct err err;
    char one[256];

    cr_assert(buf_adds(&b, before, &err) == 0);
    for (size_t i = 0; i < n; i++) {
        const char *mark = strchr(item, '@');
        snprintf(one, sizeof one, "%s%.*s%zu%s", i ? "," : "", mark ? (int)(mark - item) : 0, item, i,
                 mark ? mark + 1 : "");
        cr_assert(buf_adds(&b, one, &err) == 0);
    }
    cr_assert(buf_adds(&b, after, &err) == 0);
    return buf_steal(&b);
}

Test(model_input, counts_are_bounded)
{
    static const struct {
        const char *before, *item, *after, *pointer;
        size_t most;
    } cases[] = {
        {"{\"messages\":[", "{\"role\":\"user\",\"content\":\"@\"}", "]}", "/messages", LIMIT_MESSAGES},
        {"{\"messages\":[],\"tools\":[",
         "{\"type\":\"function\",\"function\":{\"name\":\"a@\",\"description\":\"\",\"parameters\":{}}}",
         "]}", "/tools", LIMIT_TOOLS},
        {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[",
         "{\"id\":\"@\",\"type\":\"function\",\"function\":{\"name\":\"a\",\"arguments\":\"\"}}", "]}]}",
         "/messages/0/tool_calls", LIMIT_TOOL_CALLS},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *fits = repeat(cases[i].before, cases[i].item, cases[i].most, cases[i].after);
        char *over = repeat(cases[i].before, cases[i].item, cases[i].most + 1, cases[i].after);
        good(fits, fits);
        bad(over, cases[i].pointer, "at most");
        free(fits);
        free(over);
    }
}

Test(model_input, names_and_ids)
{
    char long_name[70], id[LIMIT_CALL_ID_CHARS * 2 + 3] = "";

    memset(long_name, 'a', sizeof long_name);
    long_name[64] = '\0';
    cr_assert(model_function_name(long_name));
    long_name[64] = 'a';
    long_name[65] = '\0';
    cr_assert(!model_function_name(long_name));
    cr_assert(model_function_name("a_1"));
    static const char *const wrong[] = {"", "_a", "1a", "A", "aB", "a-b", "a b", "a\n", "\xC3\xA4"};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        cr_assert(!model_function_name(wrong[i]), "%s", wrong[i]);

    for (size_t i = 0; i < LIMIT_CALL_ID_CHARS; i++)
        strcat(id, "\xC3\xA4"); /* counted as code points, not bytes */
    cr_assert(model_call_id(id));
    strcat(id, "x");
    cr_assert(!model_call_id(id));
    cr_assert(!model_call_id(""));
}

Test(model_input, all_faults_at_once)
{
    struct json_faults faults = {0};
    json_t *messages = NULL, *tools = NULL;
    json_t *in = parse("{\"messages\":[{\"role\":\"x\",\"content\":1,\"k\":2},"
                       "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{},7]}],"
                       "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"description\":\"\","
                       "\"parameters\":{\"$id\":\"x\",\"items\":3}}}]}");
    static const char *const expected[] = {
        "/turn/messages/0/role",
        "/turn/messages/0/content",
        "/turn/messages/0/k",
        "/turn/messages/1/tool_calls/0/type",
        "/turn/messages/1/tool_calls/0/function",
        "/turn/messages/1/tool_calls/0/id",
        "/turn/messages/1/tool_calls/1",
        "/turn/tools/0/function/parameters/$id",
        "/turn/tools/0/function/parameters/items",
    };

    cr_assert(model_input(in, "/turn", &messages, &tools, &faults) == -1);
    cr_assert(faults.total == ARRAY_LEN(expected), "%s", json_dumps(faults.list, JSON_INDENT(1)));
    for (size_t i = 0; i < ARRAY_LEN(expected); i++)
        cr_assert(has_fault(&faults, expected[i]), "%s is missing", expected[i]);
    json_decref(in);
    json_faults_free(&faults);
}

/* --- schema positions ----------------------------------------------------------------------------------- */

static size_t schema_faults(const char *text, const char *pointer)
{
    struct json_faults faults = {0};
    json_t *schema = parse(text);
    int rc = json_schema_local(schema, "/p", &faults);
    size_t total = faults.total;

    cr_assert((rc == 0) == (total == 0));
    if (pointer && !has_fault(&faults, pointer))
        cr_assert_fail("%s: no fault at %s: %s", text, pointer, json_dumps(faults.list, 0));
    json_faults_free(&faults);
    json_decref(schema);
    return total;
}

/* Puts `inner` for the @ of `outer`. */
static const char *fill(char *out, size_t size, const char *outer, const char *inner)
{
    const char *mark = strchr(outer, '@');

    snprintf(out, size, "%.*s%s%s", (int)(mark - outer), outer, inner, mark + 1);
    return out;
}

Test(json_schema_local, references_stay_inside)
{
    static const char *const words[] = {"$ref", "$dynamicRef", "$recursiveRef", "$schema", "$id"};
    char text[256];

    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        char pointer[64];
        snprintf(pointer, sizeof pointer, "/p/%s", words[i]);
        snprintf(text, sizeof text, "{\"%s\":\"#/$defs/a\"}", words[i]);
        cr_assert(schema_faults(text, NULL) == 0, "%s", text);
        static const char *const wrong[] = {
            "\"http://h/s.json\"", "\"file:///etc/passwd\"", "\"\"", "\" #\"", "\"a#\"", "1", "null", "{}"};
        for (size_t k = 0; k < ARRAY_LEN(wrong); k++) {
            snprintf(text, sizeof text, "{\"%s\":%s}", words[i], wrong[k]);
            cr_assert(schema_faults(text, pointer) == 1, "%s", text);
        }
    }
}

Test(json_schema_local, vocabulary_keys)
{
    cr_assert(schema_faults("{\"$vocabulary\":{\"#a\":true}}", NULL) == 0);
    cr_assert(schema_faults("{\"$vocabulary\":{\"#a\":true,\"https://v/x\":true}}",
                            "/p/$vocabulary/https:~1~1v~1x") == 1);
    cr_assert(schema_faults("{\"$vocabulary\":[]}", "/p/$vocabulary") == 1);
}

#define EVIL "{\"$ref\":\"http://h/\"}"

Test(json_schema_local, every_position_is_walked)
{
    static const char *const maps[] = {"properties",  "patternProperties", "$defs",
                                       "definitions", "dependentSchemas",  "dependencies"};
    static const char *const singles[] = {"items",
                                          "contains",
                                          "additionalProperties",
                                          "unevaluatedProperties",
                                          "unevaluatedItems",
                                          "propertyNames",
                                          "not",
                                          "if",
                                          "then",
                                          "else",
                                          "contentSchema",
                                          "additionalItems"};
    static const char *const lists[] = {"allOf", "anyOf", "oneOf", "prefixItems"};
    char text[512], pointer[128];

    for (size_t i = 0; i < ARRAY_LEN(maps); i++) {
        snprintf(text, sizeof text, "{\"%s\":{\"a\":{\"$ref\":\"#x\"},\"b\":true,\"$ref\":{}}}", maps[i]);
        cr_assert(schema_faults(text, NULL) == 0, "%s", text);
        snprintf(text, sizeof text, "{\"%s\":{\"a\":true,\"b\":" EVIL "}}", maps[i]);
        snprintf(pointer, sizeof pointer, "/p/%s/b/$ref", maps[i]);
        cr_assert(schema_faults(text, pointer) == 1, "%s", text);
        snprintf(text, sizeof text, "{\"%s\":{\"a\":7}}", maps[i]);
        snprintf(pointer, sizeof pointer, "/p/%s/a", maps[i]);
        cr_assert(schema_faults(text, pointer) == 1, "%s", text);
        snprintf(text, sizeof text, "{\"%s\":[]}", maps[i]);
        snprintf(pointer, sizeof pointer, "/p/%s", maps[i]);
        cr_assert(schema_faults(text, pointer) == 1, "%s", text);
    }
    for (size_t i = 0; i < ARRAY_LEN(singles); i++) {
        snprintf(text, sizeof text, "{\"%s\":{\"type\":\"string\"}}", singles[i]);
        cr_assert(schema_faults(text, NULL) == 0, "%s", text);
        snprintf(text, sizeof text, "{\"%s\":[true,{\"$ref\":\"#\"}]}", singles[i]);
        cr_assert(schema_faults(text, NULL) == 0, "%s", text);
        snprintf(text, sizeof text, "{\"%s\":" EVIL "}", singles[i]);
        snprintf(pointer, sizeof pointer, "/p/%s/$ref", singles[i]);
        cr_assert(schema_faults(text, pointer) == 1, "%s", text);
        snprintf(text, sizeof text, "{\"%s\":[true," EVIL "]}", singles[i]);
        snprintf(pointer, sizeof pointer, "/p/%s/1/$ref", singles[i]);
        cr_assert(schema_faults(text, pointer) == 1, "%s", text);
        snprintf(text, sizeof text, "{\"%s\":\"s\"}", singles[i]);
        snprintf(pointer, sizeof pointer, "/p/%s", singles[i]);
        cr_assert(schema_faults(text, pointer) == 1, "%s", text);
    }
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        snprintf(text, sizeof text, "{\"%s\":[{},false]}", lists[i]);
        cr_assert(schema_faults(text, NULL) == 0, "%s", text);
        snprintf(text, sizeof text, "{\"%s\":[{}," EVIL "]}", lists[i]);
        snprintf(pointer, sizeof pointer, "/p/%s/1/$ref", lists[i]);
        cr_assert(schema_faults(text, pointer) == 1, "%s", text);
        snprintf(text, sizeof text, "{\"%s\":{}}", lists[i]);
        snprintf(pointer, sizeof pointer, "/p/%s", lists[i]);
        cr_assert(schema_faults(text, pointer) == 1, "%s", text);
        snprintf(text, sizeof text, "{\"%s\":[3]}", lists[i]);
        snprintf(pointer, sizeof pointer, "/p/%s/0", lists[i]);
        cr_assert(schema_faults(text, pointer) == 1, "%s", text);
    }
}

Test(json_schema_local, positions_are_found_inside_positions)
{
    static const char *const wraps[] = {"{\"properties\":{\"a\":@}}", "{\"items\":[@]}", "{\"anyOf\":[@]}",
                                        "{\"dependencies\":{\"a\":@}}", "{\"not\":@}"};
    char once[256], twice[512];

    for (size_t i = 0; i < ARRAY_LEN(wraps); i++)
        for (size_t k = 0; k < ARRAY_LEN(wraps); k++) {
            fill(once, sizeof once, wraps[i], EVIL);
            fill(twice, sizeof twice, wraps[k], once);
            cr_assert(schema_faults(twice, NULL) == 1, "%s", twice);
        }
}

Test(json_schema_local, data_is_not_a_schema)
{
    static const char *const fine[] = {
        "{\"enum\":[" EVIL "]}",
        "{\"const\":" EVIL "}",
        "{\"default\":" EVIL ",\"examples\":[" EVIL "]}",
        "{\"properties\":{\"$ref\":{\"type\":\"string\"},\"$id\":true,\"$schema\":{},\"items\":{},\"allOf\":{"
        "}}}",
        "{\"$defs\":{\"$ref\":{},\"$vocabulary\":{}}}",
        "{\"patternProperties\":{\"$dynamicRef\":{}},\"dependentSchemas\":{\"$recursiveRef\":{}}}",
        "{\"dependencies\":{\"a\":[\"b\",\"http://h/\"]}}",
        "{\"required\":[\"$ref\"],\"title\":\"http://h/\",\"x-any\":" EVIL "}",
    };
    for (size_t i = 0; i < ARRAY_LEN(fine); i++)
        cr_assert(schema_faults(fine[i], NULL) == 0, "%s", fine[i]);
    /* …but a property that happens to be called $ref is itself a schema. */
    cr_assert(schema_faults("{\"properties\":{\"$ref\":" EVIL "}}", "/p/properties/$ref/$ref") == 1);
    cr_assert(schema_faults("{\"properties\":{\"enum\":" EVIL "}}", "/p/properties/enum/$ref") == 1);
}

Test(json_schema_local, schema_itself_is_checked)
{
    cr_assert(schema_faults("true", NULL) == 0);
    cr_assert(schema_faults("{}", NULL) == 0);
    cr_assert(schema_faults("[]", "/p") == 1);
    cr_assert(schema_faults("null", "/p") == 1);
}

Test(json_schema_local, a_pointer_too_long_names_the_nearest_ancestor)
{
    char text[3000], name[2000];

    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    snprintf(text, sizeof text, "{\"properties\":{\"%s\":" EVIL "}}", name);
    cr_assert(schema_faults(text, "/p/properties") == 1);
}
