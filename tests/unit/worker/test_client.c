/* The HTTP client against a broker that does not keep the protocol. */
#include "base/clock.h"
#include "base/limits.h"
#include "deploy/worker/broker_client.h"
#include "rig.h"

#include <criterion/criterion.h>
#include <string.h>

static int post(const struct rig *r, int stop_fd, int within_ms, struct broker_answer *answer,
                struct err *err)
{
    struct broker_link link = {
        .socket_path = r->sock, .stop_fd = stop_fd, .deadline_mono_ms = clock_mono_ms() + within_ms};
    return broker_post(&link, "/model", "{}", 2, answer, err);
}

Test(client, refuses_what_is_no_plain_answer)
{
    static const char *const raw[] = {
        "",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 20x OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\nbody",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2,2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok!",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n folded: x\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nnonsense\r\nContent-Length: 2\r\n\r\nok",
        "\r\n\r\n",
    };
    struct rig r;
    struct rig_step step = {.raw = ""};
    rig_start(&r, &step, 1);
    for (size_t i = 0; i < sizeof raw / sizeof raw[0]; i++) {
        struct broker_answer answer = {0};
        struct err err;
        step.raw = raw[i];
        cr_assert_eq(post(&r, -1, 5000, &answer, &err), -1, "case %zu", i);
        cr_assert_eq(err.code, ERR_UPSTREAM, "case %zu: %s", i, err.text);
    }
    rig_done(&r);
}

Test(client, takes_any_status_and_a_head_of_some_size)
{
    struct rig r;
    struct err err;
    struct broker_answer answer = {0};
    char *raw = malloc(40000), *end = raw + sprintf(raw, "HTTP/1.1 503 \r\ncontent-LENGTH:\t2 \r\nX: ");
    struct rig_step step = {.raw = raw};
    memset(end, 'x', 10000);
    strcpy(end + 10000, "\r\n\r\nok");
    rig_start(&r, &step, 1);
    cr_assert_eq(post(&r, -1, 5000, &answer, &err), 0, "%s", err.text);
    cr_assert_eq(answer.status, 503);
    cr_assert_str_eq(answer.body.data, "ok");
    buf_free(&answer.body);
    memset(end, 'x', 30000);
    strcpy(end + 30000, "\r\n\r\nok");
    cr_assert_eq(post(&r, -1, 5000, &answer, &err), -1);
    cr_assert(strstr(err.text, "head is too large"), "%s", err.text);
    rig_done(&r);
    free(raw);
}

Test(client, bounds_the_answer_at_1_mib)
{
    struct rig r;
    struct err err;
    struct broker_answer answer = {0};
    char *body = malloc(LIMIT_UPSTREAM_ANSWER + 1);
    memset(body, 'x', LIMIT_UPSTREAM_ANSWER + 1);
    struct rig_step step = {.body = body, .body_len = LIMIT_UPSTREAM_ANSWER};
    rig_start(&r, &step, 1);
    cr_assert_eq(post(&r, -1, 5000, &answer, &err), 0, "%s", err.text);
    cr_assert_eq(answer.body.len, LIMIT_UPSTREAM_ANSWER);
    buf_free(&answer.body);
    step.body_len++;
    cr_assert_eq(post(&r, -1, 5000, &answer, &err), -1);
    cr_assert_eq(err.code, ERR_TOO_LARGE);
    rig_done(&r);
    free(body);
}

Test(client, an_answer_before_the_body_was_read_counts)
{
    struct rig r;
    struct err err;
    struct broker_answer answer = {0};
    size_t len = LIMIT_BROKER_BODY;
    char *body = malloc(len);
    memset(body, ' ', len);
    struct rig_step step = {.status = 413, .body = "no", .deaf = true};
    rig_start(&r, &step, 1);
    struct broker_link link = {
        .socket_path = r.sock, .stop_fd = -1, .deadline_mono_ms = clock_mono_ms() + 5000};
    cr_assert_eq(broker_post(&link, "/model", body, len, &answer, &err), 0, "%s", err.text);
    cr_assert_eq(answer.status, 413);
    cr_assert_str_eq(answer.body.data, "no");
    buf_free(&answer.body);
    cr_assert_eq(broker_post(&link, "/model", body, len + 1, &answer, &err), -1);
    cr_assert_eq(err.code, ERR_TOO_LARGE);
    rig_done(&r);
    free(body);
}

Test(client, stops_when_told_to_and_at_the_deadline)
{
    struct rig r;
    struct err err;
    struct broker_answer answer = {0};
    struct rig_step step = {.hang = true};
    int stop[2];
    rig_start(&r, &step, 1);
    int64_t began = clock_mono_ms();
    cr_assert_eq(post(&r, -1, 100, &answer, &err), -1);
    cr_assert_eq(err.code, ERR_TIMEOUT);
    cr_assert_eq(pipe(stop), 0);
    cr_assert_eq(write(stop[1], "x", 1), 1);
    cr_assert_eq(post(&r, stop[0], 60000, &answer, &err), -1);
    cr_assert_eq(err.code, ERR_CANCELED);
    cr_assert_lt(clock_mono_ms() - began, 5000);
    close(stop[0]);
    close(stop[1]);
    rig_done(&r);
}

Test(client, says_when_there_is_no_broker)
{
    struct rig r = {.sock = "/nonexistent/broker.sock"};
    struct err err;
    struct broker_answer answer = {0};
    cr_assert_eq(post(&r, -1, 1000, &answer, &err), -1);
    cr_assert_eq(err.code, ERR_UPSTREAM);
}
