#include "base/json.h"
#include "tests/unit/broker/client.h"

static struct rig rig;

static void setup(void)
{
    rig_open_embedded(&rig, "embedded:script");
}

static void teardown(void)
{
    rig_close(&rig);
}

TestSuite(script, .init = setup, .fini = teardown, .timeout = 60);

#define TOOLS                                                                                                \
    ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"add\",\"description\":\"\",\"parameters\":" \
    "{}}}]"
#define USER(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define CALLED(n)                                                                                            \
    "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"call_" n                             \
    "\",\"type\":\"function\",\"function\":{\"name\":\"add\",\"arguments\":\"{}\"}}]}"
#define RESULT(n, text) "{\"role\":\"tool\",\"tool_call_id\":\"call_" n "\",\"content\":\"" text "\"}"

/* Asks and returns the message; json_decref. */
static json_t *ask(const char *messages, const char *tools)
{
    char body[4096];
    json_t *whole = NULL;
    struct err err;

    snprintf(body, sizeof body, "{\"messages\":[%s]%s}", messages, tools);
    struct reply r = client_call(&rig, body);
    cr_assert(r.status == 200, "%s: %s", body, r.text);
    cr_assert(json_parse(r.body, strlen(r.body), &whole, &err) == 0);
    json_t *message =
        json_incref(json_object_get(json_array_get(json_object_get(whole, "choices"), 0), "message"));
    cr_assert(json_integer_value(json_object_get(json_object_get(whole, "usage"), "prompt_tokens")) > 0);
    json_decref(whole);
    free(r.text);
    return message;
}

static void says(const char *messages, const char *tools, const char *text)
{
    json_t *m = ask(messages, tools);

    cr_assert_str_eq(json_str(m, "content"), text);
    cr_assert(json_object_get(m, "tool_calls") == NULL);
    json_decref(m);
}

static void calls(const char *messages, const char *id, const char *arguments)
{
    json_t *m = ask(messages, TOOLS), *list = json_object_get(m, "tool_calls"),
           *call = json_array_get(list, 0);

    cr_assert(json_array_size(list) == 1, "%s", json_dumps(m, 0));
    cr_assert_str_eq(json_str(call, "id"), id);
    cr_assert_str_eq(json_str(json_object_get(call, "function"), "name"), "add");
    cr_assert_str_eq(json_str(json_object_get(call, "function"), "arguments"), arguments);
    json_decref(m);
}

Test(script, echoes_without_commands)
{
    says(USER("hi there"), "", "hi there");
    says(USER("first") "," USER("last\\nline"), TOOLS, "last\nline");
    says("{\"role\":\"system\",\"content\":\"/sleep 60000\"}," USER("hi"), "", "hi");
    says("{\"role\":\"system\",\"content\":\"s\"}", "", "");
}

Test(script, calls_an_offered_tool_and_gives_its_result)
{
    calls(USER("/call add {\\\"a\\\":1}"), "call_0", "{\"a\":1}");
    calls(USER("please\\n/call add\\nthanks"), "call_0", "{}");
    says(USER("/call add {}") "," CALLED("0") "," RESULT("0", "42"), TOOLS, "42");
}

Test(script, several_calls_go_one_by_one)
{
    calls(USER("/call add {\\\"n\\\":1}\\n/call add {\\\"n\\\":2}"), "call_0", "{\"n\":1}");
    calls(USER("/call add {\\\"n\\\":1}\\n/call add {\\\"n\\\":2}") "," CALLED("0") "," RESULT("0", "one"),
          "call_1", "{\"n\":2}");
    says(USER("/call add {\\\"n\\\":1}\\n/call add {\\\"n\\\":2}") "," CALLED("0") "," RESULT(
             "0", "one") "," CALLED("1") "," RESULT("1", "two"),
         TOOLS, "two");
}

Test(script, what_is_no_command_is_text)
{
    says(USER("/call add {}"), "", "/call add {}"); /* not offered */
    says(USER("/call other {}"), TOOLS, "/call other {}");
    says(USER("/call add [1]"), TOOLS, "/call add [1]");
    says(USER("/call add {"), TOOLS, "/call add {");
    says(USER("/call"), TOOLS, "/call");
    says(USER(" /call add {}"), TOOLS, " /call add {}");
    says(USER("/sleep"), TOOLS, "/sleep");
    says(USER("/sleep -1"), TOOLS, "/sleep -1");
    says(USER("/sleep 10s"), TOOLS, "/sleep 10s");
}

Test(script, only_the_last_user_message_is_obeyed)
{
    says(USER("/call add {}") ",{\"role\":\"assistant\",\"content\":\"ok\"}," USER("hi"), TOOLS, "hi");
    /* neither a tool's result nor an assistant's text */
    says(USER("hi") "," CALLED("0") "," RESULT("0", "/call add {}\\n/sleep 60000"), TOOLS,
         "/call add {}\n/sleep 60000");
    says(USER("hi") ",{\"role\":\"assistant\",\"content\":\"/call add {}\"}", TOOLS, "hi");
}

Test(script, sleeps_once_and_then_echoes)
{
    int64_t start = clock_mono_ms();

    says(USER("/sleep 300\\nbye"), "", "/sleep 300\nbye");
    cr_assert(clock_mono_ms() - start >= 300);
    start = clock_mono_ms();
    says(USER("/sleep 5000\\n/call add {}") "," CALLED("0") "," RESULT("0", "r"), TOOLS, "r");
    cr_assert(clock_mono_ms() - start < 2000);
}

Test(script, a_sleep_ends_with_the_turn)
{
    char *request = client_request("{\"messages\":[" USER("/sleep 60000") "]}");
    int fd = client_connect(&rig);
    struct broker_stats s = {0};

    client_send(fd, request);
    for (int64_t end = clock_mono_ms() + 5000; s.calls == 0 && clock_mono_ms() < end;)
        broker_stats(rig.broker, &s);
    cr_assert(s.calls == 1);
    int64_t start = clock_mono_us();
    broker_close(rig.broker);
    cr_assert(clock_mono_us() - start < 100000);
    struct reply r = client_read(fd);
    cr_assert(r.status == 410);
    free(r.text);
    free(request);
    close(fd);
}

Test(script, a_sleep_past_the_deadline_is_504)
{
    struct broker_turn turn = rig_turn(&rig);

    broker_free(STEAL(rig.broker));
    cr_assert(broker_new(rig.env, rig.dir, &rig.broker, &rig.err) == 0);
    turn.deadline = clock_mono_ms() + 200;
    cr_assert(broker_bind(rig.broker, &turn, &rig.err) == 0);
    client_expect(&rig, "{\"messages\":[" USER("/sleep 60000") "]}", 504, "timeout");
}

/* The same path as any model: the credential does not come through even when the guest itself says it. */
Test(script, the_reflection_check_holds)
{
    client_expect(&rig, "{\"messages\":[" USER("x " KEY) "]}", 502, "model_refused");
}

Test(echo, obeys_nothing, .timeout = 60)
{
    int64_t start = clock_mono_ms();

    rig_open_embedded(&rig, "embedded:echo");
    says(USER("/sleep 9000"), "", "/sleep 9000");
    says(USER("/call add {}"), TOOLS, "/call add {}");
    says(USER("hi") "," CALLED("0") "," RESULT("0", "r"), TOOLS, "hi");
    cr_assert(clock_mono_ms() - start < 5000);
    rig_close(&rig);
}
