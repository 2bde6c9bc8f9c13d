#include "base/buf.h"
#include "base/limits.h"
#include "schemas/protocol.h"
#include "schemas/schema.h"

#include <criterion/criterion.h>
#include <string.h>

static struct worker_turn make(json_t *request)
{
    return (struct worker_turn){.id = "turn_1",
                                .request = request,
                                .model = "m",
                                .prompt = "Be kind.",
                                .time_zone = "UTC",
                                .reset = true,
                                .deadline_ms = 120000};
}

static json_t *request_of(const char *text)
{
    return json_pack("{s:s, s:{s:s, s:s}, s:b, s:{s:s}}", "text", text, "speaker", "id", "1", "name", "A\nB",
                     "reset", 0, "metadata", "k", "v");
}

Test(turn_line, is_one_line_that_its_own_schema_accepts)
{
    json_t *request = request_of("a\nb\xE2\x80\xA8\"\\"), *back = NULL;
    struct worker_turn turn = make(request);
    struct json_faults faults = {0};
    struct err err;
    char *line = NULL;

    cr_assert_eq(worker_turn_line(&turn, &line, &err), 0, "%s", err.text);
    cr_assert_eq(strchr(line, '\n'), line + strlen(line) - 1);
    cr_assert_eq(json_parse(line, strlen(line), &back, &err), 0, "%s", err.text);
    json_object_set_new(json_object_get(back, "speaker"), "name", json_string("A"));
    cr_assert_eq(schema_check("worker_turn", back, "", &faults), 0);
    cr_assert_str_eq(json_str(back, "text"), "a\nb\xE2\x80\xA8\"\\");
    cr_assert_eq(json_integer_value(json_object_get(back, "version")), 1);
    cr_assert_str_eq(json_str(back, "workspace"), "/workspace");
    cr_assert(json_is_true(json_object_get(back, "reset")), "the service's word, not the body's");
    cr_assert_null(json_object_get(back, "metadata"), "the caller's notes stay outside");
    cr_assert_eq(json_integer_value(json_object_get(back, "deadline_ms")), 120000);
    free(line);
    json_decref(back);
    json_decref(request);
}

Test(turn_line, has_at_most_256_kib_with_its_newline)
{
    char *text = malloc(LIMIT_TURN_LINE + 2);
    struct err err;

    for (int more = 0; more < 2; more++) {
        json_t *empty = request_of("");
        struct worker_turn turn = make(empty);
        char *line = NULL;
        cr_assert_eq(worker_turn_line(&turn, &line, &err), 0, "%s", err.text);
        size_t room = LIMIT_TURN_LINE - strlen(line) + (size_t)more;
        free(STEAL(line));
        memset(text, 'x', room);
        text[room] = '\0';
        json_t *request = request_of(text);
        turn = make(request);
        int rc = worker_turn_line(&turn, &line, &err);
        cr_assert_eq(rc, more ? -1 : 0);
        if (more)
            cr_assert_eq(err.code, ERR_INVALID, "%s", err.text);
        else
            cr_assert_eq(strlen(line), LIMIT_TURN_LINE);
        free(line);
        json_decref(request);
        json_decref(empty);
    }
    free(text);
}

/* Bodies of what grows most when it is written again, up to the first that may not fit. */
Test(turn_line, fits_when_its_body_is_known_to)
{
    static const char *const parts[] = {"1e9,",          "1e16,",        "1E-9,",
                                        "[],",           "\"\\u0001\",", "\"\\ud83d\\ude00\",",
                                        "\"\xC3\xA4\",", "{\"\":0.1},"};
    struct err err;

    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        size_t part = strlen(parts[i]), fitting = 0;
        for (size_t len = 0; len < LIMIT_TURN_LINE; len += 4096) {
            CLEANUP(buf_free) struct buf body = BUF_INIT(LIMIT_TURN_LINE);
            CLEANUP(json_free) json_t *value = NULL;
            CLEANUP(free_str) char *line = NULL;
            cr_assert_eq(buf_add(&body, "[", 1, &err), 0);
            while (body.len + part + 2 < len)
                cr_assert_eq(buf_add(&body, parts[i], part, &err), 0);
            cr_assert_eq(buf_add(&body, "0]", 2, &err), 0);
            cr_assert_eq(json_parse(body.data, body.len, &value, &err), 0, "%s", err.text);
            CLEANUP(json_free) json_t *request = request_of("");
            json_object_set(request, "messages", value);
            struct worker_turn turn = make(request);
            if (!worker_turn_fits(&turn, body.len))
                break;
            fitting++;
            cr_assert_eq(worker_turn_line(&turn, &line, &err), 0, "%s %zu: %s", parts[i], len, err.text);
        }
        cr_assert(fitting > 3, "%zu", fitting);
    }
}

static void refused(const char *line, enum err_code code, const char *part)
{
    struct worker_reply reply = {0};
    struct err err = {0};

    cr_assert_eq(worker_reply_parse(line, strlen(line), &reply, &err), -1, "%s", line);
    cr_assert_eq(err.code, code, "%s: %s", line, err.text);
    cr_assert(strstr(err.text, part), "%s: %s", line, err.text);
    cr_assert_null(reply.reply);
}

