#include "base/buf.h"
#include "base/clock.h"
#include "base/ending.h"
#include "base/id.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/secret.h"
#include "base/utf8.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

Test(err, texts_are_cut_between_characters_and_codes_kept)
{
    struct err err;
    char text[2000];

    for (size_t i = 0; i + 2 < sizeof text; i += 2)
        memcpy(text + i, "\xC3\xA9", 3);
    for (int shift = 0; shift < 2; shift++) {
        cr_assert_eq(err_set(&err, ERR_RATE, "%s%s", shift ? "x" : "", text), -1);
        cr_assert_lt(strlen(err.text), sizeof err.text);
        cr_assert(utf8_valid(err.text, strlen(err.text)), "shift %d", shift);
        cr_assert_eq(err_wrap(&err, "%s", "ab"), -1);
        cr_assert(utf8_valid(err.text, strlen(err.text)), "shift %d", shift);
        cr_assert_eq(strncmp(err.text, "ab: ", 4), 0);
        cr_assert_eq(err.code, ERR_RATE);
        cr_assert_eq(err_errno(&err, EACCES, "%s%s", shift ? "x" : "", text), -1);
        cr_assert(utf8_valid(err.text, strlen(err.text)), "shift %d", shift);
    }
}

Test(err, what_a_library_quotes_becomes_utf8)
{
    struct err err;

    err_set(&err, ERR_ENGINE, "it said \xDA\xE2\x82 and \xC3\xA9");
    cr_assert_str_eq(err.text, "it said ??? and \xC3\xA9");
    err_wrap(&err, "\xFF");
    cr_assert_str_eq(err.text, "?: it said ??? and \xC3\xA9");
}

Test(err, errno_becomes_a_code_and_a_sentence)
{
    struct err err;
    err_errno(&err, ENOENT, "open %s", "/x");
    cr_assert_eq(err.code, ERR_SYSTEM);
    cr_assert_str_eq(err.text, "open /x: No such file or directory");
    err_errno(&err, ENOMEM, "grow");
    cr_assert_eq(err.code, ERR_NO_MEMORY);
    err_errno(&err, ENOSPC, "mkdir");
    cr_assert_eq(err.code, ERR_DISK_FULL);
    err_errno(&err, EDQUOT, "mkdir");
    cr_assert_eq(err.code, ERR_DISK_FULL);
}

Test(err, table_rows_are_distinct_and_http)
{
    static const enum err_code codes[] = {
#define X(code, status, name, title) code,
        ERR_TABLE(X)
#undef X
    };
    for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
        cr_assert(err_status(codes[i]) >= 400 && err_status(codes[i]) < 600);
        cr_assert(err_title(codes[i])[0]);
        for (size_t j = 0; j < i; j++)
            cr_assert_str_neq(err_name(codes[i]), err_name(codes[j]));
    }
}

Test(ending, names_are_those_of_the_contract)
{
    static const char *const names[] = {"timeout",       "canceled",         "channel_disabled",
                                        "out_of_memory", "pid_limit",        "exit_code",
                                        "signal",        "output_limit",     "invalid_reply",
                                        "worker_failed", "image_missing",    "engine_unavailable",
                                        "engine_error",  "model_refused",    "budget_spent",
                                        "disk_full",     "server_restarted", "workspace_violation"};
    cr_assert_eq(ARRAY_LEN(names), (size_t)END_WORKSPACE_VIOLATION);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        cr_assert_str_eq(ending_name((enum ending)(i + 1)), names[i]);
        cr_assert(ending_detail((enum ending)(i + 1))[0]);
    }
    cr_assert_str_eq(ending_name(END_NONE), "");
}

