/* What a model may ask for within a turn, well-formed or not. */
#include "base/limits.h"
#include "rig.h"

#include <criterion/criterion.h>
#include <string.h>

#define ONE_TOOL "{\"tools\":[{\"name\":\"t\",\"description\":\"d\",\"parameters\":{}}]}"
#define ONE_MCP                                                                                              \
    "{\"mcp\":[{\"server\":\"t\",\"tools\":[{\"name\":\"t\",\"description\":\"d\",\"parameters\":{}}]}]}"

Test(agent, memory_calls_in_the_middle_are_answered_and_kept_by_speaker)
{
    struct rig r;
    rig_start(
        &r,
        STEPS({.body = call("[[\"a\",\"memory_set\",\"{\\\"scope\\\":\\\"speaker\\\",\\\"key\\\":\\\"tea\\\","
                            "\\\"value\\\":\\\"green\\\"}\"],[\"b\",\"memory_get\",\"{\\\"scope\\\":"
                            "\\\"speaker\\\",\\\"key\\\":\\\"tea\\\"}\"]]")},
              {.body = say("noted")}, {.body = say("bob")}, {.body = say("ann")}));
    expect_text(rig_run_turn(&r, "{\"speaker\":{\"id\":\"../../etc\",\"name\":\"Ann\"}}", NULL), "noted");
    cr_assert_eq(message_count(&r, 1), 5);
    cr_assert_str_eq(json_str(rig_message(&r, 1, 1), "tool_call_id"), "a");
    cr_assert_str_eq(json_str(rig_message(&r, 1, 0), "tool_call_id"), "b");
    cr_assert_str_eq(json_str(rig_message(&r, 1, 0), "content"), "green");
    cr_assert(strstr(system_of(&r, 1), "scope speaker): {\"tea\":\"green\"}"));
    expect_text(rig_run_turn(&r, "{\"speaker\":{\"id\":\"bob\",\"name\":\"Bob\"}}", NULL), "bob");
    cr_assert_null(strstr(system_of(&r, 2), "green"), "another speaker's memory is not shown");
    expect_text(rig_run_turn(&r, "{\"speaker\":{\"id\":\"../../etc\",\"name\":\"A\"},\"reset\":true}", NULL),
                "ann");
    cr_assert(strstr(system_of(&r, 3), "{\"tea\":\"green\"}"), "a reset keeps the memory");
    rig_done(&r);
}

Test(agent, invalid_names_and_repeated_ids_are_repaired)
{
    struct rig r;
    rig_start(&r, STEPS({.body = call(
                             "[[\"x\",\"rm -rf\",\"{}\"],[\"x\",\"host_none\",\"{}\"],[\"\",\"memory_get\","
                             "\"{\\\"scope\\\":\\\"channel\\\"}\"],[7,\"memory_get\",\"[1]\"]]")},
                        {.body = call("[[\"x\",\"memory_get\",\"{\\\"scope\\\":\\\"channel\\\"}\"]]")},
                        {.body = say("done")}));
    expect_text(rig_run_turn(&r, NULL, NULL), "done");
    const json_t *group = json_object_get(rig_message(&r, 1, 4), "tool_calls");
    cr_assert_eq(json_array_size(group), 4);
    const json_t *first = json_object_get(json_array_get(group, 0), "function");
    cr_assert_str_eq(json_str(first, "name"), "invalid_tool");
    cr_assert_str_eq(json_str(first, "arguments"), "{\"name\":\"rm -rf\"}");
    json_t *seen = json_object();
    for (int i = 0; i < 4; i++) {
        const char *id = json_str(json_array_get(group, (size_t)i), "id");
        cr_assert(id && *id && !json_object_get(seen, id));
        json_object_set_new(seen, id, json_true());
        cr_assert_str_eq(json_str(rig_message(&r, 1, 3 - i), "tool_call_id"), id);
    }
    cr_assert(strstr(json_str(rig_message(&r, 1, 3), "content"), "no tool of that name"));
    cr_assert(strstr(json_str(rig_message(&r, 1, 2), "content"), "no tool of that name"));
    cr_assert(strstr(json_str(rig_message(&r, 1, 0), "content"), "not a JSON object"));
    const char *later =
        json_str(json_array_get(json_object_get(rig_message(&r, 2, 1), "tool_calls"), 0), "id");
    cr_assert_null(json_object_get(seen, later), "an id is met once in the whole conversation");
    json_decref(seen);
    rig_done(&r);
}

