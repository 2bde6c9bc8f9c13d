#include "peer.h"

#include "base/log.h"

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>

static enum http_result hello(struct http_req *req)
{
    return http_reply_text(req, 200, "text/plain", "hello", 5);
}

static enum http_result item(struct http_req *req)
{
    const char *q = http_query(req, "limit");
    return http_reply_json(req, 200,
                           json_pack("{s:s, s:s*, s:s}", "key", http_path_param(req, "key"), "limit", q,
                                     "trace", http_traceparent(req)));
}

static enum http_result echo(struct http_req *req)
{
    json_t *value = NULL;
    struct err err;

    if (http_body_json(req, &value, &err) < 0)
        return http_problem(req, &err, NULL);
    return http_reply_json(req, 200, value);
}

static enum http_result big(struct http_req *req)
{
    static char text[8 * 1024 * 1024];
    memset(text, 'x', sizeof text);
    return http_reply_static(req, 200, "text/plain", text, sizeof text);
}

static enum http_result resumed(struct http_req *req, enum http_why why, void *arg)
{
    struct fixture *f = arg;
    f->why = why;
    f->resumed++;
    if (why == HTTP_STOPPING) {
        struct err err;
        err_set(&err, ERR_DRAINING, "the service is stopping");
        return http_problem(req, &err, NULL);
    }
    return http_reply_text(req, 200, "text/plain", "woken", 5);
}

static void gone(void *arg)
{
    ((struct fixture *)arg)->gone++;
}

static enum http_result wait_turn(struct http_req *req)
{
    struct fixture *f = http_context(req);
    const char *ms = http_query(req, "ms");
    int64_t deadline = ms ? clock_mono_ms() + atoi(ms) : HTTP_NO_DEADLINE;
    struct err err;
    struct http_ticket *t = http_park(req, resumed, gone, f, deadline, &err);

    if (!t)
        return http_problem(req, &err, NULL);
    http_ticket_release(atomic_exchange(&f->ticket, t));
    f->parked++;
    return HTTP_PARK;
}

static enum http_result wake_at_once(struct http_req *req)
{
    struct fixture *f = http_context(req);
    struct err err;
    struct http_ticket *t = http_park(req, resumed, gone, f, HTTP_NO_DEADLINE, &err);

    if (!t)
        return http_problem(req, &err, NULL);
    http_wake(t);
    http_wake(t);
    http_ticket_release(t);
    return HTTP_PARK;
}

static enum http_result fail(struct http_req *req)
{
    struct err err;
    err_set(&err, ERR_DATABASE, "SECRET path /var/lib");
    return http_problem(req, &err, NULL);
}

static enum http_result no_memory(struct http_req *req)
{
    return http_reply_json(req, 200, NULL);
}

static const struct http_route routes[] = {
    {"GET", "/hello", 0, 0, NULL, hello},
    {"GET", "/items/{key}", 0, 0, "limit", item},
    {"PUT", "/items/{key}", 0, 1024, NULL, echo},
    {"POST", "/echo", 0, 64 * 1024, NULL, echo},
    {"GET", "/big", 0, 0, NULL, big},
    {"GET", "/wait", 0, 0, "ms", wait_turn},
    {"POST", "/wait", 0, 1024, "ms", wait_turn},
    {"GET", "/at-once", 0, 0, NULL, wake_at_once},
    {"GET", "/fail", 0, 0, NULL, fail},
    {"GET", "/no-memory", 0, 0, NULL, no_memory},
    {"GET", "/closed", 1, 0, NULL, hello},
    {0},
};

static int authorize(struct http_req *req, const struct http_route *route, struct err *err)
{
    if (route->scope == 0 || http_header(req, "Authorization"))
        return 0;
    http_header_add(req, "WWW-Authenticate", "Bearer");
    return err_set(err, ERR_UNAUTHORIZED, "no key");
}

void fixture_start(struct fixture *f, const struct http_config *overrides)
{
    struct http_config config = overrides ? *overrides : (struct http_config){0};
    struct err err;

    signal(SIGPIPE, SIG_IGN);
    memset(f, 0, sizeof *f);
    config.routes = routes;
    config.authorize = authorize;
    config.context = f;
    config.threads = 2;
    if (config.listen_fd <= 0) {
        config.address = "127.0.0.1";
        config.listen_fd = -1;
    }
    log_set_level(LOG_WARN); /* not a line for each request */
    cr_assert_eq(http_server_start(&config, &f->server, &err), 0, "%s", err.text);
    f->port = http_server_port(f->server);
}

void fixture_stop(struct fixture *f)
{
    http_server_stop(f->server, 5000);
    http_ticket_release(f->ticket);
}

int peer_connect(const struct fixture *f)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(f->port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    cr_assert_geq(fd, 0);
    cr_assert_eq(connect(fd, (struct sockaddr *)&sa, sizeof sa), 0);
    return fd;
}

void peer_send_bytes(int fd, const void *data, size_t len)
{
    const char *p = data;

    while (len > 0) {
        ssize_t n = send(fd, p, len, MSG_NOSIGNAL);
        if (n <= 0)
            return; /* the server has had enough; what it said is still to be read */
        p += n;
        len -= (size_t)n;
    }
}

void peer_send(int fd, const char *text)
{
    peer_send_bytes(fd, text, strlen(text));
}

const char *peer_read(int fd, const char *until)
{
    static char answer[64 * 1024];
    int64_t deadline = clock_mono_ms() + 10000;
    size_t len = 0;

    answer[0] = '\0';
    while (len + 1 < sizeof answer && clock_mono_ms() < deadline) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, clock_left_ms(deadline)) <= 0)
            break;
        ssize_t n = recv(fd, answer + len, sizeof answer - 1 - len, 0);
        if (n <= 0)
            return answer;
        len += (size_t)n;
        answer[len] = '\0';
        if (until && strstr(answer, until))
            return answer;
    }
    if (len + 1 < sizeof answer)
        cr_assert_fail("no end of the answer within 10 s: %s", answer);
    return answer;
}

const char *peer_ask(const struct fixture *f, const char *text)
{
    int fd = peer_connect(f);
    peer_send(fd, text);
    shutdown(fd, SHUT_WR);
    const char *answer = peer_read(fd, NULL);
    close(fd);
    return answer;
}

int peer_status(const char *answer)
{
    int status = 0;
    sscanf(answer, "HTTP/1.1 %d", &status);
    return status;
}

bool wait_for(atomic_int *value, int least)
{
    int64_t deadline = clock_mono_ms() + 10000;

    while (*value < least && clock_mono_ms() < deadline)
        clock_sleep_ms(1);
    return *value >= least;
}