Test(buf, holds_its_maximum_and_not_a_byte_more)
{
    struct buf b = BUF_INIT(10);
    struct err err;

    cr_assert_eq(buf_add(&b, "0123456789", 10, &err), 0);
    cr_assert_eq(b.len, 10);
    cr_assert_eq(buf_add(&b, "", 0, &err), 0);
    cr_assert_eq(buf_add(&b, "x", 1, &err), -1);
    cr_assert_eq(err.code, ERR_TOO_LARGE);
    cr_assert_str_eq(b.data, "0123456789");
    cr_assert_eq(buf_addf(&b, &err, "%d", 1), -1);
    cr_assert_eq(buf_reserve(&b, SIZE_MAX, &err), -1);
    cr_assert_eq(b.len, 10);
    buf_drop(&b, 4);
    cr_assert_str_eq(b.data, "456789");
    cr_assert_eq(buf_addf(&b, &err, "%s", "abcd"), 0);
    cr_assert_str_eq(b.data, "456789abcd");
    buf_drop(&b, 10);
    cr_assert_str_eq(b.data, "");
    cr_assert_eq(buf_add(&b, "a\0b", 3, &err), 0);
    char *stolen = buf_steal(&b);
    cr_assert_eq(memcmp(stolen, "a\0b", 4), 0);
    cr_assert_null(b.data);
    cr_assert_eq(b.max, 10);
    cr_assert_null(buf_steal(&b));
    free(stolen);
    buf_drop(&b, 0);
    buf_free(&b);
}

Test(buf, grows_from_byte_to_megabyte)
{
    struct buf b = BUF_INIT(1 << 20);
    struct err err;
    size_t n = 0;

    while (buf_add(&b, "0123456", 7, &err) == 0)
        n += 7;
    cr_assert_eq(n, (size_t)((1 << 20) / 7 * 7));
    cr_assert_eq(b.len, n);
    cr_assert_leq(b.cap, b.max + 1);
    buf_free(&b);
}

static const struct {
    const char *s;
    bool valid;
} utf8_rows[] = {
    {"", true},
    {"a", true},
    {"\x7F", true},
    {"\xC2\x80", true},
    {"\xDF\xBF", true},
    {"\xE0\xA0\x80", true},
    {"\xED\x9F\xBF", true},
    {"\xEE\x80\x80", true},
    {"\xEF\xBF\xBF", true},
    {"\xF0\x90\x80\x80", true},
    {"\xF4\x8F\xBF\xBF", true},
    {"\xC0\x80", false},         /* overlong NUL */
    {"\xC1\xBF", false},         /* overlong */
    {"\xE0\x9F\xBF", false},     /* overlong */
    {"\xF0\x8F\xBF\xBF", false}, /* overlong */
    {"\xED\xA0\x80", false},     /* surrogate */
    {"\xED\xBF\xBF", false},     /* surrogate */
    {"\xF4\x90\x80\x80", false}, /* beyond U+10FFFF */
    {"\xF5\x80\x80\x80", false},
    {"\xFF", false},
    {"\x80", false}, /* lone continuation */
    {"\xC2", false}, /* cut */
    {"\xE2\x82", false},
    {"\xF0\x9F\x98", false},
    {"\xC2\x41", false},
    {"\xE2\x28\xA1", false},
    {"\xF0\x90\x80\x41", false},
};

Test(utf8, validity_of_every_edge)
{
    for (size_t i = 0; i < ARRAY_LEN(utf8_rows); i++) {
        const char *s = utf8_rows[i].s;
        cr_assert_eq(utf8_valid(s, strlen(s)), utf8_rows[i].valid, "row %zu", i);
        char *clean = utf8_sanitize(s, strlen(s));
        cr_assert(utf8_valid(clean, strlen(clean)), "row %zu", i);
        cr_assert_eq(strcmp(clean, s) == 0, utf8_rows[i].valid, "row %zu", i);
        free(clean);
    }
}

Test(utf8, sanitize_replaces_nul_and_keeps_neighbours)
{
    char *clean = utf8_sanitize("a\0b\xFF"
                                "c",
                                5);
    cr_assert_str_eq(clean, "a\xEF\xBF\xBD"
                            "b\xEF\xBF\xBD"
                            "c");
    free(clean);
}

Test(utf8, counts_and_cuts_between_characters)
{
    const char *s = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z"; /* 1 2 3 4 1 bytes */
    size_t len = strlen(s);
    static const size_t ends[] = {0, 1, 3, 6, 10, 11};

    cr_assert_eq(utf8_chars(s, len), 5);
    cr_assert_eq(utf8_chars("", 0), 0);
    for (size_t n = 0; n <= len + 2; n++) {
        size_t want = 0;
        for (size_t i = 0; i < ARRAY_LEN(ends); i++)
            if (ends[i] <= n)
                want = ends[i];
        cr_assert_eq(utf8_cut_bytes(s, len, n), want, "%zu bytes", n);
    }
    for (size_t n = 0; n < ARRAY_LEN(ends); n++)
        cr_assert_eq(utf8_cut_chars(s, len, n), ends[n], "%zu characters", n);
    cr_assert_eq(utf8_cut_chars(s, len, SIZE_MAX), len);
}

