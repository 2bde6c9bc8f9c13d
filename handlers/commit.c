#include "handlers/commit.h"

#include "handlers/access.h"
#include "http/park.h"

#include <stdatomic.h>

/* Shared by the request, which waits, and the writer thread, which may come later than the client's patience.
 */
struct commit {
    atomic_uint refs;
    const struct commit_ops *ops;
    void *arg;
    struct http_ticket *ticket;
    struct err result; /* set before the ticket is woken */
};

static void commit_unref(void *p)
{
    struct commit *c = p;

    if (atomic_fetch_sub(&c->refs, 1) > 1)
        return;
    c->ops->free(c->arg);
    http_ticket_release(c->ticket);
    free(c);
}

static int run_job(struct store *st, void *p, struct err *err)
{
    struct commit *c = p;

    return c->ops->job(st, c->arg, err);
}

static void done(void *p, const struct err *result)
{
    struct commit *c = p;

    if (c->ops->committed)
        c->ops->committed(c->arg, result);
    c->result = *result;
    http_wake(c->ticket);
    commit_unref(c);
}

static enum http_result woken(struct http_req *req, enum http_why why, void *p)
{
    struct commit *c = p;
    struct err err;
    enum http_result result;

    if (why == HTTP_WOKEN) {
        result = c->ops->then(req, &c->result, c->arg);
    } else {
        err_set(&err, ERR_DRAINING, "the service stopped before the outcome was known");
        result = http_problem(req, &err, NULL);
    }
    commit_unref(c);
    return result;
}

enum http_result commit(struct http_req *req, const struct commit_ops *ops, void *arg)
{
    struct commit *c = calloc(1, sizeof *c);
    struct err err;

    if (!c) {
        ops->free(arg);
        err_no_memory(&err);
        return http_problem(req, &err, NULL);
    }
    c->ops = ops;
    c->arg = arg;
    c->refs = 2;
    c->ticket = http_park_brief(req, woken, commit_unref, c, &err);
    if (!c->ticket) {
        c->refs = 1;
        commit_unref(c);
        return http_problem(req, &err, NULL);
    }
    if (db_submit(service_of(req)->db, run_job, done, c, &err) < 0) {
        commit_unref(c); /* the writer's part; the request's goes when its ticket is abandoned */
        return http_problem(req, &err, NULL);
    }
    return HTTP_PARK;
}
