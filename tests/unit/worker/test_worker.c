/* Whole turns against a scripted broker. */
#include "base/clock.h"
#include "base/limits.h"
#include "deploy/worker/worker.h"
#include "rig.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#define STEPS(...)                                                                                           \
    (const struct rig_step[]){__VA_ARGS__},                                                                  \
        sizeof((const struct rig_step[]){__VA_ARGS__}) / sizeof(struct rig_step)

static const char *system_of(const struct rig *r, size_t request)
{
    return json_str(json_array_get(json_object_get(r->requests[request], "messages"), 0), "content");
}

static size_t message_count(const struct rig *r, size_t request)
{
    return json_array_size(json_object_get(r->requests[request], "messages"));
}

static void expect_text(json_t *reply, const char *text)
{
    cr_assert_str_eq(json_str(reply, "text"), text);
    json_decref(reply);
}

Test(worker, answers_with_the_models_text_and_asks_as_the_broker_wants)
{
    struct rig r;
    rig_start(&r, STEPS({.body = say("hi there")}));
    expect_text(rig_run_turn(&r, "{\"text\":\"hello \\\"w\\\"\\n\"}", NULL), "hi there");
    cr_assert_eq(r.calls, 1);
    cr_assert_str_eq(r.paths[0], "/model");
    cr_assert(strstr(r.heads[0], "\r\nHost: broker\r\n"));
    cr_assert(strstr(r.heads[0], "\r\nAuthorization: Bearer " DUMMY_KEY "\r\n"));
    cr_assert_eq(message_count(&r, 0), 2);
    cr_assert_str_eq(json_str(rig_message(&r, 0, 0), "role"), "user");
    cr_assert_str_eq(json_str(rig_message(&r, 0, 0), "content"), "hello \"w\"\n");
    const char *system = system_of(&r, 0);
    cr_assert_eq(strncmp(system, "Be kind.\n\n", 10), 0);
    cr_assert(strstr(system, "the time zone here is Europe/Berlin"));
    cr_assert(strstr(system, "{\"id\":\"u1\",\"name\":\"Ann\"}"));
    rig_done(&r);
}

Test(worker, the_second_turn_knows_the_first_and_reset_forgets)
{
    struct rig r;
    rig_start(
        &r, STEPS({.body = say("one")}, {.body = say("two")}, {.body = say("three")}, {.body = say("four")}));
    expect_text(rig_run_turn(&r, "{\"text\":\"first\"}", NULL), "one");
    expect_text(rig_run_turn(&r, "{\"text\":\"second\",\"speaker\":{\"id\":\"u2\",\"name\":\"Bob\"}}", NULL),
                "two");
    cr_assert_eq(message_count(&r, 1), 4);
    cr_assert_str_eq(json_str(rig_message(&r, 1, 2), "content"), "first");
    cr_assert_str_eq(json_str(rig_message(&r, 1, 1), "content"), "one");
    cr_assert(strstr(system_of(&r, 1), "oldest first: [\"Ann\"]"));
    expect_text(rig_run_turn(&r, "{\"text\":\"third\",\"reset\":true}", NULL), "three");
    cr_assert_eq(message_count(&r, 2), 2);
    expect_text(rig_run_turn(&r, "{\"text\":\"fourth\"}", NULL), "four");
    cr_assert_eq(message_count(&r, 3), 4, "only the exchange of the reset turn is known");
    cr_assert_str_eq(json_str(rig_message(&r, 3, 2), "content"), "third");
    rig_done(&r);
}

