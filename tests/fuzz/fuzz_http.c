/* Whole requests at a real server, over TCP and over a Unix socket (where a connection has one request only):
 * every whole and sound request is answered once, in order, with what was sent; what is not sound is never
 * let through, whatever stands behind it; the answers are HTTP; the server lives on. */
#include "support/fuzz.h"
#include "support/wire.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/secret.h"
#include "http/http.h"
#include "http/park.h"
#include "http/request.h"
#include "http/response.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define BODY_MOST 4096

static char path[100];
static struct http_server *servers[2];
static struct wire_place places[2] = {{.path = path}};

/* --- the server ----------------------------------------------------------------------------------------- */

static enum http_result echo(struct http_req *req)
{
    size_t len;
    const char *body = http_body(req, &len), *key = http_path_param(req, "key"),
               *limit = http_query(req, "limit");
    char hash[SHA256_HEX_SIZE];

    secret_sha256_hex(body, len, hash);
    return http_reply_json(req, 200,
                           json_pack("{s:s, s:I, s:s, s:s?, s:s?, s:s}", "method", http_method(req), "length",
                                     (json_int_t)len, "hash", hash, "key", key, "limit", limit, "id",
                                     http_request_id(req)));
}

static enum http_result go_on(struct http_req *req, enum http_why why, void *arg)
{
    (void)why;
    (void)arg;
    return echo(req);
}

static void leave(void *arg)
{
    (void)arg;
}

static enum http_result park(struct http_req *req)
{
    struct err err = {0};
    struct http_ticket *ticket = http_park(req, go_on, leave, NULL, HTTP_NO_DEADLINE, &err);

    PROPERTY(ticket, "%s", err.text);
    http_wake(ticket);
    http_ticket_release(ticket);
    return HTTP_PARK;
}

static enum http_result json_body(struct http_req *req)
{
    struct err err = {0};
    CLEANUP(json_free) json_t *value = NULL;

    return http_body_json(req, &value, &err) < 0 ? http_problem(req, &err, NULL) : echo(req);
}

static const struct http_route routes[] = {
    {"GET", "/e", 0, 0, NULL, echo},
    {"POST", "/e", 0, BODY_MOST, NULL, echo},
    {"POST", "/j", 0, BODY_MOST, NULL, json_body},
    {"GET", "/i/{key}", 0, 0, "limit cursor", echo},
    {"PUT", "/i/{key}", 0, BODY_MOST, NULL, echo},
    {"GET", "/p", 0, 0, NULL, park},
    {"POST", "/p", 0, BODY_MOST, NULL, park},
    {"GET", "/k", 1, 0, NULL, echo},
    {0},
};

static int authorize(struct http_req *req, const struct http_route *route, struct err *err)
{
    if (route->scope == 0 || http_header(req, "Authorization"))
        return 0;
    return err_set(err, ERR_UNAUTHORIZED, "who are you");
}

static void stop(void)
{
    http_server_stop(servers[0], 1000);
    http_server_stop(servers[1], 1000);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct err err = {0};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    (void)argc;
    (void)argv;
    signal(SIGPIPE, SIG_IGN);
    log_set_level(LOG_ERROR);
    PROPERTY(secret_init(&err) == 0, "%s", err.text);
    snprintf(path, sizeof path, "%s/http.sock", fuzz_folder());
    memcpy(address.sun_path, path, strlen(path) + 1);
    PROPERTY(bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 64) == 0, "no socket");
    /* A client that half-closes inside a body is ended by the body's time limit only: short here, so that the
     * check of what stays open does not take it for a leak. */
    struct http_config config = {
        .routes = routes, .authorize = authorize, .listen_fd = fd, .threads = 2, .body_ms = 2000};
    PROPERTY(http_server_start(&config, &servers[0], &err) == 0, "%s", err.text);
    config.address = "127.0.0.1";
    config.listen_fd = -1;
    PROPERTY(http_server_start(&config, &servers[1], &err) == 0, "%s", err.text);
    places[1].port = http_server_port(servers[1]);
    atexit(stop);
    return 0;
}

/* --- what comes back ------------------------------------------------------------------------------------ */

static void check_problem(const struct wire_answer *a)
{
    CLEANUP(free_str) char *type = wire_field(a, "content-type");

    PROPERTY(type && strcmp(type, "application/problem+json") == 0, "status %d as %s: %.*s", a->status, type,
             (int)a->body_len, a->body);
    if (a->body_len == 0)
        return; /* to a HEAD */
    CLEANUP(json_free) json_t *problem = fuzz_json(a->body, a->body_len);
    PROPERTY(json_integer_value(json_object_get(problem, "status")) == a->status &&
                 json_str(problem, "code") && json_str(problem, "title") && json_str(problem, "detail"),
             "no problem document: %.*s", (int)a->body_len, a->body);
}

