/* The worker's pure parts: cutting, the turn's rules, the tools offered, repair of calls. */
#include "base/limits.h"
#include "base/utf8.h"
#include "deploy/worker/calls.h"
#include "deploy/worker/text.h"
#include "deploy/worker/tools.h"
#include "rig.h"
#include "schemas/tool_size.h"

#include <criterion/criterion.h>
#include <string.h>

Test(text, the_encoded_size_is_what_jansson_writes)
{
    static const char *const texts[] = {"", "plain", "\"\\/\b\f\n\r\t", "\x01\x1f\x7f",
                                        "\xC3\xBC\xE2\x82\xAC\xF0\x9F\x90\x9D"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        json_t *s = json_string(texts[i]);
        char *dump = json_dumps(s, JSON_ENCODE_ANY | JSON_COMPACT);
        cr_assert_eq(text_encoded(texts[i], strlen(texts[i])), strlen(dump) - 2, "%s", texts[i]);
        free(dump);
        json_decref(s);
    }
}

Test(text, a_cut_text_fits_is_valid_and_says_so)
{
    const char *text = "a\n\xC3\xBC\x01\xE2\x82\xAC\"\xF0\x9F\x90\x9D\\tail that goes on and on";
    struct err err;
    for (size_t max = 7; max < 80; max++) {
        char *cut;
        cr_assert_eq(text_cut(text, max, &cut, &err), 0);
        cr_assert_leq(text_encoded(cut, strlen(cut)), max);
        cr_assert(utf8_valid(cut, strlen(cut)));
        if (strcmp(cut, text) != 0) {
            size_t keep = strlen(cut) - strlen(TEXT_CUT_MARK);
            cr_assert_str_eq(cut + keep, TEXT_CUT_MARK);
            cr_assert_eq(strncmp(cut, text, keep), 0);
            cr_assert_gt(text_encoded(text, strlen(text)), max);
        }
        free(cut);
    }
}

Test(text, characters_are_counted_as_code_points)
{
    struct err err;
    char *cut;
    cr_assert_eq(
        text_cut_chars("\xC3\xBC\xC3\xBC\xC3\xBC\xC3\xBC\xC3\xBC\xC3\xBC\xC3\xBC\xC3\xBC", 8, &cut, &err), 0);
    cr_assert_eq(strlen(cut), 16);
    free(cut);
    cr_assert_eq(text_cut_chars("\xC3\xBC\xC3\xBC\xC3\xBC\xC3\xBC\xC3\xBC\xC3\xBC\xC3\xBC\xC3\xBC\xC3\xBC", 8,
                                &cut, &err),
                 0);
    cr_assert_str_eq(cut, "\xC3\xBC\xC3\xBC [cut]");
    free(cut);
}

static int parse_with(const char *changes, struct err *err)
{
    struct rig r = {.work = "/workspace"};
    struct turn turn = {0};
    char *line = rig_turn(&r, changes);
    int rc = turn_parse(line, strlen(line), &turn, err);
    if (rc == 0)
        turn_free(&turn);
    free(line);
    return rc;
}

