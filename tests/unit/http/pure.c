#include "http/rawhead.h"
#include "http/router.h"
#include "http/trace.h"
#include "http/uri.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static enum http_result none(struct http_req *req)
{
    (void)req;
    return HTTP_DONE;
}

static const struct http_route routes[] = {
    {"GET", "/v1/channels", 0, 0, NULL, none},
    {"GET", "/v1/channels/{key}", 0, 0, NULL, none},
    {"PUT", "/v1/channels/{key}", 0, 10, NULL, none},
    {"POST", "/v1/channels/{key}/reset", 0, 0, NULL, none},
    {0},
};

static enum err_code find(const char *method, const char *path, char *key, char allow[96])
{
    struct http_match m = {0};
    struct err err = {0};

    if (router_find(routes, method, path, strlen(path), &m, allow, &err) < 0)
        return err.code;
    strcpy(key, m.count > 0 ? m.params[0].value : "");
    router_match_free(&m);
    return ERR_NONE;
}

Test(router, finds_and_decodes_after_splitting)
{
    char key[64], allow[96];

    cr_assert_eq(find("GET", "/v1/channels/web%3Alobby", key, allow), ERR_NONE);
    cr_assert_str_eq(key, "web:lobby");
    cr_assert_eq(find("POST", "/v1/channels/web:a%2Fb/reset", key, allow), ERR_NONE);
    cr_assert_str_eq(key, "web:a/b");
    cr_assert_eq(find("HEAD", "/v1/channels", key, allow), ERR_NONE);
    cr_assert_eq(find("GET", "/v1/channels/web:a+b%2Freset", key, allow), ERR_NONE);
    cr_assert_str_eq(key, "web:a+b/reset");
}

Test(router, refuses)
{
    char key[64], allow[96];
    static const char *const unknown[] = {"/",
                                          "/v1",
                                          "/v1/",
                                          "/v1/channels/",
                                          "/v1//channels",
                                          "/v1/channels/a/b",
                                          "/v1/%63hannels",
                                          "/V1/channels",
                                          "/v1/channels/a/reset/",
                                          "//v1/channels"};
    for (size_t i = 0; i < ARRAY_LEN(unknown); i++)
        cr_assert_eq(find("GET", unknown[i], key, allow), ERR_NOT_FOUND, "%s", unknown[i]);
    static const char *const broken[] = {"/v1/channels/%",        "/v1/channels/%4",  "/v1/channels/%zz",
                                         "/v1/channels/a%00",     "/v1/channels/%ff", "/v1/channels/%c0%af",
                                         "/v1/channels/%ed%a0%80"};
    for (size_t i = 0; i < ARRAY_LEN(broken); i++)
        cr_assert_eq(find("GET", broken[i], key, allow), ERR_BAD_REQUEST, "%s", broken[i]);
    cr_assert_eq(find("DELETE", "/v1/channels/a", key, allow), ERR_METHOD);
    cr_assert_str_eq(allow, "GET, HEAD, PUT, OPTIONS");
}