Test(agent, takes_eight_calls_of_a_response_and_twelve_responses)
{
    struct rig r;
    struct buf many = BUF_INIT(65536);
    struct err err;
    for (int i = 0; i < 11; i++)
        cr_assert_eq(buf_addf(&many, &err, "%s[\"c%d\",\"memory_get\",\"{\\\"scope\\\":\\\"channel\\\"}\"]",
                              i ? "," : "[", i),
                     0);
    cr_assert_eq(buf_adds(&many, "]", &err), 0);
    rig_start(&r, STEPS({.body = call(many.data)}));
    int code;
    json_t *reply = rig_run_turn(&r, NULL, &code);
    cr_assert_eq(code, 1);
    cr_assert_str_eq(json_str(reply, "text"), "The model did not give a usable answer.");
    cr_assert_eq(r.calls, LIMIT_WORKER_MODEL_CALLS);
    cr_assert_eq(message_count(&r, 1), 2 + 9);
    cr_assert_eq(message_count(&r, 11), 2 + 11 * 9);
    json_decref(reply);
    buf_free(&many);
    rig_done(&r);
}

Test(agent, host_and_mcp_tools_go_through_the_broker)
{
    struct rig r;
    rig_start(
        &r,
        STEPS({.body = call("[[\"a\",\"host_clock\",\"{\\\"z\\\":1}\"],[\"b\",\"mcp_1_sum\",\"{}\"]]")},
              {.body = "tick"},
              {.body = "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[{\"type\":\"text\",\"text\":"
                       "\"5\"},{\"type\":\"image\",\"data\":\"x\"}]}}"},
              {.body = say("done")}));
    expect_text(
        rig_run_turn(&r,
                     "{\"tools\":[{\"name\":\"clock\",\"description\":\"d\",\"parameters\":{}}],\"mcp\":["
                     "{\"server\":\"first\",\"tools\":[]},{\"server\":\"calc\",\"tools\":[{\"name\":\"sum\","
                     "\"description\":\"d\",\"parameters\":{}}]}]}",
                     NULL),
        "done");
    cr_assert_eq(r.calls, 4);
    cr_assert_str_eq(r.paths[1], "/tools/clock");
    cr_assert_eq(json_integer_value(json_object_get(r.requests[1], "z")), 1);
    cr_assert_str_eq(r.paths[2], "/mcp/calc");
    json_t *want =
        rig_json("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"sum\","
                 "\"arguments\":{}}}");
    cr_assert(json_equal(r.requests[2], want));
    json_decref(want);
    cr_assert_str_eq(json_str(rig_message(&r, 3, 1), "content"), "tick");
    cr_assert_str_eq(json_str(rig_message(&r, 3, 0), "content"), "5\n[a part that is not text was left out]");
    rig_done(&r);
}

/* One call of a tool that answers with `step`; what the model sees of it. Caller frees. */
static char *tool_answer(const char *turn, const char *name, struct rig_step step)
{
    struct rig r;
    char calls[64];
    snprintf(calls, sizeof calls, "[[\"a\",\"%s\",\"{}\"]]", name);
    rig_start(&r, STEPS({.body = call(calls)}, step, {.body = say("done")}));
    expect_text(rig_run_turn(&r, turn, NULL), "done");
    char *text = strdup(json_str(rig_message(&r, 2, 0), "content"));
    rig_done(&r);
    return text;
}