Test(turn, every_member_is_held_to_its_rule)
{
    static const char *const bad[][2] = {
        {"{\"version\":2}", "/version"},
        {"{\"version\":null}", "version"},
        {"{\"id\":\"\"}", "/id"},
        {"{\"text\":null}", ""},
        {"{\"text\":\"\"}", "/text"},
        {"{\"text\":7}", "/text"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", ""},
        {"{\"text\":null,\"messages\":[]}", "/messages"},
        {"{\"text\":null,\"messages\":[{\"role\":\"root\",\"content\":\"x\"}]}", "/messages/0/role"},
        {"{\"text\":null,\"messages\":[{\"role\":\"user\",\"content\":[]}]}", "/messages/0/content"},
        {"{\"speaker\":{\"id\":\"a\"}}", "/speaker"},
        {"{\"speaker\":{\"id\":\"a\\n\",\"name\":\"b\"}}", "/speaker/id"},
        {"{\"speaker\":{\"id\":\"a\",\"name\":\"b\",\"x\":1}}", "/speaker/x"},
        {"{\"prompt\":1}", "/prompt"},
        {"{\"time_zone\":\"Europe/Berlin; ignore\"}", "/time_zone"},
        {"{\"workspace\":\"relative\"}", "/workspace"},
        {"{\"deadline_ms\":0}", "/deadline_ms"},
        {"{\"deadline_ms\":600001}", "/deadline_ms"},
        {"{\"deadline_ms\":1.5}", "/deadline_ms"},
        {"{\"reset\":1}", "/reset"},
        {"{\"extra\":1}", "/extra"},
        {"{\"tools\":[{\"name\":\"../x\",\"description\":\"\",\"parameters\":{}}]}", "/tools/0/name"},
        {"{\"tools\":[{\"name\":\"x\",\"description\":\"\"}]}", "/tools/0"},
        {"{\"tools\":[{\"name\":\"x\",\"description\":\"\",\"parameters\":{\"$ref\":\"http://x\"}}]}",
         "/tools/0/parameters/$ref"},
        {"{\"mcp\":[{\"server\":\"A\",\"tools\":[]}]}", "/mcp/0/server"},
        {"{\"mcp\":[{\"server\":\"a\",\"tools\":[{\"name\":\"x\",\"description\":\"\",\"parameters\":{"
         "\"not\":1}}]}]}",
         "/mcp/0/tools/0/parameters/not"},
        {"{\"mcp\":[{\"server\":\"a\",\"tools\":[{\"name\":\"get-sum\",\"description\":\"\",\"parameters\":{}"
         "}]}]}",
         "/mcp/0/tools/0/name"},
        {"{\"caller_tools\":[{\"type\":\"function\",\"function\":{\"name\":\"memory_x\",\"description\":\"\","
         "\"parameters\":"
         "{}}}]}",
         "/caller_tools/0/function/name"},
        {"{\"caller_tools\":[{\"type\":\"function\",\"function\":{\"name\":\"x\",\"description\":\"\","
         "\"parameters\":{\"$ref\":"
         "\"http://x\"}}}]}",
         "/caller_tools/0/function/parameters/$ref"},
    };
    struct err err;
    cr_assert_eq(parse_with(NULL, &err), 0, "%s", err.text);
    cr_assert_eq(parse_with("{\"tools\":[],\"mcp\":[],\"caller_tools\":[],\"reset\":true}", &err), 0, "%s",
                 err.text);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cr_assert_eq(parse_with(bad[i][0], &err), -1, "%s", bad[i][0]);
        cr_assert_eq(err.code, ERR_INVALID);
        cr_assert(strstr(err.text, bad[i][1]), "%s: %s", bad[i][0], err.text);
    }
    struct turn turn;
    cr_assert_eq(turn_parse("{\"a\":1,\"a\":2}", 13, &turn, &err), -1);
    cr_assert_eq(err.code, ERR_INVALID_JSON);
    cr_assert_eq(turn_parse("", 0, &turn, &err), -1);
}

/* Offers the tools of a turn with these changes. */
static int offer(const char *changes, struct turn *turn, struct tools *tools, struct err *err)
{
    struct rig r = {.work = "/workspace"};
    char *line = rig_turn(&r, changes);
    *turn = (struct turn){0};
    *tools = (struct tools){0};
    cr_assert_eq(turn_parse(line, strlen(line), turn, err), 0, "%s", err->text);
    free(line);
    return tools_build(turn, tools, err);
}

#define TOOL(name)   "{\"name\":\"" name "\",\"description\":\"d\",\"parameters\":{}}"
#define CALLER(name) "{\"type\":\"function\",\"function\":" TOOL(name) "}"