/* `loose`: the library finds fault with chunks by itself, in its own words, and then closes. */
static void check_answer(const struct wire_answer *a, bool loose)
{
    static const int known[] = {200, 204, 400, 401, 404, 405, 413, 414, 415, 431};
    bool is_known = false;
    CLEANUP(free_str) char *id = wire_field(a, "x-request-id");

    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        is_known = is_known || known[i] == a->status;
    PROPERTY(is_known, "status %d: %.*s", a->status, (int)(a->head_len + 4 + a->body_len), a->head);
    if (loose && !id) {
        PROPERTY(a->close && (a->status == 400 || a->status == 413), "status %d", a->status);
        return;
    }
    PROPERTY(id && *id, "no X-Request-Id: %.*s", (int)a->head_len, a->head);
    if (a->status >= 400)
        check_problem(a);
}

static void check_echo(const struct wire_request *req, const struct wire_answer *a)
{
    const char *method = strcmp(req->method, "HEAD") == 0 ? "GET" : req->method;
    char hash[SHA256_HEX_SIZE];

    if (a->status != 200 || a->body_len == 0)
        return;
    CLEANUP(json_free) json_t *said = fuzz_json(a->body, a->body_len);
    secret_sha256_hex(req->body ? req->body : "", req->body_len, hash);
    PROPERTY(strcmp(json_str(said, "method"), method) == 0, "answered to %s and not %s",
             json_str(said, "method"), req->method);
    PROPERTY((size_t)json_integer_value(json_object_get(said, "length")) == req->body_len &&
                 strcmp(json_str(said, "hash"), hash) == 0,
             "another body: %.*s", (int)a->body_len, a->body);
    PROPERTY(req->body_len <= BODY_MOST, "a body of %zu bytes", req->body_len);
    PROPERTY((memmem(req->target, req->target_len, "/i/", 3) != NULL) == (json_str(said, "key") != NULL),
             "another route: %.*s", (int)a->body_len, a->body);
}

static void check_all(const struct wire_stream *sent, const struct wire_answers *got)
{
    for (size_t i = 0; i < got->count; i++) {
        const struct wire_answer *a = &got->list[i];
        bool loose = i >= sent->count && sent->tail == WIRE_LOOSE;
        check_answer(a, loose);
        PROPERTY(i == 0 || !got->list[i - 1].close, "an answer after the last");
        if (i < sent->count) {
            check_echo(&sent->list[i], a);
        } else if (sent->tail != WIRE_MORE) {
            PROPERTY(sent->tail != WIRE_END && i == sent->count && (a->status >= 400 || (loose && a->close)),
                     "%zu answers to %zu requests; the last: %.*s", got->count, sent->count,
                     (int)(a->head_len + 4 + a->body_len), a->head);
        }
    }
    PROPERTY(!got->doubled, "a head came twice");
    const struct wire_answer *last = got->count > 0 ? &got->list[got->count - 1] : NULL;
    if (got->count == sent->count)
        PROPERTY(sent->tail != WIRE_BAD || (last && last->close),
                 "what is no request is left without an answer");
    if (got->count >= sent->count)
        return;
    PROPERTY(last && (last->close || sent->list[got->count - 1].close), "%zu answers to %zu requests",
             got->count, sent->count);
}

/* Connections that are never given back would show after a while. */
static void check_connections(void)
{
    static unsigned runs;
    int64_t deadline = clock_mono_ms() + 8000;

    if (++runs % 256 != 0)
        return;
    for (size_t i = 0; i < ARRAY_LEN(servers);) {
        unsigned open = http_server_connections(servers[i]);
        PROPERTY(open == 0 || clock_left_ms(deadline) > 0, "%u connections stay", open);
        if (open == 0)
            i++;
        else
            clock_sleep_ms(1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    uint8_t how = fuzz_byte(&in);
    CLEANUP(free_str) char *text = fuzz_text(in.data, in.size);
    CLEANUP(wire_free) struct wire_stream sent;
    CLEANUP(wire_answers_free) struct wire_answers got;

    wire_read(text, in.size, &sent);
    const struct wire_manner manner = {.polite = how & 2, .split = how / 4 * 16u};
    wire_talk(&places[how & 1], text, in.size, &manner, &sent, &got);
    check_all(&sent, &got);
    check_connections();
    return 0;
}
