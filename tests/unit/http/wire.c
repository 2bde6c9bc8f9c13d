/* Over real sockets: what a client sees, and what an attacker may not make of it. */
#include "peer.h"

#include "base/clock.h"

#include <stdio.h>
#include <sys/socket.h>

static struct fixture f;

static void start(void)
{
    fixture_start(&f, NULL);
}

static void stop(void)
{
    fixture_stop(&f);
}

TestSuite(wire, .init = start, .fini = stop, .timeout = 60);

#define HOST "Host: a\r\n"

/* {request, status, what the answer contains} */
struct wire_case {
    const char *request;
    int status;
    const char *contains;
};

static void check(const struct wire_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *answer = peer_ask(&f, cases[i].request);
        cr_expect_eq(peer_status(answer), cases[i].status, "%s\n→ %s", cases[i].request, answer);
        cr_expect(!cases[i].contains || strstr(answer, cases[i].contains), "%s\n→ %s", cases[i].request,
                  answer);
        if (cases[i].status >= 400)
            cr_expect(strstr(answer, "application/problem+json"), "%s\n→ %s", cases[i].request, answer);
        cr_expect(strstr(answer, "X-Request-Id: "), "%s\n→ %s", cases[i].request, answer);
        const char *end = strstr(answer, "\r\n\r\n");
        cr_expect(end && !strstr(end, "HTTP/1.1 "), "more than one answer: %s\n→ %s", cases[i].request,
                  answer);
    }
}

Test(wire, answers)
{
    static const struct wire_case cases[] = {
        {"GET /hello HTTP/1.1\r\n" HOST "\r\n", 200, "X-Request-Id: req_"},
        {"GET /hello HTTP/1.1\r\n" HOST "X-Request-Id: abc-1\r\n\r\n", 200, "X-Request-Id: abc-1\r\n"},
        {"\r\n\r\nGET /hello HTTP/1.1\r\n" HOST "\r\n", 200, "hello"},
        {"GET http://a/hello HTTP/1.1\r\n" HOST "\r\n", 200, "hello"},
        {"GET /hello HTTP/1.0\r\n\r\n", 200, "hello"},
        {"HEAD /hello HTTP/1.1\r\n" HOST "\r\n", 200, "Content-Length: 5"},
        {"OPTIONS /items/a HTTP/1.1\r\n" HOST "\r\n", 204, "Allow: GET, HEAD, PUT, OPTIONS\r\n"},
        {"OPTIONS * HTTP/1.1\r\n" HOST "\r\n", 204, "Allow: "},
        {"DELETE /items/a HTTP/1.1\r\n" HOST "\r\n", 405, "Allow: GET, HEAD, PUT, OPTIONS\r\n"},
        {"PROPFINDABCDEFGHIJ /items/a HTTP/1.1\r\n" HOST "\r\n", 405, "Allow: GET, HEAD, PUT, OPTIONS\r\n"},
        {"GET /nothing HTTP/1.1\r\n" HOST "\r\n", 404, "\"type\":\"/problems/not_found\""},
        {"GET /items/web:a%2Fb%2f?limit=7 HTTP/1.1\r\n" HOST "\r\n", 200,
         "\"key\":\"web:a/b/\",\"limit\":\"7\""},
        {"GET /items/a%00b HTTP/1.1\r\n" HOST "\r\n", 400, "%00"},
        {"GET /items/%ff HTTP/1.1\r\n" HOST "\r\n", 400, "UTF-8"},
        {"GET /items/a?limt=7 HTTP/1.1\r\n" HOST "\r\n", 400, "limt"},
        {"GET /items/a?limit=7&limit=8 HTTP/1.1\r\n" HOST "\r\n", 400, "twice"},
        {"GET /closed HTTP/1.1\r\n" HOST "\r\n", 401, "WWW-Authenticate: Bearer\r\n"},
        {"GET /closed HTTP/1.1\r\n" HOST "Authorization: x\r\n\r\n", 200, "hello"},
        {"GET /fail HTTP/1.1\r\n" HOST "\r\n", 503, "Retry-After: 1\r\n"},
        {"GET /no-memory HTTP/1.1\r\n" HOST "\r\n", 503, "Retry-After: 1\r\n"},
        {"GET /items/a HTTP/1.1\r\n" HOST
         "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n\r\n",
         200, "00-4bf92f3577b34da6a3ce929d0e0e4736-"},
    };
    check(cases, ARRAY_LEN(cases));
    cr_assert_null(strstr(peer_ask(&f, "GET /fail HTTP/1.1\r\n" HOST "\r\n"), "SECRET"));
}