Test(worker, a_failed_turn_leaves_the_history_and_a_pending_reset_alone)
{
    struct rig r;
    rig_start(&r, STEPS({.body = say("one")}, {.status = 502, .body = "{\"error\":{\"code\":\"upstream\"}}"},
                        {.body = say("three")}));
    expect_text(rig_run_turn(&r, NULL, NULL), "one");
    char *before = rig_file(&r, ".cloister/history.json");
    json_decref(rig_run_turn(&r, "{\"reset\":true,\"text\":\"lost\"}", NULL));
    char *after = rig_file(&r, ".cloister/history.json");
    cr_assert_str_eq(before, after);
    expect_text(rig_run_turn(&r, NULL, NULL), "three");
    cr_assert_eq(message_count(&r, 2), 4);
    free(before);
    free(after);
    rig_done(&r);
}

Test(worker, memory_calls_in_the_middle_are_answered_and_kept_by_speaker)
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

Test(worker, invalid_names_and_repeated_ids_are_repaired)
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

Test(worker, takes_eight_calls_of_a_response_and_twelve_responses)
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

Test(worker, host_and_mcp_tools_go_through_the_broker)
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

#define ONE_TOOL "{\"tools\":[{\"name\":\"t\",\"description\":\"d\",\"parameters\":{}}]}"
#define ONE_MCP                                                                                              \
    "{\"mcp\":[{\"server\":\"t\",\"tools\":[{\"name\":\"t\",\"description\":\"d\",\"parameters\":{}}]}]}"

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

Test(worker, what_a_tool_answers_is_bounded_and_never_ends_the_turn)
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

Test(worker, a_call_of_the_callers_tool_ends_the_turn)
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

Test(worker, given_messages_are_sent_whole_without_history)
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

Test(worker, given_messages_that_do_not_fit_are_refused_not_cut)
{
    struct rig r;
    char *big = malloc(200001);
    struct buf turn = BUF_INIT(300000);
    struct err err;
    memset(big, 'x', 200000);
    big[200000] = '\0';
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

Test(worker, broker_refusals_become_generic_sentences)
{
    static const struct {
        int status;
        const char *text;
    } cases[] = {{410, "The turn was stopped."},
                 {429, "The turn used up its model calls."},
                 {502, "The model did not give a usable answer."},
                 {504, "The model did not give a usable answer."},
                 {413, "The turn is too large."}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct rig r;
        rig_start(&r, STEPS({.status = cases[i].status,
                             .body = "{\"error\":{\"code\":\"secret-code\",\"message\":\"secret-text\"}}"}));
        expect_text(rig_run_turn(&r, NULL, NULL), cases[i].text);
        rig_done(&r);
    }
}

Test(worker, unusable_model_answers_fail_the_turn)
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

Test(worker, strange_parts_of_a_model_answer_do_no_harm)
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

Test(worker, a_long_answer_is_cut_between_characters_and_says_so)
{
    struct rig r;
    char *text = malloc(4 * 120000 + 1);
    for (size_t i = 0; i < 120000; i++)
        memcpy(text + 4 * i, "\xF0\x9F\x90\x9D", 4);
    text[4 * 120000] = '\0';
    rig_start(&r, STEPS({.body = say(text)}));
    json_t *reply = rig_run_turn(&r, NULL, NULL);
    const char *got = json_str(reply, "text");
    cr_assert_eq(strlen(got), 4 * (LIMIT_REPLY_TEXT_CHARS - 6) + 6);
    cr_assert_str_eq(got + strlen(got) - 6, " [cut]");
    json_decref(reply);
    free(text);
    rig_done(&r);
}

Test(worker, a_long_message_is_cut_and_says_so)
{
    struct rig r;
    struct buf turn = BUF_INIT(300000);
    struct err err;
    cr_assert_eq(buf_adds(&turn, "{\"text\":\"", &err), 0);
    for (int i = 0; i < 20000; i++)
        cr_assert_eq(buf_adds(&turn, "\xE2\x82\xAC", &err), 0);
    cr_assert_eq(buf_adds(&turn, "\"}", &err), 0);
    rig_start(&r, STEPS({.body = say("ok")}));
    expect_text(rig_run_turn(&r, turn.data, NULL), "ok");
    const char *sent = json_str(rig_message(&r, 0, 0), "content");
    cr_assert_leq(strlen(sent), LIMIT_WORKER_MESSAGE);
    cr_assert_gt(strlen(sent), LIMIT_WORKER_MESSAGE - 4);
    cr_assert_str_eq(sent + strlen(sent) - 6, " [cut]");
    buf_free(&turn);
    rig_done(&r);
}

Test(worker, arguments_over_2_kib_are_used_but_left_out_of_the_context)
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

Test(worker, hostile_state_files_start_afresh)
{
    static const char *const bad[] = {"",
                                      "{",
                                      "[",
                                      "null",
                                      "[[[[[[",
                                      "{\"version\":1}",
                                      "[1,2]",
                                      "[{\"speaker\":1,\"user\":2,\"assistant\":3}]",
                                      "{\"version\":1,\"channel\":[],\"speakers\":{}}",
                                      "{\"version\":1,\"channel\":{\"k\":1},\"speakers\":{}}",
                                      "{\"version\":2,\"channel\":{},\"speakers\":{}}",
                                      "{\"version\":1,\"channel\":{},\"speakers\":{\"a\":7}}",
                                      "{\"version\":1,\"channel\":{\"\":\"v\"},\"speakers\":{}}",
                                      "\xff\xfe",
                                      "{\"a\":1,\"a\":2}"};
    struct rig r;
    rig_start(&r, STEPS({.body = call(
                             "[[\"a\",\"memory_set\",\"{\\\"scope\\\":\\\"channel\\\",\\\"key\\\":\\\"k\\\","
                             "\\\"value\\\":\\\"v\\\"}\"]]")},
                        {.body = say("ok")}));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        rig_put(&r, ".cloister/memory.json", bad[i]);
        rig_put(&r, ".cloister/history.json", bad[i]);
        rig_script(&r, r.steps, r.step_count);
        expect_text(rig_run_turn(&r, NULL, NULL), "ok");
        cr_assert_eq(message_count(&r, 0), 2, "case %zu", i);
        char *memory = rig_file(&r, ".cloister/memory.json");
        cr_assert_str_eq(memory, "{\"version\":1,\"channel\":{\"k\":\"v\"},\"speakers\":{}}");
        free(memory);
    }
    rig_done(&r);
}

