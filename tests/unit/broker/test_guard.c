#include "tests/unit/broker/client.h"

static struct rig rig;

static void setup(void)
{
    rig_open_embedded(&rig, "embedded:echo");
}

static void teardown(void)
{
    rig_close(&rig);
}

TestSuite(guard, .init = setup, .fini = teardown, .timeout = 60);

#define TYPE "Content-Type: application/json\r\n"
#define LEN  "Content-Length: 51\r\n"
#define BODY "{\"messages\":[{\"role\":\"user\",\"content\":\"hello!!\"}]} "
#define HOST "Host: broker\r\n"

/* Sends raw bytes; the status of the one answer; nothing but EOF may follow a refusal. */
static int send_raw(const char *raw, size_t len)
{
    int fd = client_connect(&rig);

    fake_send(fd, raw, len);
    struct reply r = client_read(fd);
    if (r.status != 200)
        cr_assert(client_at_end(fd), "the connection goes on after: %s", raw);
    int status = r.status;
    free(r.text);
    close(fd);
    return status;
}

static void head(const char *line, const char *headers, int status)
{
    char raw[16384];

    snprintf(raw, sizeof raw, "%s\r\n%s\r\n" BODY, line, headers);
    int got = send_raw(raw, strlen(raw));
    cr_assert(got == status, "%d, not %d: %s", got, status, raw);
}

static void header(const char *extra, int status)
{
    char headers[8192];

    snprintf(headers, sizeof headers, HOST TYPE LEN "%s\r\n", extra);
    head("POST /model HTTP/1.1", headers, status);
}

Test(guard, allowed_headers_pass)
{
    cr_assert(strlen(BODY) == 51);
    head("POST /model HTTP/1.1", HOST TYPE LEN, 200);
    header("Accept: application/json", 200);
    header("Accept-Encoding: gzip, br", 200);
    header("User-Agent: any/1.0 (x)", 200);
    header("Authorization: Bearer " DUMMY_KEY, 200);
    header("authorization: bearer " DUMMY_KEY, 200);
    header("Connection: keep-alive", 200);
    header("Connection: close", 200);
    head("POST /model HTTP/1.1", "HOST: broker\r\nCONTENT-TYPE: application/json; charset=utf-8\r\n" LEN,
         200);
}

Test(guard, every_other_header_is_403)
{
    static const char *const names[] = {"Transfer-Encoding: chunked",
                                        "Transfer-Encoding: gzip",
                                        "Transfer-Encoding: chunked, identity",
                                        "TE: trailers",
                                        "Trailer: X",
                                        "Expect: 100-continue",
                                        "Upgrade: h2c",
                                        "Cookie: a=b",
                                        "X-Forwarded-For: 1.2.3.4",
                                        "X-Api-Key: " DUMMY_KEY,
                                        "OpenAI-Organization: o",
                                        "Proxy-Authorization: x",
                                        "Proxy-Connection: close",
                                        "Keep-Alive: 5",
                                        "Content-Encoding: gzip",
                                        "Content-Language: en",
                                        "Range: bytes=0-1",
                                        "Forwarded: for=x",
                                        "Via: x",
                                        "Referer: x",
                                        "Origin: http://x",
                                        "traceparent: x",
                                        "Http2-Settings: x",
                                        "X: ",
                                        "Accept-Language: en",
                                        "Content-Lengths: 51",
                                        "Content-Length : 51",
                                        "Accept : x"};

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        header(names[i], 403);
}

Test(guard, values_are_checked)
{
    head("POST /model HTTP/1.1", "Host: localhost\r\n" TYPE LEN, 403);
    head("POST /model HTTP/1.1", "Host: broker:80\r\n" TYPE LEN, 403);
    head("POST /model HTTP/1.1", "Host: broker.\r\n" TYPE LEN, 403);
    head("POST /model HTTP/1.1", "Host: \r\n" TYPE LEN, 403);
    header("Authorization: Bearer other", 403);
    header("Authorization: Bearer " DUMMY_KEY "x", 403);
    header("Authorization: Basic " DUMMY_KEY, 403);
    header("Authorization: " DUMMY_KEY, 403);
    header("Authorization: Bearer  " DUMMY_KEY, 403);
    header("Connection: upgrade", 403);
    header("Connection: keep-alive, upgrade", 403);
    header("Connection: close, content-length", 403);
}

Test(guard, nothing_comes_twice)
{
    static const char *const twice[] = {"Host: broker", "Host: other", "Content-Type: application/json",
                                        "Content-Length: 51", "content-length: 9"};
    static const char *const pairs[] = {
        "Accept: a\r\nAccept: a", "User-Agent: a\r\nUser-Agent: b",
        "Authorization: Bearer " DUMMY_KEY "\r\nAuthorization: Bearer " DUMMY_KEY,
        "Connection: close\r\nConnection: close", "Accept-Encoding: a\r\nAccept-Encoding: b"};

    for (size_t i = 0; i < ARRAY_LEN(twice); i++)
        header(twice[i], 403);
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++)
        header(pairs[i], 403);
}

