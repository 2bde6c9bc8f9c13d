#include "base/json.h"
#include "broker/budget.h"
#include "broker/embedded.h"
#include "broker/model.h"
#include "broker/redact.h"
#include "broker/slot.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

static struct err err;

static json_t *parse(const char *text)
{
    json_t *value = NULL;

    if (json_parse(text, strlen(text), &value, &err) < 0)
        cr_assert_fail("test data: %s: %s", err.text, text);
    return value;
}

/* --- budget --------------------------------------------------------------------------------------------- */

Test(budget, one_at_a_time_and_so_many)
{
    struct budget b = {.calls_left = 2};

    cr_assert(budget_take_call(&b, &err) == 0);
    cr_assert(budget_take_call(&b, &err) == -1 && err.code == ERR_RATE && b.calls_left == 1 && !b.spent);
    budget_end_call(&b);
    cr_assert(budget_take_call(&b, &err) == 0);
    budget_end_call(&b);
    cr_assert(budget_take_call(&b, &err) == -1 && err.code == ERR_BUDGET && b.spent && !b.busy);
}

Test(call, has_60_s_and_never_more_than_its_turn)
{
    cr_assert_eq(LIMIT_BROKER_CALL_MS, 60000);
    cr_assert_eq(call_deadline(1000 + 600000, 1000), 1000 + 60000, "the call's own limit");
    cr_assert_eq(call_deadline(1000 + 60001, 1000), 1000 + 60000);
    cr_assert_eq(call_deadline(1000 + 59999, 1000), 1000 + 59999, "the turn's deadline is earlier");
    cr_assert_eq(call_deadline(500, 1000), 500, "and may be over");
}

Test(script_sleep, leaves_the_call_time_to_answer)
{
    const long most = LIMIT_SCRIPT_SLEEP_MS;

    cr_assert_eq(script_sleep(300, 0), 300);
    cr_assert_eq(script_sleep(60000, 0), most);
    cr_assert_eq(script_sleep(999999999, 0), most);
    cr_assert_leq(most, LIMIT_BROKER_CALL_MS - 1000, "the longest sleep is not past the call's own deadline");
    cr_assert_eq(script_sleep(40000, 40000), most - 40000, "two sleeps of a call share it");
    cr_assert_eq(script_sleep(1, most), 0);
}

/* --- redaction ------------------------------------------------------------------------------------------ */

static const char *const credentials[] = {"sk-test/0123456789+abcdef", "0123456789abcdef",
                                          "AAAAAAAAAAAAAAAAAA", "p@ss\"word\\with%41quotes"};

/* Whether the text is refused as a string, nested deep, and as a key. */
static bool caught(const char *credential, const char *text, size_t len)
{
    struct secret secret = {0};
    int hits = 0;

    cr_assert(secret_init(&err) == 0 && secret_set(&secret, credential, strlen(credential), &err) == 0);
    json_t *string = json_stringn(text, len), *key = json_object();
    json_object_setn_new(key, text, len, json_null());
    json_t *forms[] = {json_incref(string), json_pack("{s:[i, {s:o}]}", "a", 1, "b", string),
                       json_pack("[{s:o}]", "k", key)};
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        cr_assert(forms[i] != NULL);
        hits += redact_check(forms[i], &secret, &err) == -1;
        json_decref(forms[i]);
    }
    secret_free(&secret);
    cr_assert(hits == 0 || hits == 3, "%d of 3: %s", hits, text);
    cr_assert(hits == 0 || (err.code == ERR_UPSTREAM && !strstr(err.text, credential)));
    return hits == 3;
}

static bool caught_in(const char *credential, const char *before, const char *form, const char *after)
{
    char text[4096];
    int n = snprintf(text, sizeof text, "%s%s%s", before, form, after);

    return caught(credential, text, (size_t)n);
}

/* Each byte as %XX, or only those that an URL asks for. */
static void url_encode(const char *in, bool all, bool upper, char *out)
{
    for (; *in; in++) {
        if (!all && isalnum((unsigned char)*in))
            *out++ = *in;
        else
            out += sprintf(out, upper ? "%%%02X" : "%%%02x", (unsigned char)*in);
    }
    *out = '\0';
}

Test(redact, raw_and_url_encoded)
{
    char form[1024], twice[2048];

    for (size_t i = 0; i < ARRAY_LEN(credentials); i++) {
        const char *c = credentials[i];
        cr_assert(caught_in(c, "", c, "") && caught_in(c, "Bearer ", c, "\n."), "%s", c);
        for (int k = 0; k < 4; k++) {
            url_encode(c, k & 1, k & 2, form);
            cr_assert(caught_in(c, "x=", form, "&y"), "%s", form);
            url_encode(form, false, true, twice);
            cr_assert(caught_in(c, "x=", twice, "&y"), "%s", twice);
        }
    }
}

