#include "http/internal.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

void *intake_target(void *cls, const char *raw, struct MHD_Connection *mhd)
{
    struct http_server *s = cls;
    struct conn *c = conn_of(mhd);
    struct http_req *req = c && !c->refused ? req_new(s, c, mhd, raw) : NULL;

    if (!req)
        return NULL;
    conn_deadline(c, s->config.head_ms);
    return req;
}

/* The only line that every request has: what it was, and never what it said. */
static void log_request(const struct http_req *req, bool delivered)
{
    log_line(req->quiet && !req->named ? LOG_DEBUG : LOG_INFO, req->id, "%s %s %u%s, %lld ms", req->method,
             req->match.route ? req->match.route->path : "(no route)", req->status,
             delivered ? "" : " (not delivered)", (long long)(clock_mono_ms() - req->began));
}

void intake_completed(void *cls, struct MHD_Connection *mhd, void **ptr, enum MHD_RequestTerminationCode code)
{
    struct http_server *s = cls;
    struct http_req *req = *ptr;

    if (!req)
        return;
    *ptr = NULL;
    chunks_end(req->conn);
    if (req->ticket)
        park_abandon(req);
    stream_close(req);
    if (req->begun)
        log_request(req, code == MHD_REQUEST_TERMINATED_COMPLETED_OK);
    if (!req->last && code == MHD_REQUEST_TERMINATED_COMPLETED_OK) {
        pthread_mutex_lock(&s->lock);
        gate_take_back(req->conn, mhd);
        pthread_mutex_unlock(&s->lock);
    }
    bool counted = req->begun;
    req_free(req);
    if (counted && --s->requests == 0) {
        pthread_mutex_lock(&s->lock);
        pthread_cond_broadcast(&s->idle);
        pthread_mutex_unlock(&s->lock);
    }
}

/* Runs on as long as tickets were woken before the connection could be suspended.
 *
 * The library does not note what it waits for while a connection is suspended: one that is suspended in the
 * very round that read its request would be read from when it is resumed, and a client that closed its
 * sending half be dropped at the end of its stream. So the first suspension comes one round later.
 * (connection.c of 0.9.75, MHD_connection_update_event_loop_info) */
static enum MHD_Result follow(struct http_req *req, enum http_result result)
{
    while (result == HTTP_PARK && req->ticket) {
        if (!req->settled)
            return MHD_YES; /* the library calls again at once */
        if (park_suspend(req))
            return MHD_YES;
        if (!park_resume(req, &result))
            return MHD_NO;
    }
    if (req->ticket)
        park_abandon(req);
    return reply_send(req);
}

static bool is_json(const char *type)
{
    static const char json[] = "application/json";
    size_t len = strlen(json);

    if (!type || strncasecmp(type, json, len) != 0)
        return false;
    type += len + strspn(type + len, " \t");
    return *type == '\0' || *type == ';';
}

static int check_body(const struct http_req *req, struct err *err)
{
    size_t limit = req->match.route->body_limit;
    const char *coding = http_header(req, MHD_HTTP_HEADER_CONTENT_ENCODING);

    if (!req->head.chunked && req->head.content_length == 0)
        return 0;
    if (limit == 0)
        return err_set(err, ERR_TOO_LARGE, "this request takes no body");
    if (req->head.content_length > limit)
        return err_set(err, ERR_TOO_LARGE, "the body is larger than %zu bytes", limit);
    if (coding && strcasecmp(coding, "identity") != 0)
        return err_set(err, ERR_MEDIA_TYPE, "the body must not be encoded");
    if (!is_json(http_header(req, MHD_HTTP_HEADER_CONTENT_TYPE)))
        return err_set(err, ERR_MEDIA_TYPE, "the Content-Type must be application/json");
    return 0;
}

static int options_reply(struct http_req *req, const char *allow)
{
    http_header_add(req, "Allow", "%s", allow);
    http_reply_empty(req);
    return 0;
}

/* Route, query, key and body headers: all that is known before the body. 0 also when the answer is there. */
static int admit(struct http_req *req, const char *method, struct err *err)
{
    struct http_server *s = req->server;
    char allow[96] = "";

    bool options = strcmp(method, "OPTIONS") == 0;
    if (options && strcmp(req->raw, "*") == 0)
        return options_reply(req, "GET, HEAD, POST, PUT, DELETE, OPTIONS");
    if (uri_split(req->raw, &req->uri, err) < 0)
        return -1;
    if (router_find(s->config.routes, method, req->uri.path, req->uri.path_len, &req->match, allow, err) <
        0) {
        if (err->code == ERR_METHOD && options)
            return options_reply(req, allow);
        if (err->code == ERR_METHOD)
            http_header_add(req, "Allow", "%s", allow);
        return -1;
    }
    if (req_parse_query(req, err) < 0)
        return -1;
    if (s->config.authorize(req, req->match.route, err) < 0)
        return -1;
    return check_body(req, err);
}

static enum MHD_Result refuse(struct http_req *req, const struct err *err)
{
    http_problem(req, err, NULL);
    return reply_send(req);
}

