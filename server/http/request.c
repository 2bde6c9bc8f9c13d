#include "http/internal.h"

#include "base/clock.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

struct http_req *req_new(struct http_server *s, struct conn *c, struct MHD_Connection *mhd, const char *raw)
{
    struct http_req *req = calloc(1, sizeof(*req));

    if (!req)
        return NULL;
    req->raw = strdup(raw ? raw : "");
    if (!req->raw) {
        free(req);
        return NULL;
    }
    req->server = s;
    req->conn = c;
    req->mhd = mhd;
    req->uri.path = "";
    req->began = clock_mono_ms();
    return req;
}

void http_body_drop(struct http_req *req)
{
    req->server->body_bytes -= req->body.cap;
    buf_free(&req->body);
}

void req_free(struct http_req *req)
{
    http_body_drop(req);
    router_match_free(&req->match);
    for (unsigned i = 0; i < req->query_count; i++) {
        free(req->query[i].name);
        free(req->query[i].value);
    }
    for (unsigned i = 0; i < req->header_count; i++)
        free(req->headers[i].value);
    if (req->principal_free)
        req->principal_free(req->principal);
    if (req->reply)
        MHD_destroy_response(req->reply);
    free(req->failure);
    free(req->raw);
    free(req);
}

/* True when the blank-separated list holds the name. */
static bool listed(const char *list, const char *name)
{
    size_t len = strlen(name);

    for (const char *p = list; p && *p; p += strspn(p, " ")) {
        size_t word = strcspn(p, " ");
        if (word == len && memcmp(p, name, len) == 0)
            return true;
        p += word;
    }
    return false;
}

static int take_pair(struct http_req *req, const char *at, size_t len, struct err *err)
{
    const char *equals = memchr(at, '=', len);
    size_t name_len = equals ? (size_t)(equals - at) : len;
    CLEANUP(free_str) char *name = NULL;
    CLEANUP(free_str) char *value = NULL;

    if (uri_decode(at, name_len, true, &name, err) < 0)
        return -1;
    if (uri_decode(equals ? equals + 1 : "", equals ? len - name_len - 1 : 0, true, &value, err) < 0)
        return -1;
    if (!listed(req->match.route->query, name))
        return err_set(err, ERR_BAD_REQUEST, "the query parameter \"%.64s\" is not known here", name);
    if (http_query(req, name))
        return err_set(err, ERR_BAD_REQUEST, "the query parameter \"%s\" comes twice", name);
    if (req->query_count == LIMIT_HTTP_QUERY)
        return err_set(err, ERR_BAD_REQUEST, "more than %d query parameters", LIMIT_HTTP_QUERY);
    req->query[req->query_count++] = (struct http_param){.name = STEAL(name), .value = STEAL(value)};
    return 0;
}

int req_parse_query(struct http_req *req, struct err *err)
{
    const char *p = req->uri.query, *end = p ? p + req->uri.query_len : NULL;

    while (p && p < end) {
        const char *amp = memchr(p, '&', (size_t)(end - p));
        size_t len = (size_t)((amp ? amp : end) - p);
        if (len > 0 && take_pair(req, p, len, err) < 0)
            return -1;
        p += len + 1;
    }
    return 0;
}

void *http_context(const struct http_req *req)
{
    return req->server->config.context;
}

const char *http_method(const struct http_req *req)
{
    return strcmp(req->method, "HEAD") == 0 ? "GET" : req->method;
}

const char *http_request_id(const struct http_req *req)
{
    return req->id;
}

void http_quiet(struct http_req *req)
{
    req->quiet = true;
}

const char *http_traceparent(const struct http_req *req)
{
    return req->trace;
}

const char *http_path_param(const struct http_req *req, const char *name)
{
    for (unsigned i = 0; i < req->match.count; i++) {
        if (strcmp(req->match.params[i].name, name) == 0)
            return req->match.params[i].value;
    }
    return NULL;
}

const char *http_query(const struct http_req *req, const char *name)
{
    for (unsigned i = 0; i < req->query_count; i++) {
        if (strcmp(req->query[i].name, name) == 0)
            return req->query[i].value;
    }
    return NULL;
}

const char *http_header(const struct http_req *req, const char *name)
{
    return MHD_lookup_connection_value(req->mhd, MHD_HEADER_KIND, name);
}

struct joining {
    const char *name;
    struct buf list;
    struct err *err;
    bool failed;
};

static enum MHD_Result join_line(void *cls, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct joining *j = cls;

    (void)kind;
    if (!value || strcasecmp(name, j->name) != 0)
        return MHD_YES;
    j->failed =
        (j->list.len > 0 && buf_adds(&j->list, ", ", j->err) < 0) || buf_adds(&j->list, value, j->err) < 0;
    return j->failed ? MHD_NO : MHD_YES;
}

int http_header_list(const struct http_req *req, const char *name, char **ret, struct err *err)
{
    struct joining j = {.name = name, .list = BUF_INIT(LIMIT_HTTP_HEAD), .err = err};

    MHD_get_connection_values(req->mhd, MHD_HEADER_KIND, join_line, &j);
    if (j.failed) {
        buf_free(&j.list);
        return -1;
    }
    *ret = buf_steal(&j.list);
    return 0;
}

const char *http_body(const struct http_req *req, size_t *len)
{
    *len = req->body.len;
    return req->body.data ? req->body.data : "";
}

int http_body_json(const struct http_req *req, json_t **ret, struct err *err)
{
    size_t len;
    const char *text = http_body(req, &len);

    if (len == 0)
        return err_set(err, ERR_INVALID_JSON, "the body is empty");
    return json_parse(text, len, ret, err);
}

bool http_is_local(const struct http_req *req)
{
    return req->server->config.address == NULL;
}

int http_peer_uid(const struct http_req *req, uid_t *ret, struct err *err)
{
    struct ucred cred;
    socklen_t len = sizeof cred;

    if (!http_is_local(req))
        return err_set(err, ERR_FORBIDDEN, "only on the local socket");
    if (getsockopt(req->conn->fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
        return err_errno(err, errno, "ask for the peer");
    *ret = cred.uid;
    return 0;
}

void http_set_principal(struct http_req *req, void *principal, void (*free_fn)(void *))
{
    if (req->principal_free)
        req->principal_free(req->principal);
    req->principal = principal;
    req->principal_free = free_fn;
}

void *http_principal(const struct http_req *req)
{
    return req->principal;
}
