/* From the raw request target to a row of the route tables: parameters are UTF-8 without NUL, their canonical
 * spelling finds the same row and the same values, and a literal segment has one spelling. */
#include "support/fuzz.h"

#include "base/limits.h"
#include "base/utf8.h"
#include "handlers/service.h"
#include "http/internal.h"

#include <stdio.h>
#include <string.h>

static const char *const methods[] = {"GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS", "PATCH", "get"};

static void add_encoded(struct buf *out, const char *value)
{
    struct err err;

    for (; *value; value++)
        PROPERTY(buf_addf(out, &err, "%%%02x", (unsigned char)*value) == 0, "%s", err.text);
}

/* The path of the row with its parameters all percent-encoded. */
static void spell(const struct http_match *match, struct buf *out)
{
    struct err err;
    unsigned n = 0;

    for (const char *p = match->route->path; *p; p++) {
        if (*p != '{') {
            PROPERTY(buf_add(out, p, 1, &err) == 0, "%s", err.text);
            continue;
        }
        PROPERTY(n < match->count, "parameter %u of %u", n, match->count);
        add_encoded(out, match->params[n++].value);
        p = strchr(p, '}');
    }
    PROPERTY(n == match->count, "%u parameters of %u", match->count, n);
}

static void check_spelling(const struct http_route *routes, const char *method,
                           const struct http_match *match)
{
    CLEANUP(buf_free) struct buf path = BUF_INIT(16 * LIMIT_HTTP_TARGET);
    struct http_match again = {0};
    char allow[96];
    struct err err = {0};

    spell(match, &path);
    PROPERTY(router_find(routes, method, path.data, path.len, &again, allow, &err) == 0, "%s is lost: %s",
             path.data, err.text);
    PROPERTY(again.route == match->route && again.count == match->count, "%s is another", path.data);
    for (unsigned i = 0; i < match->count; i++)
        PROPERTY(strcmp(again.params[i].value, match->params[i].value) == 0, "another value in %s",
                 path.data);
    router_match_free(&again);
}

static unsigned slashes(const char *s, size_t len)
{
    unsigned n = 0;

    for (size_t i = 0; i < len; i++)
        n += s[i] == '/';
    return n;
}

static void check_match(const struct uri *uri, const struct http_match *match)
{
    const struct http_route *route = match->route;
    size_t literal = strcspn(route->path, "{");

    PROPERTY(uri->path_len >= literal && memcmp(uri->path, route->path, literal) == 0,
             "another spelling of %s", route->path);
    PROPERTY(slashes(uri->path, uri->path_len) == slashes(route->path, strlen(route->path)),
             "other segments than %s", route->path);
    for (unsigned i = 0; i < match->count; i++) {
        const char *value = match->params[i].value;
        PROPERTY(*value && utf8_valid(value, strlen(value)), "a parameter of %s", route->path);
    }
}

static void check_query(const struct uri *uri, struct http_match *match)
{
    struct http_server server = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct http_req *req = req_new(&server, NULL, NULL, "");
    struct err err = {0};

    PROPERTY(req, "out of memory");
    req->uri = *uri;
    req->match = *match;
    *match = (struct http_match){0};
    int rc = req_parse_query(req, &err);
    for (unsigned i = 0; i < req->query_count; i++) {
        const char *name = req->query[i].name, *value = req->query[i].value;
        PROPERTY(*name && !strchr(name, ' ') && strstr(req->match.route->query, name), "parameter \"%s\"",
                 name);
        PROPERTY(utf8_valid(value, strlen(value)), "the value of %s", name);
        PROPERTY(http_query(req, name) == value, "%s stands twice", name);
    }
    if (rc < 0)
        fuzz_check_err(&err);
    req_free(req);
}

static void check_routes(const struct http_route *routes, const char *method, const struct uri *uri)
{
    struct http_match match = {0};
    char allow[96] = "x";
    struct err err = {0};

    if (router_find(routes, method, uri->path, uri->path_len, &match, allow, &err) < 0) {
        fuzz_check_err(&err);
        PROPERTY(!match.route && match.count == 0, "an output beside an error");
        PROPERTY((err.code == ERR_NOT_FOUND) == (allow[0] == '\0'), "%s with Allow: %s", err_name(err.code),
                 allow);
        PROPERTY(err.code == ERR_NOT_FOUND || strstr(allow, "OPTIONS"), "Allow: %s", allow);
        return;
    }
    PROPERTY(strstr(allow, method), "%s is not in %s", method, allow);
    check_match(uri, &match);
    check_spelling(routes, method, &match);
    check_query(uri, &match);
    router_match_free(&match);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    const char *method = methods[fuzz_byte(&in) % ARRAY_LEN(methods)];
    CLEANUP(free_str) char *raw = fuzz_text(in.data, in.size);
    size_t len = strlen(raw);
    struct uri uri = {0};
    struct err err = {0};

    if (uri_split(raw, &uri, &err) < 0) {
        fuzz_check_err(&err);
        PROPERTY(!uri.path && !uri.query, "an output beside an error");
        return 0;
    }
    PROPERTY(len <= LIMIT_HTTP_TARGET && uri.path >= raw && uri.path + uri.path_len <= raw + len &&
                 *uri.path == '/',
             "the path lies elsewhere");
    PROPERTY(!memchr(uri.path, '?', uri.path_len), "a query in the path");
    PROPERTY(!uri.query || uri.query + uri.query_len == raw + len, "the query lies elsewhere");
    check_routes(service_routes, method, &uri);
    check_routes(admin_routes, method, &uri);
    return 0;
}