Test(redact, base64_at_every_alignment)
{
    static const int variants[] = {sodium_base64_VARIANT_ORIGINAL, sodium_base64_VARIANT_ORIGINAL_NO_PADDING,
                                   sodium_base64_VARIANT_URLSAFE, sodium_base64_VARIANT_URLSAFE_NO_PADDING};
    static const char before[] = "\xFF?key\xFE", after[] = "\xFFz!\xFE";
    char plain[256], form[512], url[2048];

    for (size_t i = 0; i < ARRAY_LEN(credentials); i++)
        for (size_t v = 0; v < ARRAY_LEN(variants); v++)
            for (size_t b = 0; b < sizeof before; b++)
                for (size_t a = 0; a < sizeof after; a++) {
                    size_t len = strlen(credentials[i]);
                    memcpy(plain, before, b);
                    memcpy(plain + b, credentials[i], len);
                    memcpy(plain + b + len, after, a);
                    sodium_bin2base64(form, sizeof form, (unsigned char *)plain, b + len + a, variants[v]);
                    cr_assert(caught_in(credentials[i], "data:", form, ""), "%s", form);
                    url_encode(form, false, true, url);
                    cr_assert(caught_in(credentials[i], "u=", url, ""), "%s", url);
                }
}

Test(redact, hex_in_any_case)
{
    char form[256];

    for (size_t i = 0; i < ARRAY_LEN(credentials); i++) {
        const char *c = credentials[i];
        sodium_bin2hex(form, sizeof form, (const unsigned char *)c, strlen(c));
        cr_assert(caught_in(c, "0x", form, "ff"));
        for (size_t k = 0; form[k]; k++)
            form[k] = (char)toupper((unsigned char)form[k]);
        cr_assert(caught_in(c, "", form, ""));
        for (size_t k = 0; form[k]; k += 3)
            form[k] = (char)tolower((unsigned char)form[k]);
        cr_assert(caught_in(c, "", form, ""));
    }
}

Test(redact, json_text_inside_a_string)
{
    const char *c = credentials[0];
    char form[512], *out = form, nested[1024];

    cr_assert(caught_in(c, "{\"a\":\"", "sk-test\\/0123456789+abcdef", "\"}"));
    for (const char *p = c; *p; p++)
        out += sprintf(out, "\\u%04X", (unsigned char)*p);
    cr_assert(caught_in(c, "{\"a\":\"", form, "\"}"));
    json_t *twice = json_string(form);
    char *dumped = json_dumps(twice, JSON_ENCODE_ANY);
    snprintf(nested, sizeof nested, "%s", dumped);
    cr_assert(caught_in(c, "", nested, ""));
    free(dumped);
    json_decref(twice);
    /* quotes and backslashes of the credential itself, escaped by the inner text */
    cr_assert(caught_in(credentials[3], "{\"a\":\"", "p@ss\\\"word\\\\with%41quotes", "\"}"));
}

Test(redact, clean_answers_pass)
{
    static const char *const clean[] = {
        "",
        "hello",
        "sk-test/0123456789+abcde",
        "k-test/0123456789+abcdef",
        "100% \\u00e9 %zz %4 \\",
        "sk-test/0123456789 +abcdef",
        "a long text without anything in it, longer than the credential itself"};

    for (size_t i = 0; i < ARRAY_LEN(clean); i++)
        cr_assert(!caught_in(credentials[0], "", clean[i], ""), "%s", clean[i]);
}

/* --- the rebuilt answer --------------------------------------------------------------------------------- */

static void rebuilt(const char *answer, const char *expected)
{
    struct model_reply counts = {0};
    json_t *in = parse(answer), *out = NULL, *want = parse(expected);

    cr_assert(model_rebuild(in, &out, &counts, &err) == 0, "%s: %s", answer, err.text);
    cr_assert(json_equal(out, want), "%s", json_dumps(out, 0));
    json_decref(in);
    json_decref(out);
    json_decref(want);
}

static void unusable(const char *answer)
{
    struct model_reply counts = {0};
    json_t *in = parse(answer), *out = NULL;

    cr_assert(model_rebuild(in, &out, &counts, &err) == -1 && err.code == ERR_UPSTREAM, "%s", answer);
    cr_assert(out == NULL);
    json_decref(in);
}

#define WHOLE(message, reason, more)                                                                         \
    "{\"object\":\"chat.completion\",\"choices\":[{\"index\":0,\"message\":" message                         \
    ",\"finish_reason\":" reason "}]" more "}"
#define PLAIN "{\"role\":\"assistant\",\"content\":\"hi\"}"