Test(worker, an_invalid_turn_is_refused_before_anything_is_done)
{
    struct rig r;
    char *big = malloc(LIMIT_TURN_LINE + 2);
    memset(big, ' ', LIMIT_TURN_LINE + 1);
    big[LIMIT_TURN_LINE + 1] = '\0';
    rig_start(&r, STEPS({.body = say("no")}));
    expect_text(rig_run(&r, "{\"version\":1}", NULL), "The worker did not accept the turn.");
    expect_text(rig_run(&r, "", NULL), "The worker did not accept the turn.");
    expect_text(rig_run(&r, "{}\n{}", NULL), "The worker did not accept the turn.");
    expect_text(rig_run(&r, big, NULL), "The turn is too large.");
    expect_text(rig_run_turn(&r, "{\"workspace\":\"/nonexistent\"}", NULL), "The worker failed.");
    cr_assert_eq(r.calls, 0);
    free(big);
    rig_done(&r);
}

Test(worker, gives_up_at_its_deadline_when_the_broker_hangs)
{
    struct rig r;
    rig_start(&r, STEPS({.hang = true}));
    int64_t began = clock_mono_ms();
    expect_text(rig_run_turn(&r, "{\"deadline_ms\":300}", NULL), "The turn reached its deadline.");
    int64_t took = clock_mono_ms() - began;
    cr_assert(took >= 300 && took < 3000, "%lld ms", (long long)took);
    rig_done(&r);
}