#define JSON "Content-Type: application/json\r\n"

#define TRACE "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

/* Which of the two is meant nobody knows: neither. */
Test(wire, two_traces_are_none)
{
    const char *answer = peer_ask(&f, "GET /items/a HTTP/1.1\r\n" HOST "traceparent: " TRACE
                                      "\r\nTraceparent: " TRACE "\r\n\r\n");

    cr_assert_eq(peer_status(answer), 200, "%s", answer);
    cr_assert(strstr(answer, "\"trace\":\"00-") && !strstr(answer, "4bf92f35"), "%s", answer);
}

Test(wire, bodies)
{
    static const struct wire_case cases[] = {
        {"POST /echo HTTP/1.1\r\n" HOST JSON "Content-Length: 7\r\n\r\n{\"a\":1}", 200, "{\"a\":1}"},
        {"POST /echo HTTP/1.1\r\n" HOST
         "content-type: Application/JSON; charset=utf-8\r\nContent-Length: 2\r\n\r\n[]",
         200, "[]"},
        {"POST /echo HTTP/1.1\r\n" HOST JSON
         "Transfer-Encoding: chunked\r\n\r\n3\r\n{\"a\r\n4\r\n\":1}\r\n0\r\n\r\n",
         200, "{\"a\":1}"},
        {"POST /echo HTTP/1.1\r\n" HOST JSON "\r\n", 400, "invalid_json"},
        {"POST /echo HTTP/1.1\r\n" HOST JSON "Content-Length: 2\r\n\r\n{]", 400, "line 1"},
        {"POST /echo HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\n{}", 415, NULL},
        {"POST /echo HTTP/1.1\r\n" HOST "Content-Type: application/jsonx\r\nContent-Length: 2\r\n\r\n{}", 415,
         NULL},
        {"POST /echo HTTP/1.1\r\n" HOST JSON "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", 415,
         NULL},
        {"GET /hello HTTP/1.1\r\n" HOST JSON "Content-Length: 2\r\n\r\n{}", 413, "takes no body"},
        {"GET /hello HTTP/1.1\r\n" HOST JSON "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 413,
         NULL},
        {"POST /echo HTTP/1.1\r\n" HOST JSON "Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n", 413,
         NULL},
        {"POST /nothing HTTP/1.1\r\n" HOST JSON "Content-Length: 2\r\n\r\n{}", 404, NULL},
    };
    check(cases, ARRAY_LEN(cases));
}