Test(uri, splits)
{
    struct uri u;
    struct err err;

    cr_assert_eq(uri_split("/a/b?x=1&y", &u, &err), 0);
    cr_assert_eq(u.path_len, 4u);
    cr_assert_eq(u.query_len, 5u);
    cr_assert_eq(uri_split("http://host:80/a", &u, &err), 0);
    cr_assert_eq(u.path_len, 2u);
    cr_assert_null(u.query);
    static const char *const bad[] = {"",      "a",      "host:443",    "/a b", "/a\tb", "/a#f",
                                      "/\x80", "/a\x7f", "http://host", "*",    "/a\\b"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        cr_assert_eq(uri_split(bad[i], &u, &err), -1, "%s", bad[i]);
    char longest[5000];
    memset(longest, 'a', sizeof longest - 1);
    longest[0] = '/';
    longest[sizeof longest - 1] = '\0';
    cr_assert_eq(uri_split(longest, &u, &err), -1);
    cr_assert_eq(err.code, ERR_URI_TOO_LONG);
}

Test(trace, continues_or_starts)
{
    char out[TRACEPARENT_SIZE], again[TRACEPARENT_SIZE];
    static const char good[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

    trace_continue(good, out);
    cr_assert_eq(strlen(out), 55u);
    cr_assert_eq(strncmp(out, good, 36), 0);
    cr_assert_neq(strncmp(out + 36, good + 36, 16), 0);
    cr_assert_str_eq(out + 52, "-00");
    static const char *const bad[] = {"",
                                      "00",
                                      "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-00",
                                      "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00",
                                      "00-00000000000000000000000000000000-00f067aa0ba902b7-00",
                                      "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-00",
                                      "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00-x",
                                      "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7_00"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        trace_continue(bad[i], again);
        cr_assert_eq(strlen(again), 55u);
        cr_assert_neq(strncmp(again, good, 36), 0, "%s", bad[i]);
    }
    trace_continue("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more", again);
    cr_assert_eq(strncmp(again, good, 36), 0);
}

Test(trace, request_ids)
{
    char out[REQUEST_ID_SIZE], longest[REQUEST_ID_SIZE + 1];

    request_id_accept("a.B-9_", out);
    cr_assert_str_eq(out, "a.B-9_");
    memset(longest, 'a', REQUEST_ID_SIZE);
    longest[REQUEST_ID_SIZE] = '\0';
    request_id_accept(longest, out);
    cr_assert_eq(strncmp(out, "req_", 4), 0);
    longest[REQUEST_ID_SIZE - 1] = '\0';
    request_id_accept(longest, out);
    cr_assert_str_eq(out, longest);
    request_id_accept("a b", out);
    cr_assert_eq(strncmp(out, "req_", 4), 0);
    request_id_accept(NULL, out);
    cr_assert_eq(strncmp(out, "req_", 4), 0);
}

Test(rawhead, length)
{
    static const struct {
        const char *data;
        size_t length;
    } cases[] = {{"", 0},         {"GET / HTTP/1.1\r\n", 0},    {"GET / HTTP/1.1\r\n\r\n", 18},
                 {"a\n\nb", 3},   {"a\r\n\r\nbody\r\n\r\n", 5}, {"\r\n\r\na\r\n\r\n", 9},
                 {"a\r\n\r", 0},  {"a\r\nb: c\r\n\n", 10},      {"\r\n\r\n", 0},
                 {"a\r\n\nb", 4}, {"a\r\nb: \n c\r\n\r\n", 13}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        cr_expect_eq(rawhead_length(cases[i].data, strlen(cases[i].data)), cases[i].length, "%zu", i);
}

static enum err_code check_repeated(const char *before, const char *part, unsigned times, const char *after)
{
    static char head[16384];
    struct err err = {0};
    size_t at = (size_t)snprintf(head, sizeof head, "%s", before);

    while (times-- > 0)
        at += (size_t)snprintf(head + at, sizeof head - at, "%s", part);
    at += (size_t)snprintf(head + at, sizeof head - at, "%s", after);
    cr_assert_eq(rawhead_length(head, at), at);
    return rawhead_check(head, at, &err) == 0 ? ERR_NONE : err.code;
}

/* The library takes memory for each part, however short. */
Test(rawhead, parts_are_counted)
{
    static const struct {
        const char *before, *part, *after;
        unsigned most;
        enum err_code code;
    } cases[] = {
        {"GET / HTTP/1.1\r\n", "a:b\r\n", "\r\n", 100, ERR_HEAD_TOO_LARGE},
        {"GET /?a", "&a", " HTTP/1.1\r\n\r\n", 15, ERR_BAD_REQUEST},
        {"GET /?", "&", " HTTP/1.1\r\n\r\n", 15, ERR_BAD_REQUEST},
        {"GET /?a", "&b=c?d", " HTTP/1.1\r\n\r\n", 15, ERR_BAD_REQUEST},
        {"GET / HTTP/1.1\r\nCOOKIE: a=b", "; a=b", "\r\n\r\n", 31, ERR_HEAD_TOO_LARGE},
        {"GET / HTTP/1.1\r\ncookie:", ",", "\r\n\r\n", 31, ERR_HEAD_TOO_LARGE},
        {"GET / HTTP/1.1\r\nCookie:", "a", "\r\n\r\n", 4096, ERR_HEAD_TOO_LARGE},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        for (unsigned more = 0; more < 2; more++)
            cr_expect_eq(check_repeated(cases[i].before, cases[i].part, cases[i].most + more, cases[i].after),
                         more ? cases[i].code : ERR_NONE, "%zu, %u more", i, more);
    }
    cr_expect_eq(check_repeated("GET /", "&", 100, " HTTP/1.1\r\nX:?&&&&&&&&&&&&&&&&&;\r\n\r\n"), ERR_NONE,
                 "in the path, or in a value");
}

/* Every prefix and every single changed byte of a sound head: never a crash, and no control byte passes. */
Test(rawhead, mutations)
{
    static const char sound[] = "POST /a?b=c HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\nX-Y: \tz\r\n\r\n";
    size_t len = sizeof sound - 1;
    struct err err;

    cr_assert_eq(rawhead_check(sound, len, &err), 0, "%s", err.text);
    for (size_t cut = 0; cut < len; cut++)
        cr_expect_eq(rawhead_length(sound, cut), 0u, "%zu", cut);
    for (size_t at = 0; at < len; at++) {
        for (int byte = 0; byte < 256; byte++) {
            char *head = malloc(len); /* of its exact size, for the sanitizer */
            memcpy(head, sound, len);
            head[at] = (char)byte;
            size_t whole = rawhead_length(head, len);
            bool passes = whole > 0 && rawhead_check(head, whole, &err) == 0;
            bool control = (byte < 0x20 && byte != '\t') || byte == 0x7F;
            if (control && sound[at] != byte)
                cr_expect(!passes, "byte 0x%02x at %zu passes", byte, at);
            free(head);
        }
    }
}