Test(agent, what_a_tool_answers_is_bounded_and_never_ends_the_turn)
{
    static const struct {
        const char *turn, *name, *body;
        int status;
        const char *seen;
    } cases[] = {
        {ONE_TOOL, "host_t", "{\"error\":{\"code\":\"x\",\"message\":\"try later\"}}", 502,
         "(502): try later"},
        {ONE_TOOL, "host_t", "<html>", 404, "The tool failed (404)."},
        {ONE_TOOL, "host_t", "", 200, ""},
        {ONE_TOOL, "host_t",
         "a\xff"
         "b",
         200,
         "a\xEF\xBF\xBD"
         "b"},
        {ONE_MCP, "mcp_0_t", "nonsense", 200, "did not answer properly"},
        {ONE_MCP, "mcp_0_t", "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}", 200, "did not answer properly"},
        {ONE_MCP, "mcp_0_t", "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":1,\"message\":\"no\"}}", 200,
         "The tool failed: no"},
        {ONE_MCP, "mcp_0_t",
         "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":null,\"result\":{\"content\":[{\"type\":\"text\",\"text\":"
         "\"5\"}]}}",
         200, "5"},
        {ONE_MCP, "mcp_0_t",
         "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"isError\":true,\"content\":[{\"type\":\"text\","
         "\"text\":\"bad\"}]}}",
         200, "The tool reported an error: bad"},
        {ONE_MCP, "mcp_0_t", "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"structuredContent\":{\"a\":1}}}",
         200, "{\"a\":1}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *seen = tool_answer(cases[i].turn, cases[i].name,
                                 (struct rig_step){.body = cases[i].body, .status = cases[i].status});
        cr_assert(strstr(seen, cases[i].seen), "case %zu: %s", i, seen);
        free(seen);
    }
    char *huge = malloc(LIMIT_UPSTREAM_ANSWER);
    memset(huge, 'x', LIMIT_UPSTREAM_ANSWER);
    char *seen =
        tool_answer(ONE_TOOL, "host_t", (struct rig_step){.body = huge, .body_len = LIMIT_UPSTREAM_ANSWER});
    cr_assert_eq(strlen(seen), LIMIT_WORKER_ANSWER);
    cr_assert_str_eq(seen + strlen(seen) - 6, " [cut]");
    free(seen);
    memset(huge, 0xfe, LIMIT_UPSTREAM_ANSWER);
    seen =
        tool_answer(ONE_TOOL, "host_t", (struct rig_step){.body = huge, .body_len = LIMIT_UPSTREAM_ANSWER});
    cr_assert_str_eq(seen + strlen(seen) - 6, " [cut]");
    free(seen);
    free(huge);
    seen = tool_answer(ONE_TOOL, "host_t",
                       (struct rig_step){.raw = "HTTP/1.1 200 X\r\nContent-Length: 1048577\r\n\r\n"});
    cr_assert_str_eq(seen, "The tool could not be reached.");
    free(seen);
}

Test(agent, a_call_of_the_callers_tool_ends_the_turn)
{
    struct rig r;
    const char *turn =
        "{\"caller_tools\":[{\"type\":\"function\",\"function\":{\"name\":\"pick\",\"description\":\"d\","
        "\"parameters\":{\"type\":\"object\"}}}],\"tools\":[{\"name\":\"t\",\"description\":\"d\","
        "\"parameters\":{}}]}";
    rig_start(
        &r, STEPS({.body = call(
                       "[[\"a\",\"pick\",\"{\\\"n\\\":1}\"],[\"b\",\"host_t\",\"{}\"],[\"c\",\"memory_set\","
                       "\"{\\\"scope\\\":\\\"channel\\\",\\\"key\\\":\\\"k\\\",\\\"value\\\":\\\"v\\\"}\"],"
                       "[\"a\",\"pick\",\"oops\"]]")},
                  {.body = say("next")}));
    json_t *reply = rig_run_turn(&r, turn, NULL);
    cr_assert_eq(r.calls, 1, "host tools beside it are not run");
    const json_t *calls = json_object_get(reply, "tool_calls");
    cr_assert_eq(json_array_size(calls), 2);
    json_t *want = rig_json("{\"id\":\"a\",\"type\":\"function\",\"function\":{\"name\":\"pick\","
                            "\"arguments\":\"{\\\"n\\\":1}\"}}");
    cr_assert(json_equal(json_array_get(calls, 0), want));
    cr_assert_str_neq(json_str(json_array_get(calls, 1), "id"), "a");
    cr_assert_str_eq(json_str(json_object_get(json_array_get(calls, 1), "function"), "arguments"), "oops");
    json_decref(want);
    json_decref(reply);
    expect_text(rig_run_turn(&r, NULL, NULL), "next");
    cr_assert(strstr(system_of(&r, 1), "{\"k\":\"v\"}"), "memory calls beside it are run");
    cr_assert_str_eq(json_str(rig_message(&r, 1, 1), "content"), "[called pick]\n[called pick]");
    rig_done(&r);
}