Test(guard, only_post_model_exists)
{
    static const char *const lines[] = {"GET /model HTTP/1.1",
                                        "PUT /model HTTP/1.1",
                                        "HEAD /model HTTP/1.1",
                                        "OPTIONS /model HTTP/1.1",
                                        "DELETE /model HTTP/1.1",
                                        "post /model HTTP/1.1",
                                        "POSTS /model HTTP/1.1",
                                        "CONNECT broker:80 HTTP/1.1",
                                        "POST / HTTP/1.1",
                                        "POST * HTTP/1.1",
                                        "POST /model/ HTTP/1.1",
                                        "POST //model HTTP/1.1",
                                        "POST /./model HTTP/1.1",
                                        "POST /x/../model HTTP/1.1",
                                        "POST /model? HTTP/1.1",
                                        "POST /model?x HTTP/1.1",
                                        "POST /model?x=1 HTTP/1.1",
                                        "POST /model# HTTP/1.1",
                                        "POST /%6dodel HTTP/1.1",
                                        "POST /mode%6C HTTP/1.1",
                                        "POST /%6Dodel HTTP/1.1",
                                        "POST %2Fmodel HTTP/1.1",
                                        "POST /model%00 HTTP/1.1",
                                        "POST /model%2F HTTP/1.1",
                                        "POST /model%20 HTTP/1.1",
                                        "POST /MODEL HTTP/1.1",
                                        "POST /models HTTP/1.1",
                                        "POST /model;a HTTP/1.1",
                                        "POST http://broker/model HTTP/1.1",
                                        "POST /model\\ HTTP/1.1",
                                        "POST /tools/x HTTP/1.1",
                                        "POST /mcp/x HTTP/1.1",
                                        "POST /fetch HTTP/1.1",
                                        "POST /v1/chat/completions HTTP/1.1",
                                        "POST /model+ HTTP/1.1",
                                        "POST /model\xC2\xA0 HTTP/1.1"};

    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        char raw[1024];
        snprintf(raw, sizeof raw, "%s\r\n" HOST TYPE LEN "\r\n" BODY, lines[i]);
        int fd = client_connect(&rig);
        client_send(fd, raw);
        char answer[16] = "";
        cr_assert(recv(fd, answer, 12, MSG_WAITALL) == 12, "%s", lines[i]);
        cr_assert(strcmp(answer, "HTTP/1.1 404") == 0 || strcmp(answer, "HTTP/1.1 400") == 0, "%s: %s",
                  lines[i], answer);
        close(fd);
    }
    cr_assert(rig.n_calls == 0);
}

Test(guard, a_nul_in_the_target_is_no_route)
{
    static const char raw[] = "POST /model\0?x HTTP/1.1\r\n" HOST TYPE LEN "\r\n" BODY;
    int fd = client_connect(&rig);
    char answer[16] = "";

    fake_send(fd, raw, sizeof raw - 1);
    ssize_t n = recv(fd, answer, 12, MSG_WAITALL);
    cr_assert(n <= 0 || strcmp(answer, "HTTP/1.1 404") == 0 || strcmp(answer, "HTTP/1.1 400") == 0, "%s",
              answer);
    cr_assert(rig.n_calls == 0);
    close(fd);
}

Test(guard, host_and_type_are_needed)
{
    head("POST /model HTTP/1.0", TYPE LEN, 403);
    head("POST /model HTTP/1.1", TYPE LEN, 403);
    head("POST /model HTTP/1.1", HOST LEN, 415);
    head("POST /model HTTP/1.1", HOST LEN "Content-Type: text/plain\r\n", 415);
    head("POST /model HTTP/1.1", HOST LEN "Content-Type: application/jsonp\r\n", 415);
    head("POST /model HTTP/1.1", HOST LEN "Content-Type: application/x-www-form-urlencoded\r\n", 415);
}

Test(guard, a_body_that_is_too_large_is_refused_before_it_comes)
{
    char headers[256];

    snprintf(headers, sizeof headers, HOST TYPE "Content-Length: %d\r\n", LIMIT_BROKER_BODY + 1);
    head("POST /model HTTP/1.1", headers, 413);
    head("POST /model HTTP/1.1", HOST TYPE "Content-Length: 99999999999999999\r\n", 413);
}

Test(guard, the_largest_body_passes)
{
    char *body = malloc(LIMIT_BROKER_BODY + 1);
    int len = sprintf(body, "%s", HELLO);

    memset(body + len, ' ', (size_t)(LIMIT_BROKER_BODY - len));
    body[LIMIT_BROKER_BODY] = '\0';
    client_expect(&rig, body, 200, "hello");
    free(body);
}

/* A second request hidden in the body of the first must not be answered. */
Test(guard, nothing_is_smuggled)
{
    static const char *const tricks[] = {
        "POST /model HTTP/1.1\r\n" HOST TYPE LEN "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /model HTTP/1.1\r\n" HOST TYPE "Transfer-Encoding: chunked\r\n" LEN "\r\n0\r\n\r\n",
        "POST /model HTTP/1.1\r\n" HOST TYPE "Content-Length: 0\r\n" LEN "\r\n",
        "GET /x HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\n",
    };

    for (size_t i = 0; i < ARRAY_LEN(tricks); i++) {
        char raw[2048];
        snprintf(raw, sizeof raw, "%sPOST /model HTTP/1.1\r\n" HOST TYPE LEN "\r\n" BODY, tricks[i]);
        int status = send_raw(raw, strlen(raw)); /* asserts that EOF follows */
        cr_assert(status == 403 || status == 404, "%d: %s", status, raw);
    }
    cr_assert(rig.n_calls == 0);
}