/* {head, how many bytes follow}: each is told 413 although the client sends on. */
Test(wire, too_large)
{
    static char body[4 * 1024 * 1024];
    static const struct {
        size_t length;
        bool chunked;
    } cases[] = {{65537, false}, {900000, false}, {3000000, false},
                 {65537, true},  {900000, true},  {3000000, true}};
    char head[256];

    memset(body, ' ', sizeof body);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int fd = peer_connect(&f);
        if (cases[i].chunked)
            snprintf(head, sizeof head,
                     "POST /echo HTTP/1.1\r\n" HOST JSON "Transfer-Encoding: chunked\r\n\r\n%zx\r\n",
                     cases[i].length);
        else
            snprintf(head, sizeof head, "POST /echo HTTP/1.1\r\n" HOST JSON "Content-Length: %zu\r\n\r\n",
                     cases[i].length);
        peer_send(fd, head);
        peer_send_bytes(fd, body, cases[i].length);
        if (cases[i].chunked)
            peer_send(fd, "\r\n0\r\n\r\n");
        const char *answer = peer_read(fd, "body_too_large");
        cr_expect_eq(peer_status(answer), 413, "%zu: %s", cases[i].length, answer);
        close(fd);
    }
    /* Exactly the limit passes. */
    int fd = peer_connect(&f);
    peer_send(fd, "POST /echo HTTP/1.1\r\n" HOST JSON "Content-Length: 65536\r\n\r\n[1]");
    peer_send_bytes(fd, body, 65533);
    cr_expect_eq(peer_status(peer_read(fd, "[1]")), 200);
    close(fd);
}

