/* The request's budget, for many random conversations. */
#include "base/limits.h"
#include "base/utf8.h"
#include "deploy/worker/context.h"
#include "deploy/worker/history.h"
#include "deploy/worker/text.h"
#include "rig.h"

#include <criterion/criterion.h>
#include <string.h>

/* xorshift: the same conversations at every run. */
static unsigned next(unsigned *seed, unsigned below)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 17;
    *seed ^= *seed << 5;
    return *seed % below;
}

/* A random text of at most `most` pieces, some of which grow in JSON. Caller frees. */
static char *random_text(unsigned *seed, unsigned most)
{
    static const char *const pieces[] = {"a",     "\"", "\n", "\x01", "\xC3\xBC", "\xF0\x9F\x90\x9D",
                                         "word ", "\\"};
    struct buf b = BUF_INIT(1 << 20);
    struct err err;
    unsigned n = next(seed, most + 1);
    cr_assert_eq(buf_adds(&b, "t", &err), 0);
    for (unsigned i = 0; i < n; i++)
        cr_assert_eq(buf_adds(&b, pieces[next(seed, 8)], &err), 0);
    return buf_steal(&b);
}

/* A group as the agent adds it: calls with ids "gN_i" and their answers. */
static json_t *random_group(unsigned *seed, unsigned n)
{
    json_t *calls = json_array(), *group = json_array();
    unsigned count = 1 + next(seed, LIMIT_TOOL_CALLS);
    char id[32];
    struct err err;

    json_array_append_new(
        group, json_pack("{s:s, s:s, s:o}", "role", "assistant", "content", "", "tool_calls", calls));
    for (unsigned i = 0; i < count; i++) {
        char *text = random_text(seed, 8000), *cut;
        cr_assert_eq(text_cut(text, LIMIT_WORKER_ANSWER, &cut, &err), 0);
        snprintf(id, sizeof id, "g%u_%u", n, i);
        json_array_append_new(calls, json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", id, "type", "function",
                                               "function", "name", "f", "arguments", "{}"));
        json_array_append_new(
            group, json_pack("{s:s, s:s, s:s}", "role", "tool", "content", cut, "tool_call_id", id));
        free(text);
        free(cut);
    }
    return group;
}

/* Every call is answered, in order, and nothing else is. */
static void expect_whole_groups(const json_t *messages)
{
    const json_t *message, *calls = NULL;
    size_t i, answered = 0;
    json_array_foreach(messages, i, message) {
        const char *id = json_str(message, "tool_call_id");
        if (id) {
            cr_assert_str_eq(json_str(json_array_get(calls, answered++), "id"), id);
            continue;
        }
        cr_assert_eq(answered, json_array_size(calls));
        calls = json_object_get(message, "tool_calls");
        answered = 0;
    }
    cr_assert_eq(answered, json_array_size(calls));
}

static void one_conversation(unsigned seed)
{
    struct rig r = {.work = "/workspace"};
    struct turn turn = {0};
    struct tools tools = {0};
    struct memory memory = {.root = rig_json("{\"version\":1,\"channel\":{},\"speakers\":{}}"),
                            .speaker = "u1"};
    struct context context;
    struct err err;
    char *line = rig_turn(&r, NULL), *text = random_text(&seed, 40000), *message;

    cr_assert_eq(turn_parse(line, strlen(line), &turn, &err), 0);
    cr_assert_eq(tools_build(&turn, &tools, &err), 0);
    json_t *history = json_array();
    for (unsigned n = next(&seed, 11); n > 0; n--) {
        char *u = random_text(&seed, 9000), *a = random_text(&seed, 9000);
        cr_assert_eq(history_add(history, "u1", "Ann", u, a, &err), 0);
        free(u);
        free(a);
    }
    cr_assert_eq(text_cut(text, LIMIT_WORKER_MESSAGE, &message, &err), 0);
    cr_assert_eq(context_new(&turn, &memory, &tools, history,
                             json_pack("[{s:s, s:s}]", "role", "user", "content", message), &context, &err),
                 0);
    for (unsigned n = 0; n < 11; n++) {
        char *request;
        cr_assert_eq(context_request(&context, &request, &err), 0, "%s", err.text);
        cr_assert_lt(strlen(request), LIMIT_MESSAGES_BYTES);
        json_t *parsed = rig_json(request);
        const json_t *messages = json_object_get(parsed, "messages");
        cr_assert_leq(json_array_size(messages), LIMIT_MESSAGES);
        cr_assert_str_eq(json_str(json_array_get(messages, 0), "role"), "system");
        expect_whole_groups(messages);
        size_t i, current = 0;
        const json_t *one;
        json_array_foreach(messages, i, one)
            current += strcmp(json_str(one, "content"), message) == 0;
        cr_assert_geq(current, 1, "the current message stays");
        if (json_array_size(context.history) > 0)
            cr_assert_eq(json_array_size(context.groups), n, "history goes before groups");
        if (n > 0) {
            char newest[32];
            snprintf(newest, sizeof newest, "\"g%u_0\"", n - 1);
            cr_assert(strstr(request, newest), "the newest group stays");
        }
        const char *system = json_str(json_array_get(messages, 0), "content");
        bool all = json_array_size(context.history) == json_array_size(history) &&
                   json_array_size(context.groups) == n;
        cr_assert_eq(strstr(system, "were left out") == NULL, all);
        json_decref(parsed);
        free(request);
        cr_assert_eq(context_add_group(&context, random_group(&seed, n), &err), 0);
    }
    context_free(&context);
    json_decref(history);
    memory_free(&memory);
    tools_free(&tools);
    turn_free(&turn);
    free(message);
    free(line);
    free(text);
}

Test(context, a_request_fits_and_its_groups_are_whole, .timeout = 120)
{
    for (unsigned seed = 1; seed <= 40; seed++)
        one_conversation(seed * 2654435761u);
}
