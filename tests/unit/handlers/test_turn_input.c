/* messages and tools of POST /v1/turns: the rules beside those of the sanitizer. */
#include "base/limits.h"
#include "handlers/turn_input.h"
#include "schemas/tool_size.h"

#include <criterion/criterion.h>
#include <string.h>

static json_t *messages(size_t n, const char *first_role)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:s, s:s}", "role", i ? "user" : first_role, "content", "x"));
    return list;
}

static void expect(json_t *body, const char *pointer)
{
    struct json_faults faults = {0};
    struct err err;

    cr_assert_eq(turn_input(body, &faults, &err), 0);
    if (!pointer) {
        cr_assert_eq(faults.total, 0, "%s", json_str(json_array_get(faults.list, 0), "detail"));
    } else {
        cr_assert_gt(faults.total, 0);
        cr_assert_str_eq(json_str(json_array_get(faults.list, 0), "pointer"), pointer);
    }
    json_faults_free(&faults);
    json_decref(body);
}

Test(turn_input, one_place_of_the_messages_is_the_prompts)
{
    expect(json_pack("{s:o}", "messages", messages(LIMIT_MESSAGES - 1, "user")), NULL);
    expect(json_pack("{s:o}", "messages", messages(LIMIT_MESSAGES, "system")), NULL);
    expect(json_pack("{s:o}", "messages", messages(LIMIT_MESSAGES, "user")), "/messages");
    expect(json_pack("{s:o}", "messages", messages(LIMIT_MESSAGES + 1, "system")), "/messages");
    expect(json_pack("{s:[]}", "messages"), "/messages");
}

Test(turn_input, messages_have_192_kib)
{
    const size_t frame = strlen("[{\"role\":\"user\",\"content\":\"\"}]");
    char *text = malloc(LIMIT_MESSAGES_BYTES + 1);

    memset(text, 'x', LIMIT_MESSAGES_BYTES);
    text[LIMIT_MESSAGES_BYTES - frame] = '\0';
    expect(json_pack("{s:[{s:s, s:s}]}", "messages", "role", "user", "content", text), NULL);
    text[LIMIT_MESSAGES_BYTES - frame] = 'x';
    text[LIMIT_MESSAGES_BYTES - frame + 1] = '\0';
    expect(json_pack("{s:[{s:s, s:s}]}", "messages", "role", "user", "content", text), "/messages");
    free(text);
}

static json_t *tool(const char *name)
{
    return json_pack("{s:s, s:{s:s, s:s, s:{}}}", "type", "function", "function", "name", name, "description",
                     "d", "parameters");
}

Test(turn_input, names_of_the_workers_own_tools_are_taken)
{
    static const char *const taken[] = {"host_x", "mcp_1_x", "memory_set", "memory_x", "fetch_url"};
    static const char *const free_names[] = {"hosts", "mcp", "memory", "fetch_urls", "weather"};

    for (size_t i = 0; i < ARRAY_LEN(taken); i++)
        expect(json_pack("{s:[o]}", "tools", tool(taken[i])), "/tools/0/function/name");
    for (size_t i = 0; i < ARRAY_LEN(free_names); i++)
        expect(json_pack("{s:[o]}", "tools", tool(free_names[i])), NULL);
}

Test(turn_input, memory_tools_take_three_places)
{
    for (int n = LIMIT_TOOLS - 3; n <= LIMIT_TOOLS - 2; n++) {
        json_t *list = json_array();
        char name[16];
        for (int i = 0; i < n; i++) {
            snprintf(name, sizeof name, "t%d", i);
            json_array_append_new(list, tool(name));
        }
        expect(json_pack("{s:o}", "tools", list), n == LIMIT_TOOLS - 3 ? NULL : "/tools");
    }
}

/* Tools of so many bytes as JSON, of each description 16 counted, which has more. */
static json_t *heavy_tools(size_t size)
{
    json_t *list = json_array();
    char *filler = malloc(size);
    size_t now = 0;
    struct err err;

    for (int i = 0; i < 3; i++) {
        json_t *one = tool((const char *[]){"a", "b", "c"}[i]);
        json_object_set_new(json_object_get(one, "function"), "description",
                            json_string("far more than sixteen bytes of \n description"));
        json_array_append_new(list, one);
    }
    json_t *parameters = json_object_get(json_object_get(json_array_get(list, 0), "function"), "parameters");
    json_object_set_new(parameters, "title", json_string(""));
    cr_assert_eq(tool_size(list, LIMIT_TOOL_DESCRIPTION, &now, &err), 0);
    memset(filler, 'x', size - now);
    filler[size - now] = '\0';
    json_object_set_new(parameters, "title", json_string(filler));
    free(filler);
    return list;
}

Test(turn_input, tools_fit_into_what_the_worker_offers)
{
    const size_t most = LIMIT_WORKER_TOOLS - LIMIT_OWN_TOOLS_BYTES;

    expect(json_pack("{s:o}", "tools", heavy_tools(most)), NULL);
    expect(json_pack("{s:o}", "tools", heavy_tools(most + 1)), "/tools");
    json_t *wordy = tool("t");
    json_object_set_new(json_object_get(wordy, "function"), "description",
                        json_sprintf("%0*d", 2 * LIMIT_WORKER_TOOLS, 0));
    expect(json_pack("{s:[o]}", "tools", wordy), NULL);
}

Test(turn_input, what_passes_is_rebuilt)
{
    struct json_faults faults = {0};
    struct err err;
    json_t *body = json_pack("{s:[{s:s, s:s}], s:[{s:s, s:i, s:{s:s, s:s, s:{}, s:b}}]}", "messages", "role",
                             "user", "content", "x", "tools", "type", "function", "extra", 1, "function",
                             "name", "t", "description", "d", "parameters", "strict", 1);

    cr_assert_eq(turn_input(body, &faults, &err), 0);
    cr_assert_eq(faults.total, 0);
    json_t *first = json_array_get(json_object_get(body, "tools"), 0);
    cr_assert_null(json_object_get(first, "extra"));
    cr_assert_null(json_object_get(json_object_get(first, "function"), "strict"));
    json_decref(body);
}