Test(rebuild, only_the_known_fields)
{
    rebuilt(
        "{\"id\":\"x\",\"model\":\"secret-model\",\"system_fingerprint\":\"f\",\"choices\":[{\"index\":7,"
        "\"logprobs\":{},\"message\":{\"role\":\"system\",\"content\":\"hi\",\"refusal\":null,\"audio\":{}},"
        "\"finish_reason\":\"stop\"},{\"message\":{\"content\":\"second\"}}],\"usage\":{\"prompt_tokens\":3,"
        "\"completion_tokens\":4,\"total_tokens\":99,\"cost\":1.5}}",
        WHOLE(PLAIN, "\"stop\"",
              ",\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4,\"total_tokens\":7}"));
}

Test(rebuild, tool_calls)
{
    rebuilt(
        "{\"choices\":[{\"message\":{\"content\":null,\"tool_calls\":[{\"id\":\"a\",\"index\":0,\"type\":"
        "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\",\"x\":1}},{\"function\":{\"name\":"
        "\"No "
        "Name\",\"arguments\":\"not json\"}}]},\"finish_reason\":\"tool_calls\"}]}",
        WHOLE("{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"a\",\"type\":\"function\","
              "\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}},{\"id\":\"\",\"type\":\"function\","
              "\"function\":{\"name\":\"No Name\",\"arguments\":\"not json\"}}]}",
              "\"tool_calls\"", ""));
    rebuilt("{\"choices\":[{\"message\":{\"content\":\"hi\",\"tool_calls\":[]}}]}", WHOLE(PLAIN, "null", ""));
    rebuilt("{\"choices\":[{\"message\":{\"content\":\"hi\",\"tool_calls\":null}}]}",
            WHOLE(PLAIN, "null", ""));
}

Test(rebuild, a_call_without_a_usable_name_or_id_is_the_workers_to_judge)
{
    static const char *const functions[] = {"\"name\":1,", "\"name\":null,", "\"name\":[\"f\"],",
                                            "\"name\":\"\",", ""};
    char answer[256];

    for (size_t i = 0; i < ARRAY_LEN(functions); i++) {
        snprintf(answer, sizeof answer,
                 "{\"choices\":[{\"message\":{\"tool_calls\":[{\"id\":7,\"function\":{%s\"arguments\":\"{}\"}"
                 "}]}}]}",
                 functions[i]);
        rebuilt(answer,
                WHOLE("{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"\",\"type\":"
                      "\"function\",\"function\":{\"name\":\"\",\"arguments\":\"{}\"}}]}",
                      "null", ""));
    }
}

Test(rebuild, odd_reasons_and_counts)
{
    rebuilt(
        "{\"choices\":[{\"message\":{\"content\":\"hi\"},\"finish_reason\":7}],\"usage\":{\"prompt_tokens\":-"
        "1,"
        "\"completion_tokens\":\"x\"}}",
        WHOLE(PLAIN, "null", ",\"usage\":{\"prompt_tokens\":0,\"completion_tokens\":0,\"total_tokens\":0}"));
    rebuilt(
        "{\"choices\":[{\"message\":{\"content\":\"hi\"},\"finish_reason\":"
        "\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"}],\"usage\":{\"prompt_tokens\":"
        "9223372036854775807}}",
        WHOLE(PLAIN, "null", ",\"usage\":{\"prompt_tokens\":0,\"completion_tokens\":0,\"total_tokens\":0}"));
}

Test(rebuild, what_has_not_the_shape_is_refused)
{
    static const char *const wrong[] = {
        "[]",
        "{}",
        "1",
        "\"x\"",
        "null",
        "{\"choices\":[]}",
        "{\"choices\":{}}",
        "{\"choices\":[1]}",
        "{\"choices\":[{}]}",
        "{\"choices\":[{\"message\":\"hi\"}]}",
        "{\"choices\":[{\"message\":{\"content\":1}}]}",
        "{\"choices\":[{\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"hi\"}]}}]}",
        "{\"choices\":[{\"message\":{\"tool_calls\":{}}}]}",
        "{\"choices\":[{\"message\":{\"tool_calls\":[1]}}]}",
        "{\"choices\":[{\"message\":{\"tool_calls\":[{\"id\":\"a\"}]}}]}",
        "{\"choices\":[{\"message\":{\"tool_calls\":[{\"function\":{\"name\":1,\"arguments\":{}}}]}}]}",
        "{\"choices\":[{\"message\":{\"tool_calls\":[{\"function\":{\"name\":\"a\",\"arguments\":{}}}]}}]}",
        "{\"choices\":[{\"message\":{\"tool_calls\":[{\"type\":\"custom\",\"function\":{\"name\":\"a\","
        "\"arguments\":"
        "\"\"}}]}}]}"};

    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        unusable(wrong[i]);
}