Test(tools, carry_their_prefixes_and_lead_back_to_their_targets)
{
    struct turn turn;
    struct tools tools;
    struct err err;
    cr_assert_eq(
        offer("{\"tools\":[" TOOL("clock") "],\"mcp\":[{\"server\":\"a\",\"tools\":[" TOOL(
                  "sum") "]},{\"server\":"
                         "\"b\",\"tools\":[" TOOL("sum") "]}],\"caller_tools\":[" CALLER("pick") "]}",
              &turn, &tools, &err),
        0);
    static const char *const names[] = {"memory_set", "memory_get", "memory_remove", "host_clock",
                                        "mcp_0_sum",  "mcp_1_sum",  "pick"};
    cr_assert_eq(tools.count, sizeof names / sizeof names[0]);
    for (size_t i = 0; i < tools.count; i++) {
        const json_t *f = json_object_get(json_array_get(tools.definitions, i), "function");
        cr_assert_str_eq(json_str(f, "name"), names[i]);
        cr_assert_eq(tools_find(&tools, names[i]), &tools.list[i]);
    }
    cr_assert_str_eq(tools_find(&tools, "mcp_1_sum")->server, "b");
    cr_assert_str_eq(tools_find(&tools, "mcp_1_sum")->target, "sum");
    cr_assert_null(tools_find(&tools, "sum"));
    tools_free(&tools);
    turn_free(&turn);
}

Test(tools, twice_the_same_name_is_refused)
{
    struct turn turn;
    struct tools tools;
    struct err err;
    cr_assert_eq(offer("{\"tools\":[" TOOL("a") "," TOOL("a") "]}", &turn, &tools, &err), -1);
    cr_assert_eq(err.code, ERR_INVALID);
    turn_free(&turn);
}

/* `count` tools whose descriptions have `size` bytes and whose parameters have `weight`. */
static int offer_many(unsigned count, unsigned size, unsigned weight, struct turn *turn, struct tools *tools,
                      struct err *err)
{
    struct buf b = BUF_INIT(400000);
    cr_assert_eq(buf_adds(&b, "{\"tools\":[", err), 0);
    for (unsigned i = 0; i < count; i++)
        cr_assert_eq(
            buf_addf(
                &b, err,
                "%s{\"name\":\"t%u\",\"description\":\"%0*d\",\"parameters\":{\"description\":\"%0*d\"}}",
                i ? "," : "", i, (int)size, 0, (int)weight, 0),
            0);
    cr_assert_eq(buf_adds(&b, "]}", err), 0);
    int rc = offer(b.data, turn, tools, err);
    buf_free(&b);
    return rc;
}

Test(tools, long_descriptions_are_cut_to_32_kib_in_all)
{
    struct turn turn;
    struct tools tools;
    struct err err;
    cr_assert_eq(offer_many(60, 2000, 1, &turn, &tools, &err), 0, "%s", err.text);
    char *text = json_dumps(tools.definitions, JSON_COMPACT);
    cr_assert_leq(strlen(text), LIMIT_WORKER_TOOLS);
    cr_assert_eq(tools.count, 63);
    const char *cut =
        json_str(json_object_get(json_array_get(tools.definitions, 62), "function"), "description");
    cr_assert_str_eq(cut + strlen(cut) - 6, TEXT_CUT_MARK);
    free(text);
    tools_free(&tools);
    turn_free(&turn);
    cr_assert_eq(offer_many(60, 1, 1000, &turn, &tools, &err), -1, "parameters are not cut");
    turn_free(&turn);
    cr_assert_eq(offer_many(126, 1, 1, &turn, &tools, &err), -1, "129 tools");
    turn_free(&turn);
    cr_assert_eq(offer_many(125, 1, 1, &turn, &tools, &err), 0, "128 tools");
    tools_free(&tools);
    turn_free(&turn);
}

/* Offers one tool of the caller whose parameters have `weight` bytes; *size is what the service measures. */
static int offer_heavy(size_t weight, size_t *size, struct tools *tools, struct turn *turn, struct err *err)
{
    struct buf b = BUF_INIT(400000);

    cr_assert_eq(
        buf_addf(
            &b, err,
            "{\"caller_tools\":[{\"type\":\"function\",\"function\":{\"name\":\"t\",\"description\":\"%0*d\","
            "\"parameters\":{\"title\":\"%0*d\"}}}]}",
            2000, 0, (int)weight, 0),
        0);
    int rc = offer(b.data, turn, tools, err);
    cr_assert_eq(tool_size(turn->caller_tools, LIMIT_TOOL_DESCRIPTION, size, err), 0);
    buf_free(&b);
    return rc;
}

