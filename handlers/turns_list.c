/* GET /v1/turns: from the newest to the oldest. */
#include "base/clock.h"
#include "handlers/access.h"
#include "handlers/page.h"
#include "handlers/resources.h"
#include "handlers/views.h"
#include "http/response.h"
#include "storage/turns.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Rows looked at for one page: a key that sees few of many turns gets short pages instead of slow ones. */
#define LOOK_MAX 2000

struct listing {
    const struct http_req *req;
    struct turn_filter filter;
    size_t limit, looked;
    json_t *data;
    bool has_more;
    int64_t last;
};

static int take(const struct turn *t, void *arg, struct err *err)
{
    struct listing *l = arg;
    const struct principal *p = caller_of(l->req);

    if (json_array_size(l->data) == l->limit || l->looked == LOOK_MAX) {
        l->has_more = true;
        return 1;
    }
    l->looked++;
    l->last = t->seq;
    if (!auth_allows(p, SCOPE_TURNS, SCOPE_TURNS_READ, t->channel, t->key_id))
        return 0;
    if (json_array_append_new(l->data, turn_view(t, auth_scope(p, SCOPE_TURNS_READ))) < 0)
        return err_no_memory(err);
    return 0;
}

static int list_job(struct store *st, void *arg, struct err *err)
{
    struct listing *l = arg;

    return turns_list(st, &l->filter, take, l, err);
}

static int read_status(const char *text, int *ret, struct err *err)
{
    *ret = -1;
    if (!text)
        return 0;
#define X(code, name)                                                                                        \
    if (strcmp(text, name) == 0)                                                                             \
        *ret = code;
    TURN_STATUS_TABLE(X)
#undef X
    return *ret < 0 ? err_set(err, ERR_BAD_REQUEST, "status is not one that a turn can have") : 0;
}

static int read_time(const char *name, const char *text, int64_t *ret, struct err *err)
{
    if (text && clock_parse_rfc3339(text, ret) < 0)
        return err_set(err, ERR_BAD_REQUEST, "%s is a time such as 2026-01-31T12:00:00Z", name);
    return 0;
}

static int read_query(struct listing *l, struct err *err)
{
    const struct http_req *req = l->req;
    const char *cursor = http_query(req, "cursor");
    char before[32], *end;

    l->filter.channel = http_query(req, "channel");
    l->filter.speaker_id = http_query(req, "speaker");
    if (!auth_scope(caller_of(req),
                    SCOPE_TURNS_READ)) /* it sees its own only: the database need not show others */
        l->filter.key_id = caller_of(req)->key_id;
    if (page_limit(http_query(req, "limit"), &l->limit, err) < 0 ||
        read_status(http_query(req, "status"), &l->filter.status, err) < 0 ||
        read_time("since", http_query(req, "since"), &l->filter.since_ms, err) < 0 ||
        read_time("until", http_query(req, "until"), &l->filter.until_ms, err) < 0)
        return -1;
    if (!cursor)
        return 0;
    if (page_cursor(cursor, before, sizeof before, err) < 0)
        return -1;
    l->filter.before = strtoll(before, &end, 10);
    if (*end != '\0' || l->filter.before <= 0)
        return err_set(err, ERR_BAD_REQUEST, "the cursor is not one that a list gave");
    return 0;
}

enum http_result turns_list_get(struct http_req *req)
{
    CLEANUP(json_free) json_t *data = json_array();
    struct listing l = {.req = req, .data = data};
    char last[32];
    struct err err;

    if (!data) {
        err_no_memory(&err);
        return http_problem(req, &err, NULL);
    }
    if (read_query(&l, &err) < 0 || db_read(service_of(req)->db, list_job, &l, &err) < 0)
        return http_problem(req, &err, NULL);
    snprintf(last, sizeof last, "%" PRId64, l.last);
    return page_reply(req, data, l.has_more, last);
}
