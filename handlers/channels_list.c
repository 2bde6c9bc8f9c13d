#include "base/limits.h"
#include "base/utf8.h"
#include "handlers/access.h"
#include "handlers/resources.h"
#include "handlers/views.h"
#include "http/response.h"

#include <stdio.h>
#include <string.h>

#define PAGE_DEFAULT 50
#define PAGE_MAX     200

struct page {
    const struct http_req *req;
    size_t limit;
    char after[LIMIT_CHANNEL_KEY + 1]; /* key of the last channel of the page before */
    json_t *data;
    bool has_more;
    char last[LIMIT_CHANNEL_KEY + 1];
};

static int take(const struct channel *c, void *arg, struct err *err)
{
    struct page *p = arg;

    if (!auth_allows(caller_of(p->req), SCOPE_CHANNELS, SCOPE_CHANNELS, c->key, NULL))
        return 0;
    if (json_array_size(p->data) == p->limit) {
        p->has_more = true;
        return 1;
    }
    if (json_array_append_new(p->data, channel_view(service_of(p->req), c)) < 0)
        return err_no_memory(err);
    snprintf(p->last, sizeof p->last, "%s", c->key);
    return 0;
}

static int list_job(struct store *st, void *arg, struct err *err)
{
    struct page *p = arg;

    return channels_each(st, p->after, take, p, err);
}

/* The cursor is the last key in hex: opaque to clients, safe in a query. */
static int cursor_read(const char *cursor, char *out, size_t size, struct err *err)
{
    size_t len = strlen(cursor);
    unsigned byte;

    if (len % 2 != 0 || len / 2 >= size || strspn(cursor, "0123456789abcdef") != len)
        return err_set(err, ERR_BAD_REQUEST, "the cursor is not one that a list gave");
    for (size_t i = 0; i < len; i += 2) {
        if (sscanf(cursor + i, "%2x", &byte) != 1 || byte == 0)
            return err_set(err, ERR_BAD_REQUEST, "the cursor is not one that a list gave");
        out[i / 2] = (char)byte;
    }
    out[len / 2] = '\0';
    if (!utf8_valid(out, len / 2))
        return err_set(err, ERR_BAD_REQUEST, "the cursor is not one that a list gave");
    return 0;
}

static json_t *cursor_make(const struct page *p)
{
    char hex[2 * LIMIT_CHANNEL_KEY + 1] = "";

    if (!p->has_more)
        return json_null();
    for (size_t i = 0; p->last[i]; i++)
        snprintf(hex + 2 * i, 3, "%02x", (unsigned char)p->last[i]);
    return json_string(hex);
}

static int limit_read(const char *text, size_t *ret, struct err *err)
{
    *ret = PAGE_DEFAULT;
    if (!text)
        return 0;
    unsigned long n = strspn(text, "0123456789") == strlen(text) ? strtoul(text, NULL, 10) : 0;
    if (n < 1 || n > PAGE_MAX)
        return err_set(err, ERR_BAD_REQUEST, "limit is a number from 1 to %d", PAGE_MAX);
    *ret = n;
    return 0;
}

enum http_result channels_list(struct http_req *req)
{
    struct page p = {.req = req};
    const char *cursor = http_query(req, "cursor");
    struct err err;

    if (limit_read(http_query(req, "limit"), &p.limit, &err) < 0 ||
        (cursor && cursor_read(cursor, p.after, sizeof p.after, &err) < 0))
        return http_problem(req, &err, NULL);
    CLEANUP(json_free)
    json_t *data = json_array();
    p.data = data;
    if (!data)
        err_no_memory(&err);
    if (!data || db_read(service_of(req)->db, list_job, &p, &err) < 0)
        return http_problem(req, &err, NULL);
    return http_reply_json(
        req, 200,
        json_pack("{s:O, s:b, s:o}", "data", data, "has_more", p.has_more, "next_cursor", cursor_make(&p)));
}