Test(tools, what_the_service_lets_through_can_be_offered)
{
    struct turn turn;
    struct tools tools;
    struct err err;
    size_t size, most = LIMIT_WORKER_TOOLS - LIMIT_OWN_TOOLS_BYTES;

    cr_assert_eq(offer(NULL, &turn, &tools, &err), 0);
    cr_assert_eq(tool_size(tools.definitions, LIMIT_TOOL_DESCRIPTION, &size, &err), 0);
    cr_assert_eq(tools.count, LIMIT_OWN_TOOLS);
    cr_assert_eq(size - 1, LIMIT_OWN_TOOLS_BYTES,
                 "two lists in one have one bracket less each, and a comma: %zu", size - 1);
    tools_free(&tools);
    turn_free(&turn);
    cr_assert_eq(offer_heavy(10, &size, &tools, &turn, &err), 0);
    tools_free(&tools);
    turn_free(&turn);
    for (size_t more = 0; more < 2; more++) {
        size_t got;
        int rc = offer_heavy(10 + most - size + more, &got, &tools, &turn, &err);
        cr_assert_eq(got, most + more);
        cr_assert_eq(rc, more ? -1 : 0);
        if (rc == 0) {
            char *text = json_dumps(tools.definitions, JSON_COMPACT);
            cr_assert_leq(strlen(text), LIMIT_WORKER_TOOLS);
            free(text);
        }
        tools_free(&tools);
        turn_free(&turn);
    }
}

Test(calls, ids_are_taken_once)
{
    struct call_ids ids;
    struct err err;
    char id[CALL_ID_SIZE], longest[LIMIT_CALL_ID_CHARS + 2];
    cr_assert_eq(call_ids_new(&ids, &err), 0);
    static const struct {
        const char *wanted, *got;
    } cases[] = {{"call_2", "call_2"}, {"a", "a"},     {"a", "call_1"},
                 {NULL, "call_3"},     {"", "call_4"}, {"b\n", "call_5"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cr_assert_eq(call_ids_take(&ids, cases[i].wanted, id, &err), 0);
        cr_assert_str_eq(id, cases[i].got);
    }
    memset(longest, 'x', sizeof longest);
    longest[LIMIT_CALL_ID_CHARS + 1] = '\0';
    cr_assert_eq(call_ids_take(&ids, longest, id, &err), 0);
    cr_assert_str_eq(id, "call_6");
    cr_assert_eq(call_ids_take(&ids, longest + 1, id, &err), 0);
    cr_assert_str_eq(id, longest + 1);
    call_ids_free(&ids);
}

Test(calls, repeated_ids_of_given_messages_are_renamed_with_their_answers)
{
    struct call_ids ids;
    struct err err;
#define C(id)       "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}"
#define A(id, text) "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":\"" text "\"}"
    json_t *got =
        rig_json("[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[" C("x") "," C("x") "," C(
            "y") "]}," A("y", "1") "," A("x", "2") "," A("x", "3") ",{\"role\":\"user\",\"content\":\"\"},{"
                                                                   "\"role\":\"assistant\",\"content\":"
                                                                   "\"\",\"tool_calls\":[" C("y") "]}," A(
                                                                       "y", "4") "," A("z", "5") "]");
    json_t *want =
        rig_json("[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[" C("x") "," C("call_1") "," C(
            "y") "]}," A("y", "1") "," A("x",
                                         "2") "," A("call_1",
                                                    "3") ",{\"role\":\"user\",\"content\":\"\"},{\"role\":"
                                                         "\"assistant\",\"content\":\"\",\"tool_calls\":[" C(
                                                             "call_2") "]}," A("call_2", "4") "," A("z",
                                                                                                    "5") "]");
    cr_assert_eq(call_ids_new(&ids, &err), 0);
    cr_assert_eq(call_ids_repair(&ids, got, &err), 0);
    cr_assert(json_equal(got, want), "%s", json_dumps(got, 0));
    call_ids_free(&ids);
    json_decref(got);
    json_decref(want);
}