Test(utf8, control_characters_are_c0_del_and_c1)
{
    for (unsigned c = 0; c < 0x110; c++) {
        char s[8] = "x";
        size_t len = c < 0x80 ? 2 : 3;
        bool control = c < 0x20 || (c >= 0x7F && c < 0xA0);
        if (c < 0x80) {
            s[1] = (char)c;
        } else {
            s[1] = (char)(0xC0 | c >> 6);
            s[2] = (char)(0x80 | (c & 0x3F));
        }
        cr_assert_eq(utf8_has_control(s, len), control, "U+%04X", c);
        char *safe = utf8_escape_control(s, len);
        cr_assert_not(utf8_has_control(safe, strlen(safe)), "U+%04X", c);
        char want[16];
        snprintf(want, sizeof want, control ? "x\\x%02x" : "%.*s", control ? (int)c : (int)len, s);
        cr_assert_str_eq(safe, want, "U+%04X", c);
        free(safe);
    }
    /* 0x85 inside another character is no control. */
    cr_assert_not(utf8_has_control("\xC3\x85", 2));
}

/* The text of the refusal, or "" when it is accepted. */
static const char *refusal(const char *text, size_t len)
{
    static struct err err;
    json_t *v = NULL;

    err = (struct err){0};
    if (json_parse(text, len, &v, &err) == 0)
        cr_assert_not_null(v);
    else
        cr_assert_eq(err.code, ERR_INVALID_JSON, "%s", err.text);
    json_decref(v);
    return err.text;
}

Test(json, refuses_what_it_cannot_hold_with_line_and_column)
{
    static const char *const bad[] = {
        "",
        "{",
        "{\"a\":1,\n \"a\":2}", /* duplicate */
        "\"\\u0000\"",          /* NUL */
        "{\"\\u0000\":1}",      /* NUL in a key */
        "1e999",                /* out of range */
        "-1e999",
        "9223372036854775808", /* beyond int64 */
        "-9223372036854775809",
        "{} x", /* text after the value */
        "{}{}",
        "\"\xFF\"",    /* not UTF-8 */
        "\"\\ud800\"", /* lone surrogate */
        "\"\xED\xA0\x80\"",
        "\"a\nb\"", /* raw control character */
        "01",
        "nul",
        "[1,]",
        "'a'",
        "\xEF\xBB\xBF{}", /* BOM */
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        unsigned line = 0, column = 0;
        const char *why = refusal(bad[i], strlen(bad[i]));
        cr_assert_eq(sscanf(why, "line %u, column %u: ", &line, &column), 2, "%s: \"%s\"", bad[i], why);
        cr_assert_geq(line, 1);
    }
    cr_assert_eq(strncmp(refusal("{\"a\":1,\n \"a\":2}", 15), "line 2, ", 8), 0);
    cr_assert(strlen(refusal("\"a\0b\"", 5)) > 0, "a raw NUL");
}

Test(json, a_refusal_does_not_repeat_the_text)
{
    static const char *const bad[] = {"{\"a\": password1}", "[\"password1", "{\"password1\\q\":1}",
                                      "{\"password1\" 5}", "\"password1\" \"password1\""};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        const char *why = refusal(bad[i], strlen(bad[i]));
        cr_assert(strlen(why) > 0 && !strstr(why, "password"), "%s", why);
    }
}

Test(json, accepts_any_type_at_the_top)
{
    static const char *const good[] = {
        "{}",    "[]",   "\"\"", "1",      "-9223372036854775808", "9223372036854775807",
        "1e308", "true", "null", " [1] \n"};
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        cr_assert_str_eq(refusal(good[i], strlen(good[i])), "", "%s", good[i]);
}