/* Keeps the failure until the body has been read, so that the client reads the answer and not a reset. */
static enum MHD_Result refuse_later(struct http_req *req, const struct err *err)
{
    req->failure = malloc(sizeof *err);
    if (!req->failure)
        return MHD_NO;
    *req->failure = *err;
    conn_deadline(req->conn, LIMIT_HTTP_REFUSED_MS);
    http_body_drop(req);
    return MHD_YES;
}

/* A client that sends no more in the middle of its body. Chunks are left to the watch thread: the last may be
 * in the library's buffer. */
static void notice_end(struct http_req *req)
{
    struct err early;

    if (req->head.chunked || req->received >= req->head.content_length || req->conn->refused ||
        !conn_sends_no_more(req->conn->fd))
        return;
    err_set(&early, ERR_BAD_REQUEST, "the request ends in the middle of its body");
    const struct err *err = req->failure ? req->failure : &early;
    req->status = (unsigned)err_status(err->code);
    conn_refuse(req->conn, err, req->id);
    shutdown(req->conn->fd, SHUT_RDWR); /* nothing can come any more: the library closes */
}

static enum MHD_Result first_call(struct http_req *req, const char *method, const char *version)
{
    struct http_server *s = req->server;
    struct err err;

    conn_deadline(req->conn, s->config.body_ms);
    snprintf(req->method, sizeof req->method, "%s", method);
    if (guard_head(req->mhd, version, &req->head, &err) < 0) {
        req->last = true; /* where it ends is not known */
        request_id_accept(NULL, req->id);
        return refuse(req, &err);
    }
    req->conn->may_probe = s->config.address && strcmp(version, "HTTP/1.1") == 0;
    const char *given = http_header(req, "X-Request-Id");
    request_id_accept(given, req->id);
    req->named = given && strcmp(given, req->id) == 0;
    trace_continue(req->head.traces == 1 ? http_header(req, "traceparent") : NULL, req->trace);
    bool body = req->head.chunked || req->head.content_length > 0;
    /* The end has come, and nothing of the body: no other call will be made. */
    bool alone = body && conn_sends_no_more(req->conn->fd) && conn_is_level(req->conn->fd, req->conn->taken);
    if (admit(req, method, &err) < 0) {
        if (body && (req->head.expects_continue || req->head.content_length > LIMIT_HTTP_SWALLOW))
            return refuse(req, &err); /* closes: it was not asked for, or is too much to read for nothing */
        if (refuse_later(req, &err) == MHD_NO)
            return MHD_NO;
    }
    if (req->head.chunked)
        chunks_begin(req);
    if (alone)
        notice_end(req);
    return MHD_YES;
}

static int body_add(struct http_req *req, const char *data, size_t len, struct err *err)
{
    struct http_server *s = req->server;
    size_t before = req->body.cap;

    req->body.max = req->match.route->body_limit;
    if (req->body.max < len || req->body.len > req->body.max - len)
        return err_set(err, ERR_TOO_LARGE, "the body is larger than %zu bytes", req->body.max);
    if (s->body_bytes + len > LIMIT_HTTP_BODIES)
        return err_set(err, ERR_OVERLOADED, "too many bodies are being received");
    int rc = buf_add(&req->body, data, len, err);
    s->body_bytes += req->body.cap - before;
    return rc;
}

static enum MHD_Result body_bytes(struct http_req *req, const char *data, size_t len)
{
    struct err err;

    req->received += len;
    if (req->conn->refused || req->reply)
        return MHD_YES;
    if (!req->failure) {
        if (body_add(req, data, len, &err) == 0)
            return MHD_YES;
        return refuse_later(req, &err);
    }
    if (req->received > LIMIT_HTTP_SWALLOW) {
        req->status = (unsigned)err_status(req->failure->code);
        conn_refuse(req->conn, req->failure, req->id); /* the library cannot answer in the middle of a body */
    }
    return MHD_YES;
}

enum MHD_Result intake_request(void *cls, struct MHD_Connection *mhd, const char *url, const char *method,
                               const char *version, const char *data, size_t *size, void **ptr)
{
    struct http_req *req = *ptr;
    enum http_result result;

    (void)cls;
    (void)mhd;
    (void)url; /* decoded and cut by the library; the raw target is in the request */
    if (!req)
        return MHD_NO;
    chunks_round(req->conn);
    if (!req->begun) {
        req->begun = true;
        req->server->requests++;
        return first_call(req, method, version);
    }
    if (*size > 0) {
        size_t len = *size;
        *size = 0;
        enum MHD_Result rc = body_bytes(req, data, len);
        notice_end(req);
        return rc;
    }
    chunks_end(req->conn);
    if (req->conn->refused)
        return MHD_NO;
    if (req->failure)
        return refuse(req, req->failure);
    if (req->reply)
        return reply_send(req);
    if (req->ticket && !req->settled) {
        req->settled = true;
        return follow(req, HTTP_PARK);
    }
    if (req->ticket)
        return park_resume(req, &result) ? follow(req, result) : MHD_NO;
    return follow(req, req->match.route->handler(req));
}
