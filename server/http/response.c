#include "http/internal.h"

#include "base/limits.h"
#include "base/log.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

static bool has_header(const struct http_req *req, const char *name)
{
    for (unsigned i = 0; i < req->header_count; i++) {
        if (strcasecmp(req->headers[i].name, name) == 0)
            return true;
    }
    return false;
}

void http_header_add(struct http_req *req, const char *name, const char *fmt, ...)
{
    char *value = NULL;
    va_list ap;

    va_start(ap, fmt);
    int n = vasprintf(&value, fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    if (req->header_count == HTTP_HEADERS_MAX || utf8_has_control(value, (size_t)n)) {
        free(value);
        return;
    }
    req->headers[req->header_count++] = (struct http_header){.name = name, .value = value};
}

static enum http_result reply_with(struct http_req *req, unsigned status, const char *type,
                                   struct MHD_Response *response)
{
    if (req->reply)
        MHD_destroy_response(req->reply);
    req->reply = response;
    req->status = status;
    if (response && type && MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type) == MHD_NO) {
        MHD_destroy_response(response);
        req->reply = NULL;
    }
    return HTTP_DONE;
}

static enum http_result reply_owned(struct http_req *req, unsigned status, const char *type, char *text,
                                    size_t len)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE);

    if (!response)
        free(text);
    return reply_with(req, status, type, response);
}

/* The last resort needs no memory but the library's own. */
static enum http_result reply_no_memory(struct http_req *req)
{
    static const char text[] =
        "{\"type\":\"/problems/no_memory\",\"title\":\"The service is out of memory.\","
        "\"status\":503,\"code\":\"no_memory\",\"detail\":\"Try again later.\"}";

    return http_reply_static(req, 503, "application/problem+json", text, sizeof text - 1);
}

enum http_result http_reply_static(struct http_req *req, unsigned status, const char *type, const char *text,
                                   size_t len)
{
    /* The library promises not to write to persistent memory; its parameter only lacks the const. */
    struct MHD_Response *response =
        MHD_create_response_from_buffer(len, (void *)(uintptr_t)text, MHD_RESPMEM_PERSISTENT);

    return reply_with(req, status, type, response);
}

enum http_result http_reply_text(struct http_req *req, unsigned status, const char *type, const char *text,
                                 size_t len)
{
    return reply_with(req, status, type,
                      MHD_create_response_from_buffer(len, (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY));
}

enum http_result http_reply_empty(struct http_req *req)
{
    return http_reply_static(req, 204, NULL, "", 0);
}

enum http_result http_reply_json(struct http_req *req, unsigned status, json_t *value)
{
    CLEANUP(json_free) json_t *owned = value;
    char *text = NULL;
    struct err err;

    if (!owned || json_text(owned, &text, &err) < 0)
        return reply_no_memory(req);
    return reply_owned(req, status, "application/json", text, strlen(text));
}

/* What a server-side failure says is for the operator's log; these sentences are our own and tell nothing. */
static bool may_tell(enum err_code code)
{
    return err_status(code) < 500 || code == ERR_OVERLOADED || code == ERR_DRAINING ||
           code == ERR_DISK_FULL || code == ERR_ENGINE_AWAY || code == ERR_NOT_READY;
}

char *problem_text(const struct err *err, const struct json_faults *faults)
{
    CLEANUP(free_str) char *type = NULL;
    CLEANUP(free_str) char *detail = utf8_sanitize(err->text, strlen(err->text));
    CLEANUP(json_free) json_t *problem = NULL;
    struct err failure;
    char *text = NULL;

    if (asprintf(&type, "/problems/%s", err_name(err->code)) < 0 || !detail)
        return NULL;
    const char *tell = may_tell(err->code) ? detail : "The server's log says more, under this request's id.";
    problem = json_pack("{s:s, s:s, s:i, s:s, s:s}", "type", type, "title", err_title(err->code), "status",
                        err_status(err->code), "code", err_name(err->code), "detail", tell);
    if (problem && faults && faults->list && json_object_set(problem, "errors", faults->list) < 0)
        return NULL;
    if (!problem || json_text(problem, &text, &failure) < 0)
        return NULL;
    return text;
}

enum http_result http_problem(struct http_req *req, const struct err *err, const struct json_faults *faults)
{
    unsigned status = (unsigned)err_status(err->code);
    char *text = problem_text(err, faults);

    if (status >= 500) /* what a full or stopping service says to many is no warning each */
        log_line(may_tell(err->code) ? LOG_DEBUG : LOG_WARN, req->id, "%s: %s", err_name(err->code),
                 err->text);
    if (!text)
        return reply_no_memory(req);
    return reply_owned(req, status, "application/problem+json", text, strlen(text));
}

/* Decided before the library decides for itself, and never the other way round: what we take back it must
 * keep as well. */
static bool is_last(const struct http_req *req)
{
    struct conn *c = req->conn;
    uint64_t taken = c->taken + req->received;

    return req->last || req->stream || req->head.closes || req->head.chunked ||
           req->received < req->head.content_length || req->server->quiesced || conn_sends_no_more(c->fd) ||
           !conn_is_level(c->fd, taken);
}

enum MHD_Result reply_send(struct http_req *req)
{
    if (!req->reply)
        reply_no_memory(req);
    if (!req->reply)
        return MHD_NO;
    MHD_add_response_header(req->reply, "X-Request-Id", req->id);
    MHD_add_response_header(req->reply, "X-Content-Type-Options", "nosniff");
    if (!has_header(req, MHD_HTTP_HEADER_CACHE_CONTROL))
        MHD_add_response_header(req->reply, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    if ((req->status == 503 || req->status == 429) && !has_header(req, MHD_HTTP_HEADER_RETRY_AFTER))
        MHD_add_response_header(req->reply, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    for (unsigned i = 0; i < req->header_count; i++)
        MHD_add_response_header(req->reply, req->headers[i].name, req->headers[i].value);
    req->last = is_last(req);
    req->conn->taken += req->received;
    if (req->last)
        MHD_add_response_header(req->reply, MHD_HTTP_HEADER_CONNECTION, "close");
    conn_deadline(req->conn, req->server->config.reply_ms);
    return MHD_queue_response(req->mhd, req->status, req->reply);
}