Test(agent, given_messages_are_sent_whole_without_history)
{
    struct rig r;
    const char *turn =
        "{\"text\":null,\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"assistant\","
        "\"content\":\"\",\"tool_calls\":[{\"id\":\"a\",\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"a\",\"content\":\"r1\"},{\"role\":"
        "\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"a\",\"type\":\"function\",\"function\":{"
        "\"name\":\"f\",\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"a\",\"content\":"
        "\"r2\"}]}";
    rig_start(&r, STEPS({.body = say("one")}, {.body = say("two")}, {.body = say("three")}));
    expect_text(rig_run_turn(&r, "{\"text\":\"kept\"}", NULL), "one");
    char *before = rig_file(&r, ".cloister/history.json");
    expect_text(rig_run_turn(&r, turn, NULL), "two");
    char *after = rig_file(&r, ".cloister/history.json");
    cr_assert_str_eq(before, after);
    cr_assert_eq(message_count(&r, 1), 6);
    cr_assert(strstr(system_of(&r, 1), "Be kind."));
    cr_assert_str_eq(json_str(rig_message(&r, 1, 4), "content"), "s");
    cr_assert_str_eq(json_str(rig_message(&r, 1, 2), "tool_call_id"), "a");
    const char *fresh = json_str(rig_message(&r, 1, 0), "tool_call_id");
    cr_assert_str_neq(fresh, "a", "a repeated id is renamed");
    cr_assert_str_eq(json_str(json_array_get(json_object_get(rig_message(&r, 1, 1), "tool_calls"), 0), "id"),
                     fresh);
    expect_text(
        rig_run_turn(
            &r, "{\"text\":null,\"reset\":true,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", NULL),
        "three");
    char *gone = rig_file(&r, ".cloister/history.json");
    cr_assert_null(gone, "a reset is not lost on a turn with messages");
    free(before);
    free(after);
    rig_done(&r);
}

/* A turn with so many messages: the first of `role`, then users that say m1, m2 and so on. Caller frees. */
static char *turn_of_messages(size_t n, const char *role)
{
    json_t *list = json_array(), *turn = json_pack("{s:n, s:o}", "text", "messages", list);
    char content[16];

    for (size_t i = 0; i < n; i++) {
        snprintf(content, sizeof content, "m%zu.", i);
        json_array_append_new(list, json_pack("{s:s, s:s}", "role", i ? "user" : role, "content", content));
    }
    char *text = json_dumps(turn, JSON_COMPACT);
    json_decref(turn);
    return text;
}

/* Request n has all given messages, in at most 128 places, and the last `tail` of them are the turn's own. */
static void expect_whole(const struct rig *r, size_t request, size_t given, size_t tail)
{
    CLEANUP(free_str) char *text = json_dumps(r->requests[request], JSON_COMPACT);
    size_t count = message_count(r, request);
    char content[16];

    cr_assert_leq(count, LIMIT_MESSAGES);
    cr_assert_eq(count, given + 1 + tail < LIMIT_MESSAGES ? given + 1 + tail : LIMIT_MESSAGES);
    for (size_t i = 0; i < given; i++) {
        snprintf(content, sizeof content, "m%zu.", i);
        cr_assert(strstr(text, content), "%s is missing in request %zu of %zu", content, request, given);
    }
    cr_assert_str_eq(json_str(rig_message(r, request, (int)tail), "content"), content, "the newest stays");
    cr_assert(strstr(text, "\"memory_set\""), "memory tools are on");
}