Test(wire, smuggling)
{
    static const struct wire_case cases[] = {
        {"POST /echo HTTP/1.1\r\n" HOST JSON
         "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
         400, NULL},
        {"POST /echo HTTP/1.1\r\n" HOST JSON
         "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
         400, NULL},
        {"POST /echo HTTP/1.1\r\n" HOST JSON "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ", 400, NULL},
        {"POST /echo HTTP/1.1\r\n" HOST JSON "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 400, NULL},
        {"POST /echo HTTP/1.1\r\n" HOST JSON "Transfer-Encoding: gzip\r\n\r\n{}", 400, NULL},
        {"POST /echo HTTP/1.1\r\n" HOST JSON "Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
         400, NULL},
        {"POST /echo HTTP/1.1\r\n" HOST JSON "Transfer-Encoding: xchunked\r\n\r\n{}", 400, NULL},
        {"POST /echo HTTP/1.1\r\n" HOST JSON "Transfer-Encoding:\x0b"
         "chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
         400, NULL},
        {"POST /echo HTTP/1.1\r\n" HOST JSON
         "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
         400, NULL},
        {"POST /echo HTTP/1.0\r\n" HOST JSON "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 400,
         NULL},
        {"POST /echo HTTP/1.1\r\n" HOST JSON "Transfer-Encoding : chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 400,
         NULL},
        {"POST /echo HTTP/1.1\r\n" HOST JSON "Transfer-Encoding:\r\n chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
         400, NULL},
        {"GET /hello HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, "twice"},
        {"GET /hello HTTP/1.1\r\n\r\n", 400, "no Host"},
        {"GET /hello HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", 400, NULL},
        {"GET /hello HTTP/1.1\nHost: a\r\n\r\n", 400, NULL},
        {"GET /hello HTTP/1.1\r\nHost: a\r\n\nGET /hello HTTP/1.1\r\nHost: a\r\n\r\n", 400, NULL},
        {"GET /hello HTTP/1.1\r\nHost: a\n\nGET /hello HTTP/1.1\r\nHost: a\r\n\r\n", 400, NULL},
        {"GET /hello HTTP/1.1\r\nHost: a\r\n\n", 400, NULL},
        {"GET /hello HTTP/1.1\r\nHost: a\n\n", 400, NULL},
        {"GET /hello\r\n\r\n", 400, NULL},
        {"GET  /hello HTTP/1.1\r\n" HOST "\r\n", 400, NULL},
        {"GET /hello HTTP/2.0\r\n" HOST "\r\n", 400, NULL},
        {"GET /hello HTTP/1.1 \r\n" HOST "\r\n", 400, NULL},
        {"GET /hello HTTP/1.1\r\n" HOST "no colon\r\n\r\n", 400, NULL},
        {"GET /hello HTTP/1.1\r\n" HOST ": empty\r\n\r\n", 400, NULL},
        {"POST /echo HTTP/1.1\r\n" HOST JSON "Content-Length: -2\r\n\r\n{}", 400, NULL},
        {"POST /echo HTTP/1.1\r\n" HOST JSON "Content-Length: 2,2\r\n\r\n{}", 400, NULL},
        {"POST /echo HTTP/1.1\r\n" HOST JSON "Content-Length: 0x2\r\n\r\n{}", 400, NULL},
        {"POST /echo HTTP/1.1\r\n" HOST JSON "Content-Length: 99999999999999999999\r\n\r\n{}", 400, NULL},
        {"GET /hello HTTP/1.1\r\nHost: a\r\nX: y", 400, "middle"},
        {"\r\nrubbish\r\n\r\n", 400, NULL},
        {"GET /hello HTTP/1.0\n\nGET /hello HTTP/1.1\r\nHost: a\r\n\r\n", 400, NULL},
        {"POST /echo HTTP/1.1\r\n" HOST JSON "Content-Length: 2\r\n\n{}", 400, NULL},
        {"GET /hello HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", 400, NULL},
        {"GET /hello HTTP/1.1\r\nHost: a\r\nX: a\x01z\r\n\r\n", 400, NULL},
        {"GET /hello HTTP/1.1\r\nHost: a\r\nX: a\rz\r\n\r\n", 400, NULL},
        {"GET /hello HTTP/1.1\r\nHost: a\r\nX y: a\r\n\r\n", 400, NULL},
        {"GET /hello HTTP/1.1\r\nHost: a\r\nAuthorization: a\r\nAuthorization: b\r\n\r\n", 400, NULL},
        {"GET /hel lo HTTP/1.1\r\n" HOST "\r\n", 400, NULL},
        {"GET /hello#x HTTP/1.1\r\n" HOST "\r\n", 400, NULL},
        {"GET /hello HTTP/1.1\r\n" HOST "Expect: 100-continue\r\n\r\nGET /hello HTTP/1.1\r\n" HOST "\r\n",
         400, "without a body"},
        {"CONNECT a:443 HTTP/1.1\r\n" HOST "\r\n", 400, NULL},
    };
    check(cases, ARRAY_LEN(cases));
}

Test(wire, nul_in_head_is_refused)
{
    static const char request[] = "GET /hello HTTP/1.1\r\nHost: a\r\nX: a\0z\r\n\r\n";
    int fd = peer_connect(&f);

    peer_send_bytes(fd, request, sizeof request - 1);
    shutdown(fd, SHUT_WR);
    cr_expect_eq(peer_status(peer_read(fd, NULL)), 400);
    close(fd);
}

Test(wire, large_heads)
{
    static char head[10 * 1024 * 1024];
    size_t at = (size_t)snprintf(head, sizeof head, "GET /hello HTTP/1.1\r\n" HOST "X: ");
    static const size_t sizes[] = {17 * 1024, 20 * 1024, 40 * 1024, 1024 * 1024, sizeof head - 200};

    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        int fd = peer_connect(&f);
        memset(head + at, 'x', sizes[i]);
        memcpy(head + at + sizes[i], "\r\n\r\n", 4);
        peer_send_bytes(fd, head, at + sizes[i] + 4);
        const char *answer = peer_read(fd, "head_too_large");
        cr_expect_eq(peer_status(answer), 431, "%zu: %s", sizes[i], answer);
        cr_expect(strstr(answer, "problem+json"), "%s", answer);
        close(fd);
    }
    int fd = peer_connect(&f);
    memset(head + at, 'x', 15 * 1024);
    memcpy(head + at + 15 * 1024, "\r\n\r\n", 4);
    peer_send_bytes(fd, head, at + 15 * 1024 + 4);
    cr_expect_eq(peer_status(peer_read(fd, "hello")), 200);
    close(fd);
}

/* The largest head there may be, of as many parts as may be; the request line has 15 '&'. */
static const char *full_head(const char *start)
{
    static char head[16384 + 1];
    size_t at = (size_t)snprintf(head, sizeof head, "%s" HOST "Cookie:", start);
    unsigned lines = 2;

    for (const char *p = start; (p = strchr(p, '\n')); p++)
        lines++; /* the request line stands for the last */
    for (int i = 0; i < 31; i++)
        at += (size_t)snprintf(head + at, sizeof head - at, "a;");
    memset(head + at, 'b', 4096 - 62);
    at += 4096 - 62;
    for (; lines < 100; lines++)
        at += (size_t)snprintf(head + at, sizeof head - at, "\r\na:b");
    at += (size_t)snprintf(head + at, sizeof head - at, "\r\nX:");
    memset(head + at, 'c', sizeof head - 1 - at);
    memcpy(head + sizeof head - 5, "\r\n\r\n", 5);
    return head;
}

/* The library has room for it, for a body, and for the answer. */
Test(wire, heads_with_all_that_may_be)
{
    static char body[65536];
    const char *answer = peer_ask(&f, full_head("GET /items/a?limit=1&&&&&&&&&&&&&&& HTTP/1.1\r\n"));

    cr_expect_eq(peer_status(answer), 200, "%s", answer);
    cr_expect(strstr(answer, "\"limit\":\"1\""), "%s", answer);
    int fd = peer_connect(&f);
    peer_send(fd, full_head("POST /echo?&&&&&&&&&&&&&&& HTTP/1.1\r\n" JSON "Content-Length: 65536\r\n"));
    memset(body, ' ', sizeof body);
    memcpy(body, "[1]", 3);
    peer_send_bytes(fd, body, sizeof body);
    answer = peer_read(fd, "[1]");
    cr_expect_eq(peer_status(answer), 200, "%s", answer);
    close(fd);
}

Test(wire, keeps_the_connection)
{
    int fd = peer_connect(&f);

    for (int i = 0; i < 3; i++) {
        peer_send(fd, "GET /hello HTTP/1.1\r\n" HOST "\r\n");
        cr_assert_eq(peer_status(peer_read(fd, "\r\n\r\nhello")), 200);
        peer_send(fd, "GET /nothing HTTP/1.1\r\n" HOST "\r\n");
        cr_assert_eq(peer_status(peer_read(fd, "not_found\",\"detail\":\"there is no such resource\"}")),
                     404);
        peer_send(fd, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\n{}");
        cr_assert_eq(peer_status(peer_read(fd, "}")), 415);
    }
    close(fd);
}

/* The end of the stream often comes together with the last bytes. Either way it is noticed at once, not when
 * the body's time is up; only when the library sees it first there is no answer. */
Test(wire, a_request_that_ends_in_its_body)
{
    static const char *const requests[] = {
        "POST /echo HTTP/1.1\r\n" HOST JSON "Content-Length: 7\r\n\r\n{\"a\"",
        "POST /echo HTTP/1.1\r\n" HOST JSON "Content-Length: 7\r\n\r\n",
        "POST /nothing HTTP/1.1\r\n" HOST JSON "Content-Length: 7\r\n\r\n{",
    };
    size_t told = 0;

    for (size_t i = 0; i < 300; i++) {
        int fd = peer_connect(&f);
        int64_t start = clock_mono_ms();
        peer_send(fd, requests[i % 3]);
        shutdown(fd, SHUT_WR);
        const char *answer = peer_read(fd, NULL);
        cr_assert(!*answer || peer_status(answer) == (i % 3 == 2 ? 404 : 400), "%s", answer);
        cr_assert(!*answer || i % 3 == 2 || strstr(answer, "middle of its body"), "%s", answer);
        told += *answer != '\0';
        cr_assert_lt(clock_mono_ms() - start, 5000);
        close(fd);
    }
    cr_assert_gt(told, 0);
}

static int chunks_begun(const char *first)
{
    int fd = peer_connect(&f);

    peer_send(fd, "POST /echo HTTP/1.1\r\n" HOST JSON "Transfer-Encoding: chunked\r\n\r\n");
    peer_send(fd, first);
    clock_sleep_ms(20); /* read by itself */
    return fd;
}

/* The library notices, and does not say whose they are. Others that send chunks are not taken for it. */
Test(wire, broken_chunks)
{
    static const char *const broken[] = {
        "3\r\n{\"aXX", "zz\r\n", "-1\r\n", "2\r\n{}\r\nrubbish\r\n", "2\r\n{}\r\n0\r\nno\r\n\r\n", "\r\n"};
    int in_data = chunks_begun("4\r\n{"), after_one = chunks_begun("2\r\n{\"\r\n");

    for (size_t i = 0; i < ARRAY_LEN(broken); i++) {
        for (int late = 0; late < 2; late++) {
            int fd = chunks_begun(late ? "" : broken[i]);
            peer_send(fd, late ? broken[i] : "");
            const char *answer = peer_read(fd, NULL);
            cr_assert_eq(peer_status(answer), 400, "%zu %d: %s", i, late, answer);
            cr_assert(strstr(answer, "chunks of the body are broken"), "%zu %d: %s", i, late, answer);
            close(fd);
        }
    }
    peer_send(in_data, "  }\r\n0\r\n\r\n");
    cr_assert_eq(peer_status(peer_read(in_data, NULL)), 200);
    peer_send(after_one, "5\r\na\":1}\r\n0\r\n\r\n");
    cr_assert_eq(peer_status(peer_read(after_one, NULL)), 200);
    close(in_data);
    close(after_one);
}

/* In the middle of a chunk's head two connections look alike: one gets the library's page, and nobody is
 * wronged. */
Test(wire, broken_chunks_beside_half_a_size)
{
    int half = chunks_begun("1");
    int fd = chunks_begun("zz\r\n");

    cr_assert_eq(peer_status(peer_read(fd, NULL)), 400);
    peer_send(half, "0\r\n{\"a\":    123456}\r\n0\r\n\r\n");
    cr_assert_eq(peer_status(peer_read(half, NULL)), 200);
    close(fd);
    close(half);
}

/* What the library holds in its buffer no gate has seen; the client asks again. (RFC 9112 section 9.3.2) */
Test(wire, the_first_of_pipelined_requests_is_the_last)
{
    int fd = peer_connect(&f);

    peer_send(fd, "GET /items/one HTTP/1.1\r\n" HOST "\r\nGET /items/two HTTP/1.1\r\n" HOST "\r\n");
    const char *answer = peer_read(fd, NULL);
    cr_assert(strstr(answer, "\"one\"") && !strstr(answer, "\"two\""), "%s", answer);
    cr_assert(strstr(answer, "Connection: close\r\n"), "%s", answer);
    close(fd);
}

Test(wire, smuggling_in_a_later_request)
{
    static const char *const requests[] = {
        "POST /echo HTTP/1.1\r\n" HOST JSON
        "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "POST /echo HTTP/1.1\r\n" HOST JSON "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
        "POST /echo HTTP/1.1\r\n" HOST JSON "Transfer-Encoding: gzip\r\n\r\n{}",
        "GET /hello HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET /hello HTTP/1.1\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: a\n\nGET /hello HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: a\r\nX y: a\r\n\r\n",
        "GET /hel lo HTTP/1.1\r\n" HOST "\r\n",
    };
    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        int fd = peer_connect(&f);
        peer_send(fd, "GET /hello HTTP/1.1\r\n" HOST "\r\n");
        cr_assert_eq(peer_status(peer_read(fd, "\r\n\r\nhello")), 200);
        peer_send(fd, requests[i]);
        shutdown(fd, SHUT_WR);
        const char *answer = peer_read(fd, NULL);
        cr_expect_eq(peer_status(answer), 400, "%s\n→ %s", requests[i], answer);
        cr_expect(strstr(answer, "problem+json"), "%s\n→ %s", requests[i], answer);
        cr_expect_null(strstr(answer + 1, "HTTP/1.1 2"), "%s", answer);
        close(fd);
    }
}
