#include "http/router.h"

#include "http/uri.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* One segment of a path: up to the next slash. */
struct segment {
    const char *at;
    size_t len;
};

/* Takes the segment after the slash at *p; false at the end. */
static bool next_segment(const char **p, const char *end, struct segment *ret)
{
    if (*p >= end)
        return false;
    const char *from = *p + 1; /* *p is a slash */
    const char *slash = memchr(from, '/', (size_t)(end - from));
    ret->at = from;
    ret->len = (size_t)((slash ? slash : end) - from);
    *p = slash ? slash : end;
    return true;
}

/* Parameters take any segment but the empty one; all else is compared byte by byte. */
static bool segment_fits(const struct segment *pattern, const struct segment *actual)
{
    if (pattern->len > 0 && pattern->at[0] == '{')
        return actual->len > 0;
    return pattern->len == actual->len && memcmp(pattern->at, actual->at, actual->len) == 0;
}

static bool path_fits(const char *pattern, const char *path, size_t len)
{
    const char *pattern_end = pattern + strlen(pattern), *end = path + len;
    struct segment want, have;

    for (;;) {
        bool more = next_segment(&pattern, pattern_end, &want);
        if (more != next_segment(&path, end, &have))
            return false;
        if (!more)
            return true;
        if (!segment_fits(&want, &have))
            return false;
    }
}

static int take_params(const struct http_route *route, const char *path, size_t len, struct http_match *ret,
                       struct err *err)
{
    const char *pattern = route->path, *pattern_end = pattern + strlen(pattern), *end = path + len;
    struct segment want, have;

    while (next_segment(&pattern, pattern_end, &want) && next_segment(&path, end, &have)) {
        if (want.len < 2 || want.at[0] != '{')
            continue;
        if (ret->count == HTTP_PARAMS_MAX)
            return err_set(err, ERR_INTERNAL, "route %s has too many parameters", route->path);
        struct http_param *p = &ret->params[ret->count];
        if (uri_decode(have.at, have.len, false, &p->value, err) < 0)
            return -1;
        ret->count++;
        p->name = strndup(want.at + 1, want.len - 2);
        if (!p->name)
            return err_no_memory(err);
    }
    return 0;
}

static void allow_add(char allow[96], const char *method)
{
    size_t len = strlen(allow);
    snprintf(allow + len, 96 - len, "%s%s", len > 0 ? ", " : "", method);
    if (strcmp(method, "GET") == 0)
        allow_add(allow, "HEAD");
}

int router_find(const struct http_route *routes, const char *method, const char *path, size_t len,
                struct http_match *ret, char allow[96], struct err *err)
{
    const struct http_route *found = NULL;
    struct http_match match = {0};

    allow[0] = '\0';
    if (strcmp(method, "HEAD") == 0)
        method = "GET";
    for (const struct http_route *r = routes; r->method; r++) {
        if (!path_fits(r->path, path, len))
            continue;
        allow_add(allow, r->method);
        if (!found && strcmp(r->method, method) == 0)
            found = r;
    }
    if (allow[0] == '\0')
        return err_set(err, ERR_NOT_FOUND, "there is no such resource");
    allow_add(allow, "OPTIONS");
    if (!found)
        return err_set(err, ERR_METHOD, "this resource knows %s", allow);
    if (take_params(found, path, len, &match, err) < 0) {
        router_match_free(&match);
        return -1;
    }
    match.route = found;
    *ret = match;
    return 0;
}

void router_match_free(struct http_match *m)
{
    for (unsigned i = 0; i < m->count; i++) {
        free(m->params[i].name);
        free(m->params[i].value);
    }
    *m = (struct http_match){0};
}