Test(reply, keeps_what_is_stored_and_no_more)
{
    static const char line[] =
        "{\"ok\":true,\"text\":\"hi\",\"data\":{\"a\":[1]},\"tool_calls\":[{\"id\":\"c\",\"type\":"
        "\"function\",\"function\":{\"name\":\"look\",\"arguments\":\"{}\"}}]}";
    struct worker_reply reply = {0};
    struct err err;

    cr_assert_eq(worker_reply_parse(line, strlen(line), &reply, &err), 0, "%s", err.text);
    cr_assert(reply.ok);
    cr_assert_null(json_object_get(reply.reply, "ok"));
    cr_assert_eq(json_object_size(reply.reply), 3);
    json_decref(reply.reply);
    static const char failed[] = "{\"ok\":false,\"text\":\"\"}";
    cr_assert_eq(worker_reply_parse(failed, sizeof failed - 1, &reply, &err), 0, "%s", err.text);
    cr_assert_not(reply.ok);
    json_decref(reply.reply);
}

Test(reply, has_an_error_for_each_rule)
{
    refused("", ERR_INVALID_JSON, "line 1");
    refused("garbage", ERR_INVALID_JSON, "line 1");
    refused("{\"ok\":true,\"text\":\"a\"} {}", ERR_INVALID_JSON, "end of file");
    refused("{\"ok\":true,\"ok\":true,\"text\":\"a\"}", ERR_INVALID_JSON, "duplicate");
    refused("{\"ok\":true,\"text\":\"\\u0000\"}", ERR_INVALID_JSON, "line 1");
    refused("{\"ok\":true,\"text\":\"\xFF\"}", ERR_INVALID_JSON, "line 1");
    refused("[]", ERR_INVALID, "type object");
    refused("{\"ok\":true}", ERR_INVALID, "text is missing");
    refused("{\"text\":\"a\"}", ERR_INVALID, "ok is missing");
    refused("{\"ok\":1,\"text\":\"a\"}", ERR_INVALID, "/ok");
    refused("{\"ok\":true,\"text\":null}", ERR_INVALID, "/text");
    refused("{\"ok\":true,\"text\":\"a\",\"error\":\"b\"}", ERR_INVALID, "/error: is not known here");
    refused("{\"ok\":true,\"text\":\"a\",\"tool_calls\":[]}", ERR_INVALID, "/tool_calls");
    refused("{\"ok\":true,\"text\":\"a\",\"tool_calls\":[{\"id\":\"\",\"type\":\"function\",\"function\":{"
            "\"name\":"
            "\"f\",\"arguments\":\"\"}}]}",
            ERR_INVALID, "/tool_calls/0/id");
    refused("{\"ok\":true,\"text\":\"a\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{"
            "\"name\":"
            "\"F\",\"arguments\":\"\"}}]}",
            ERR_INVALID, "/tool_calls/0/function/name");
    refused("{\"ok\":true,\"text\":\"a\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"custom\",\"function\":{"
            "\"name\":"
            "\"f\",\"arguments\":\"\"}}]}",
            ERR_INVALID, "/tool_calls/0/type");
    refused("{\"ok\":true,\"text\":\"a\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{"
            "\"name\":"
            "\"f\",\"arguments\":{}}}]}",
            ERR_INVALID, "/tool_calls/0/function/arguments");
    refused("{\"ok\":true,\"text\":\"a\",\"tool_calls\":{}}", ERR_INVALID, "/tool_calls");
}

Test(reply, tool_calls_keep_only_what_is_known_of_them)
{
    static const char line[] =
        "{\"ok\":true,\"text\":\"\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"index\":0,"
        "\"function\":{"
        "\"name\":\"f\",\"arguments\":\"{}\",\"parsed\":{\"a\":1}},\"extra\":[null]}]}";
    static const char kept[] =
        "{\"text\":\"\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{"
        "\"name\":\"f\",\"arguments\":\"{}\"}}]}";
    struct worker_reply reply = {0};
    struct err err;
    char *text = NULL;

    cr_assert_eq(worker_reply_parse(line, strlen(line), &reply, &err), 0, "%s", err.text);
    cr_assert_eq(json_text(reply.reply, &text, &err), 0);
    cr_assert_str_eq(text, kept);
    free(text);
    json_decref(reply.reply);
}

Test(reply, nine_tool_calls_and_long_texts_are_too_much)
{
    struct err err;

    for (size_t more = 0; more < 2; more++) {
        struct worker_reply reply = {0};
        json_t *calls = json_array(), *line = NULL;
        for (size_t i = 0; i < LIMIT_TOOL_CALLS + more; i++)
            json_array_append_new(calls, json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", "c", "type", "function",
                                                   "function", "name", "f", "arguments", "{}"));
        line = json_pack("{s:b, s:s, s:o}", "ok", 1, "text", "", "tool_calls", calls);
        char *text = json_dumps(line, 0);
        cr_assert_eq(worker_reply_parse(text, strlen(text), &reply, &err), more ? -1 : 0);
        json_decref(reply.reply);
        json_decref(line);
        free(text);
    }
    for (size_t more = 0; more < 2; more++) {
        struct worker_reply reply = {0};
        size_t n = LIMIT_REPLY_TEXT_CHARS + more;
        char *content = malloc(n * 2 + 1);
        for (size_t i = 0; i < n; i++)
            memcpy(content + 2 * i, "\xC3\xA9", 3);
        json_t *line = json_pack("{s:b, s:s}", "ok", 1, "text", content);
        char *text = json_dumps(line, 0);
        cr_assert_eq(worker_reply_parse(text, strlen(text), &reply, &err), more ? -1 : 0);
        json_decref(reply.reply);
        json_decref(line);
        free(text);
        free(content);
    }
}