/* A worker process: its pid, and the ends of its pipes. */
static pid_t spawn(const struct rig *r, int *in, int *out)
{
    int to[2], from[2];
    cr_assert_eq(pipe2(to, O_CLOEXEC), 0);
    cr_assert_eq(pipe2(from, O_CLOEXEC), 0);
    pid_t pid = fork();
    cr_assert_geq(pid, 0);
    if (pid == 0) {
        close(to[1]);
        _exit(worker_main(to[0], from[1], r->sock));
    }
    close(to[0]);
    close(from[1]);
    *in = to[1];
    *out = from[0];
    return pid;
}

static void expect_line(int out, const char *want)
{
    char got[512] = "";
    size_t len = 0;
    struct pollfd p = {.fd = out, .events = POLLIN};
    while (len + 1 < sizeof got && poll(&p, 1, 5000) > 0) {
        ssize_t n = read(out, got + len, sizeof got - 1 - len);
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    cr_assert_str_eq(got, want);
}

static void expect_exit(pid_t pid, int code)
{
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFEXITED(status), "status %d", status);
    cr_assert_eq(WEXITSTATUS(status), code);
}

Test(worker, sigterm_aborts_a_call_at_once, .timeout = 30)
{
    struct rig r;
    int in, out;
    rig_start(&r, STEPS({.hang = true}));
    char *line = rig_turn(&r, NULL);
    pid_t pid = spawn(&r, &in, &out);
    cr_assert_eq(write(in, line, strlen(line)), (ssize_t)strlen(line));
    cr_assert_eq(write(in, "\n", 1), 1);
    cr_assert(rig_wait_calls(&r, 1));
    int64_t began = clock_mono_ms();
    kill(pid, SIGTERM);
    expect_line(out, "{\"ok\":false,\"text\":\"The turn was stopped.\"}\n");
    expect_exit(pid, 1);
    cr_assert_lt(clock_mono_ms() - began, 1000);
    free(line);
    close(in);
    close(out);
    rig_done(&r);
}

Test(worker, waits_for_its_turn_answers_at_the_newline_and_ends_with_its_input, .timeout = 30)
{
    struct rig r;
    int in, out;
    rig_start(&r, STEPS({.body = say("hi")}));
    char *line = rig_turn(&r, NULL);
    pid_t pid = spawn(&r, &in, &out);
    for (size_t i = 0; line[i]; i++)
        cr_assert_eq(write(in, line + i, 1), 1);
    struct pollfd p = {.fd = out, .events = POLLIN};
    cr_assert_eq(poll(&p, 1, 50), 0, "nothing before the newline");
    cr_assert_eq(write(in, "\n", 1), 1);
    expect_line(out, "{\"ok\":true,\"text\":\"hi\"}\n");
    expect_exit(pid, 0);
    close(in);
    close(out);

    pid = spawn(&r, &in, &out);
    close(in);
    expect_line(out, "{\"ok\":false,\"text\":\"The worker did not accept the turn.\"}\n");
    expect_exit(pid, 1);
    close(out);

    pid = spawn(&r, &in, &out);
    kill(pid, SIGTERM);
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFSIGNALED(status) || WEXITSTATUS(status) == 1, "before or after its handler was there");
    close(in);
    close(out);
    free(line);
    rig_done(&r);
}

Test(worker, the_history_is_on_disk_before_the_newline, .timeout = 30)
{
    struct rig r;
    int in, out;
    char one[1];
    rig_start(&r, STEPS({.body = say("hi")}));
    char *line = rig_turn(&r, NULL);
    pid_t pid = spawn(&r, &in, &out);
    cr_assert_eq(write(in, line, strlen(line)), (ssize_t)strlen(line));
    close(in);
    cr_assert_eq(read(out, one, 1), 1);
    kill(pid, SIGKILL);
    char *history = rig_file(&r, ".cloister/history.json");
    cr_assert(history && strstr(history, "\"assistant\":\"hi\""));
    waitpid(pid, NULL, 0);
    free(history);
    free(line);
    close(out);
    rig_done(&r);
}