Test(agent, given_messages_leave_room_for_tool_calls)
{
    static const struct {
        size_t n;
        const char *role;
    } cases[] = {{124, "user"},   {125, "user"},   {126, "user"},   {127, "user"},   {128, "user"},
                 {124, "system"}, {125, "system"}, {126, "system"}, {127, "system"}, {128, "system"}};

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rig r;
        char *turn = turn_of_messages(cases[i].n, cases[i].role);
        rig_start(
            &r,
            STEPS({.body = call("[[\"a\",\"memory_set\",\"{\\\"scope\\\":\\\"channel\\\",\\\"key\\\":"
                                "\\\"k\\\",\\\"value\\\":\\\"v\\\"}\"]]")},
                  {.body = call("[[\"b\",\"memory_get\",\"{\\\"scope\\\":\\\"channel\\\"}\"],[\"c\",\"nope\","
                                "\"{}\"]]")},
                  {.body = say("done")}));
        expect_text(rig_run_turn(&r, turn, NULL), "done");
        cr_assert_eq(r.calls, 3);
        expect_whole(&r, 0, cases[i].n, 0);
        expect_whole(&r, 1, cases[i].n, 2);
        expect_whole(&r, 2, cases[i].n, 5);
        cr_assert_str_eq(json_str(rig_message(&r, 1, 0), "content"), "Remembered.");
        cr_assert_str_eq(json_str(rig_message(&r, 2, 3), "content"), "Remembered.",
                         "the first call stays too");
        cr_assert_str_eq(json_str(rig_message(&r, 2, 1), "content"), "Keys: [\"k\"]");
        const char *system = system_of(&r, 2);
        if (strcmp(cases[i].role, "system") == 0 && cases[i].n > 125)
            cr_assert_str_eq(system + strlen(system) - 5, "\n\nm0.",
                             "an instruction of the caller stays one");
        free(turn);
        rig_done(&r);
    }
}

Test(agent, the_most_tool_calls_find_room_beside_the_most_messages)
{
    struct rig r;
    struct buf many = BUF_INIT(65536);
    struct err err;
    char *turn = turn_of_messages(LIMIT_MESSAGES, "system");

    for (int i = 0; i < LIMIT_TOOL_CALLS; i++)
        cr_assert_eq(buf_addf(&many, &err, "%s[\"c%d\",\"memory_get\",\"{\\\"scope\\\":\\\"channel\\\"}\"]",
                              i ? "," : "[", i),
                     0);
    cr_assert_eq(buf_adds(&many, "]", &err), 0);
    rig_start(&r, STEPS({.body = call(many.data)}));
    expect_text(rig_run_turn(&r, turn, NULL), "The model did not give a usable answer.");
    cr_assert_eq(r.calls, LIMIT_WORKER_MODEL_CALLS);
    for (size_t i = 0; i < LIMIT_WORKER_MODEL_CALLS; i++)
        expect_whole(&r, i, LIMIT_MESSAGES, i * (1 + LIMIT_TOOL_CALLS));
    buf_free(&many);
    free(turn);
    rig_done(&r);
}

Test(agent, moved_messages_take_the_answers_to_their_calls_along)
{
    struct rig r;
    json_t *turn =
        rig_json("{\"text\":null,\"messages\":[{\"role\":\"assistant\",\"content\":\"m0.\",\"tool_calls\":[{"
                 "\"id\":\"x\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}},{"
                 "\"id\":\"y\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},{"
                 "\"role\":\"tool\",\"tool_call_id\":\"x\",\"content\":\"m1.\"},{\"role\":\"tool\","
                 "\"tool_call_id\":\"y\",\"content\":\"m2.\"}]}");
    json_t *list = json_object_get(turn, "messages");

    while (json_array_size(list) < LIMIT_MESSAGES - 2)
        json_array_append_new(list, json_pack("{s:s, s:s}", "role", "user", "content", "more"));
    char *text = json_dumps(turn, JSON_COMPACT);
    rig_start(&r, STEPS({.body = call("[[\"a\",\"memory_get\",\"{\\\"scope\\\":\\\"channel\\\"}\"]]")},
                        {.body = say("done")}));
    expect_text(rig_run_turn(&r, text, NULL), "done");
    cr_assert_eq(message_count(&r, 0), LIMIT_MESSAGES - 1);
    cr_assert_eq(message_count(&r, 1), LIMIT_MESSAGES - 1 - 3 + 2, "one place was wanted, three go together");
    cr_assert_str_eq(json_str(rig_message(&r, 1, LIMIT_MESSAGES - 4), "content"), "more");
    for (int i = 0; i < 3; i++)
        cr_assert(strstr(system_of(&r, 1), (const char *[]){"\"m0.\"", "\"m1.\"", "\"m2.\""}[i]));
    free(text);
    json_decref(turn);
    rig_done(&r);
}