Test(guard, length_must_be_plain_digits)
{
    static const char *const lengths[] = {"+51",   "-1",  "0x33", "51 51",
                                          "51,51", "5 1", "",     "999999999999999999999999"};

    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        char raw[1024];
        int fd = client_connect(&rig);
        char answer[16] = "";
        snprintf(raw, sizeof raw, "POST /model HTTP/1.1\r\n" HOST TYPE "Content-Length: %s\r\n\r\n" BODY,
                 lengths[i]);
        client_send(fd, raw);
        ssize_t n = recv(fd, answer, 12, MSG_WAITALL);
        cr_assert(n <= 0 || answer[9] == '4', "%s: %s", lengths[i], answer);
        close(fd);
    }
    cr_assert(rig.n_calls == 0);
}

Test(guard, split_packets_are_one_request)
{
    char *request = client_request(HELLO);
    int fd = client_connect(&rig);

    for (size_t i = 0; request[i]; i++) {
        cr_assert(fake_send(fd, request + i, 1));
        if (i % 16 == 0)
            poll(NULL, 0, 1);
    }
    struct reply r = client_read(fd);
    cr_assert(r.status == 200, "%s", r.text);
    free(r.text);
    free(request);
    close(fd);
}

Test(guard, pipelined_calls_are_answered_in_order)
{
    int fd = client_connect(&rig);
    char one[64];

    for (int i = 0; i < 5; i++) {
        snprintf(one, sizeof one, "{\"messages\":[{\"role\":\"user\",\"content\":\"n%d\"}]}", i);
        char *request = client_request(one);
        client_send(fd, request);
        free(request);
    }
    for (int i = 0; i < 5; i++) {
        struct reply r = client_read(fd);
        snprintf(one, sizeof one, "\"n%d\"", i);
        cr_assert(r.status == 200 && strstr(r.body, one), "%s", r.text);
        free(r.text);
    }
    close(fd);
}

Test(guard, heads_without_end_are_refused)
{
    char *junk = malloc(1024 * 1024);
    int fd = client_connect(&rig);

    memset(junk, 'a', 1024 * 1024);
    client_send(fd, "POST /model HTTP/1.1\r\n" HOST "User-Agent: ");
    fake_send(fd, junk, 1024 * 1024);
    shutdown(fd, SHUT_WR);
    char answer[16] = "";
    ssize_t n = recv(fd, answer, 12, MSG_WAITALL);
    cr_assert(n <= 0 || answer[9] == '4', "%s", answer);
    cr_assert(rig.n_calls == 0);
    free(junk);
    close(fd);
    client_expect(&rig, HELLO, 200, "hello");
}

/* The head has LIMIT_BROKER_HEAD_S, however busy the line looks. */
Test(guard, a_slow_head_is_cut_off)
{
    int slow = client_connect(&rig), idle = client_connect(&rig), body = client_connect(&rig);
    int64_t start = clock_mono_ms();
    bool open = true;

    client_send(slow, "POST /model HTTP/1.1\r\nUser-Agent: ");
    client_send(body, "POST /model HTTP/1.1\r\n" HOST TYPE LEN "\r\n{");
    while (open && clock_mono_ms() - start < 20000) {
        struct pollfd p = {.fd = slow, .events = POLLIN};
        fake_send(slow, "a", 1);
        fake_send(body, " ", 1);
        open = poll(&p, 1, 400) == 0;
    }
    int64_t took = clock_mono_ms() - start;
    cr_assert(took >= LIMIT_BROKER_HEAD_S * 1000 - 500 && took < LIMIT_BROKER_HEAD_S * 1000 + 2000, "%d ms",
              (int)took);
    cr_assert(client_at_end(slow) && client_at_end(idle) && client_at_end(body));
    close(slow);
    close(idle);
    close(body);
    client_expect(&rig, HELLO, 200, "hello");
}

Test(guard, the_17th_connection_is_closed_and_room_comes_back)
{
    int fds[LIMIT_BROKER_CONNECTIONS];
    char *request = client_request(HELLO);

    for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
        fds[i] = client_connect(&rig);
        client_send(fds[i], request);
        struct reply r = client_read(fds[i]);
        cr_assert(r.status == 200);
        free(r.text);
    }
    int over = client_connect(&rig);
    cr_assert(client_at_end(over));
    close(over);
    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        close(fds[i]);
    int status = 0;
    for (int64_t end = clock_mono_ms() + 5000; status != 200 && clock_mono_ms() < end;) {
        struct reply r = client_call(&rig, HELLO);
        status = r.status;
        free(r.text);
    }
    cr_assert(status == 200);
    free(request);
}
