#include "base/limits.h"
#include "handlers/access.h"
#include "handlers/page.h"
#include "handlers/resources.h"
#include "handlers/views.h"
#include "http/response.h"

#include <stdio.h>
#include <string.h>

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

enum http_result channels_list(struct http_req *req)
{
    struct page p = {.req = req};
    const char *cursor = http_query(req, "cursor");
    struct err err;

    if (page_limit(http_query(req, "limit"), &p.limit, &err) < 0 ||
        (cursor && page_cursor(cursor, p.after, sizeof p.after, &err) < 0))
        return http_problem(req, &err, NULL);
    CLEANUP(json_free) json_t *data = json_array();
    p.data = data;
    if (!data)
        err_no_memory(&err);
    if (!data || db_read(service_of(req)->db, list_job, &p, &err) < 0)
        return http_problem(req, &err, NULL);
    return page_reply(req, data, p.has_more, p.last);
}