Test(agent, the_newest_group_is_never_left_out_the_turn_fails_instead)
{
    struct rig r;
    struct buf turn = BUF_INIT(300000);
    struct err err;
    cr_assert_eq(buf_addf(&turn, &err,
                          "{\"text\":null,\"messages\":[{\"role\":\"user\",\"content\":\"%0*d\"}],",
                          LIMIT_BROKER_BODY - 4000, 0),
                 0);
    cr_assert_eq(buf_adds(&turn, ONE_TOOL + 1, &err), 0);
    char *big = calloc(1, LIMIT_WORKER_ANSWER + 1);
    memset(big, 'x', LIMIT_WORKER_ANSWER);
    rig_start(&r, STEPS({.body = call("[[\"a\",\"host_t\",\"{}\"]]")}, {.body = big}, {.body = say("no")}));
    expect_text(rig_run_turn(&r, turn.data, NULL), "The turn is too large.");
    cr_assert_eq(r.calls, 2);
    rig_done(&r);
    buf_free(&turn);
    free(big);
}

Test(agent, given_messages_that_do_not_fit_are_refused_not_cut)
{
    struct rig r;
    char *big = malloc(261301);
    struct buf turn = BUF_INIT(300000);
    struct err err;
    memset(big, 'x', 261300);
    big[261300] = '\0';
    cr_assert_eq(
        buf_addf(&turn, &err, "{\"text\":null,\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}", big),
        0);
    rig_start(&r, STEPS({.body = say("one")}));
    expect_text(rig_run_turn(&r, turn.data, NULL), "The turn is too large.");
    cr_assert_eq(r.calls, 0);
    buf_free(&turn);
    free(big);
    rig_done(&r);
}

Test(agent, unusable_model_answers_fail_the_turn)
{
    static const char *const bodies[] = {
        "",    "[]", "{", "{\"choices\":[]}", "{\"choices\":[{\"message\":7}]}", "{\"choices\":{\"0\":1}}",
        "null"};
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        struct rig r;
        rig_start(&r, STEPS({.body = bodies[i]}));
        expect_text(rig_run_turn(&r, NULL, NULL), "The model did not give a usable answer.");
        rig_done(&r);
    }
}

Test(agent, strange_parts_of_a_model_answer_do_no_harm)
{
    static const char *const messages[] = {
        "{\"content\":\"ok\",\"tool_calls\":7}",
        "{\"content\":\"ok\",\"tool_calls\":[]}",
        "{\"content\":\"ok\",\"tool_calls\":null}",
    };
    for (size_t i = 0; i < sizeof messages / sizeof messages[0]; i++) {
        struct rig r;
        char body[256];
        snprintf(body, sizeof body, "{\"choices\":[{\"message\":%s}]}", messages[i]);
        rig_start(&r, STEPS({.body = body}));
        expect_text(rig_run_turn(&r, NULL, NULL), "ok");
        rig_done(&r);
    }
    struct rig r;
    rig_start(
        &r,
        STEPS({.body = "{\"choices\":[{\"message\":{\"content\":[1],\"tool_calls\":[7,{},{\"function\":3},"
                       "{\"id\":\"a\",\"function\":{\"name\":1,\"arguments\":{}}}]}}]}"},
              {.body = say("ok")}));
    expect_text(rig_run_turn(&r, NULL, NULL), "ok");
    cr_assert_eq(message_count(&r, 1), 2 + 5);
    rig_done(&r);
}

Test(agent, arguments_over_2_kib_are_used_but_left_out_of_the_context)
{
    struct rig r;
    char big[3001];
    struct buf calls = BUF_INIT(8192);
    struct err err;
    memset(big, 'y', 3000);
    big[3000] = '\0';
    cr_assert_eq(buf_addf(&calls, &err, "[[\"a\",\"host_t\",\"{\\\"v\\\":\\\"%s\\\"}\"]]", big), 0);
    rig_start(&r, STEPS({.body = call(calls.data)}, {.body = "ok"}, {.body = say("done")}));
    expect_text(rig_run_turn(&r, ONE_TOOL, NULL), "done");
    cr_assert_str_eq(json_str(r.requests[1], "v"), big);
    const json_t *shown = json_array_get(json_object_get(rig_message(&r, 2, 1), "tool_calls"), 0);
    cr_assert_str_eq(json_str(json_object_get(shown, "function"), "arguments"),
                     "{\"left_out\":\"3008 bytes of arguments\"}");
    buf_free(&calls);
    rig_done(&r);
}