Test(json, depth_64_is_the_last)
{
    char text[4096];

    for (int kind = 0; kind < 2; kind++)
        for (int depth = 63; depth <= 65; depth++) {
            size_t n = 0;
            for (int i = 0; i < depth; i++)
                n += (size_t)snprintf(text + n, sizeof text - n,
                                      kind            ? "["
                                      : i + 1 < depth ? "{\"a\":"
                                                      : "{");
            for (int i = 0; i < depth; i++)
                text[n++] = kind ? ']' : '}';
            const char *why = refusal(text, n);
            cr_assert_eq(why[0] == '\0', depth <= 64, "depth %d: %s", depth, why);
            if (depth > 64)
                cr_assert_eq(strncmp(why, "line 1, column ", 15), 0, "%s", why);
        }
    /* Brackets in strings are no depth, also behind an escaped quote. */
    memset(text, '[', 200);
    memcpy(text, "[\"\\\"", 4);
    memcpy(text + 200, "\"]", 3);
    cr_assert_str_eq(refusal(text, 202), "");
}

Test(json, a_hundred_thousand_brackets_cost_no_stack)
{
    char *text = malloc(300000);
    memset(text, '[', 300000);
    cr_assert(strlen(refusal(text, 300000)) > 0);
    free(text);
}

Test(json, pointer_escapes_and_is_bounded)
{
    struct buf p = BUF_INIT(12);
    struct err err;

    cr_assert_eq(json_pointer_add(&p, "a/b~c", &err), 0);
    cr_assert_str_eq(p.data, "/a~1b~0c");
    cr_assert_eq(json_pointer_add(&p, "", &err), 0);
    cr_assert_str_eq(p.data, "/a~1b~0c/");
    cr_assert_eq(json_pointer_add(&p, "long", &err), -1);
    cr_assert_eq(err.code, ERR_TOO_LARGE);
    buf_free(&p);
}

Test(json, faults_are_bounded_but_all_counted)
{
    struct json_faults faults = {0};

    for (int i = 0; i < 40; i++)
        json_fault(&faults, "/x", "fault %d", i);
    cr_assert_eq(faults.total, 40);
    cr_assert_eq(json_array_size(faults.list), JSON_FAULTS_MAX);
    json_faults_free(&faults);
    cr_assert_eq(faults.total, 0);
    json_faults_free(&faults);
}

Test(json, a_fault_with_any_text_is_listed)
{
    struct json_faults faults = {0};
    char text[2000];

    for (size_t i = 0; i + 2 < sizeof text; i += 2)
        memcpy(text + i, "\xC3\xA9", 3);
    json_fault(&faults, "/long", "x%s", text); /* cut at an odd byte */
    json_fault(&faults, "/longer", "%s", text);
    json_fault(&faults, "/bytes", "\xFF\xFE");
    json_fault(&faults, "/poin\xFFter", "x");
    cr_assert_eq(json_array_size(faults.list), 4);
    for (size_t i = 0; i < 4; i++)
        cr_assert_not_null(json_str(json_array_get(faults.list, i), "detail"), "%zu", i);
    json_faults_free(&faults);
}

Test(clock, rfc3339_and_deadlines)
{
    char out[CLOCK_RFC3339_SIZE];

    cr_assert_str_eq(clock_rfc3339(0, out), "1970-01-01T00:00:00.000Z");
    cr_assert_str_eq(clock_rfc3339(1769860800123, out), "2026-01-31T12:00:00.123Z");
    cr_assert_str_eq(clock_rfc3339(951782399999, out), "2000-02-28T23:59:59.999Z");
    cr_assert_eq(clock_left_ms(clock_mono_ms() - 1), 0);
    cr_assert_eq(clock_left_ms(INT64_MAX), INT_MAX);
    int left = clock_left_ms(clock_mono_ms() + 1000);
    cr_assert(left > 0 && left <= 1000, "%d", left);
    int64_t before = clock_mono_us();
    clock_sleep_ms(5);
    cr_assert_geq(clock_mono_us() - before, 5000);
}

Test(id, is_hex_of_its_size_and_never_the_same)
{
    char a[ID_HEX_128], b[ID_HEX_128], turn[40], small[8];

    for (int i = 0; i < 1000; i++) {
        id_hex(a, 16);
        id_hex(b, 16);
        cr_assert_eq(strspn(a, "0123456789abcdef"), 32);
        cr_assert_eq(strlen(a), 32);
        cr_assert_str_neq(a, b);
    }
    id_new("turn_", turn, sizeof turn);
    cr_assert_eq(strlen(turn), 37);
    cr_assert_eq(strncmp(turn, "turn_", 5), 0);
    id_new("turn_", small, sizeof small);
    cr_assert_eq(strlen(small), 7);
}

Test(id, in_time_grow_and_differ)
{
    char before[40], after[40];
    int64_t start = clock_wall_ms();

    id_new_in_time("turn_", before, sizeof before);
    cr_assert_eq(strlen(before), 37);
    cr_assert_eq(strspn(before + 5, "0123456789abcdef"), 32);
    char first[13] = "";
    memcpy(first, before + 5, 12);
    int64_t ms = (int64_t)strtoull(first, NULL, 16);
    cr_assert(ms >= start && ms <= clock_wall_ms());
    for (int i = 0; i < 1000; i++) {
        id_new_in_time("turn_", after, sizeof after);
        cr_assert(strncmp(after, before, 17) >= 0, "%s after %s", after, before);
        cr_assert_str_neq(after + 17, before + 17);
        memcpy(before, after, sizeof before);
    }
}

Test(secret, copies_compares_and_hashes)
{
    struct err err;
    struct secret s = {0};
    char hex[SHA256_HEX_SIZE];

    cr_assert_eq(secret_init(&err), 0);
    cr_assert_eq(secret_set(&s, "correct horse", 13, &err), 0);
    cr_assert_str_eq(s.data, "correct horse");
    cr_assert_eq(secret_set(&s, s.data, 7, &err), 0, "from itself");
    cr_assert_str_eq(s.data, "correct");
    cr_assert_eq(s.len, 7);
    cr_assert(secret_equal(s.data, "correct", 7));
    cr_assert_not(secret_equal(s.data, "correcT", 7));
    cr_assert_eq(secret_set(&s, "", 0, &err), 0);
    cr_assert_str_eq(s.data, "");
    secret_free(&s);
    cr_assert_null(s.data);
    secret_free(&s);
    secret_sha256_hex("abc", 3, hex);
    cr_assert_str_eq(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    char word[] = "password";
    secret_wipe(word, sizeof word);
    cr_assert_eq(memcmp(word, "\0\0\0\0\0\0\0\0", 9), 0);
}

Test(utf8, a_ragged_end_is_an_incomplete_character)
{
    static const struct {
        const char *text;
        size_t len, want;
    } cases[] = {{"a", 1, 0},
                 {"\xC3\xA9", 2, 0},
                 {"a\xC3", 2, 1},
                 {"\xE2\x82", 2, 2},
                 {"\xF0\x9D\x84", 3, 3},
                 {"\xF0\x9D\x84\x9E", 4, 0},
                 {"\x80\x80", 2, 0},
                 {"", 0, 0}};

    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        cr_assert_eq(utf8_ragged(cases[i].text, cases[i].len), cases[i].want, "%zu", i);
}

/* One line of the log, without its newline. */
static void logged(const char *subject, const char *message, char *ret, size_t size)
{
    int ends[2], error = dup(STDERR_FILENO);

    cr_assert(error >= 0 && pipe(ends) == 0 && dup2(ends[1], STDERR_FILENO) >= 0);
    log_line(LOG_INFO, subject, "%s", message);
    cr_assert_geq(dup2(error, STDERR_FILENO), 0);
    close(ends[1]);
    ssize_t n = read(ends[0], ret, size); /* one write(2) */
    cr_assert(n > 0 && ret[n - 1] == '\n');
    ret[n - 1] = '\0';
    close(ends[0]);
    close(error);
}

Test(log, the_longest_id_is_whole)
{
    char id[129], line[4096];
    struct err err;

    memset(id, 'x', 128);
    id[128] = '\0';
    logged(id, "\"said\"\n", line, sizeof line);
    CLEANUP(json_free) json_t *value = NULL;
    cr_assert_eq(json_parse(line, strlen(line), &value, &err), 0, "%s: %s", err.text, line);
    cr_assert_str_eq(json_str(value, "id"), id);
    cr_assert_str_eq(json_str(value, "msg"), "\"said\"\n");
}
