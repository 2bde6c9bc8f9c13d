#include "http/internal.h"

#include "base/clock.h"

bool http_stopping(struct http_server *s)
{
    pthread_mutex_lock(&s->lock);
    bool stopping = s->stopping;
    pthread_mutex_unlock(&s->lock);
    return stopping;
}

struct http_ticket *ticket_new(struct http_req *req)
{
    struct http_ticket *t = calloc(1, sizeof(*t));

    if (!t || pthread_mutex_init(&t->lock, NULL) != 0) {
        free(t);
        return NULL;
    }
    t->refs = 1;
    t->mhd = req->mhd;
    t->deadline = HTTP_NO_DEADLINE;
    return t;
}

struct http_ticket *http_park(struct http_req *req, http_then *then, http_gone *gone, void *arg,
                              int64_t deadline, struct err *err)
{
    if (http_stopping(req->server)) {
        err_set(err, ERR_DRAINING, "the service is stopping");
        return NULL;
    }
    if (req->ticket) {
        err_set(err, ERR_INTERNAL, "parked twice");
        return NULL;
    }
    struct http_ticket *t = ticket_new(req);
    if (!t) {
        err_no_memory(err);
        return NULL;
    }
    t->refs = 2; /* the caller's and the request's */
    t->then = then;
    t->gone = gone;
    t->arg = arg;
    t->deadline = deadline;
    req->ticket = t;
    return t;
}

struct http_ticket *http_park_brief(struct http_req *req, http_then *then, http_gone *gone, void *arg,
                                    struct err *err)
{
    struct http_ticket *t = http_park(req, then, gone, arg, HTTP_NO_DEADLINE, err);

    if (t)
        t->brief = true;
    return t;
}

void http_ticket_release(struct http_ticket *t)
{
    if (!t || atomic_fetch_sub(&t->refs, 1) > 1)
        return;
    pthread_mutex_destroy(&t->lock);
    free(t);
}

void ticket_wake(struct http_ticket *t, int why)
{
    pthread_mutex_lock(&t->lock);
    if (t->state == TICKET_ARMED || t->state == TICKET_SUSPENDED)
        t->why = why;
    if (t->state == TICKET_ARMED) {
        t->state = TICKET_WOKEN;
    } else if (t->state == TICKET_SUSPENDED) {
        t->state = TICKET_RESUMED;
        MHD_resume_connection(t->mhd); /* it cannot have vanished: only this resumes it */
    }
    pthread_mutex_unlock(&t->lock);
}

void http_wake(struct http_ticket *t)
{
    ticket_wake(t, HTTP_WOKEN);
}

bool ticket_suspend(struct conn *c, struct http_ticket *t)
{
    struct http_server *s = c->server;

    conn_deadline(c, 0);
    pthread_mutex_lock(&s->lock);
    atomic_fetch_add(&t->refs, 1);
    c->parked = t;
    watch_add(c);
    bool stopping = t->brief ? s->cutting : s->stopping;
    pthread_mutex_unlock(&s->lock);
    if (stopping)
        ticket_wake(t, HTTP_STOPPING);
    if (t->deadline != HTTP_NO_DEADLINE)
        watch_wake_at(s, t->deadline);

    pthread_mutex_lock(&t->lock);
    bool suspend = t->state == TICKET_ARMED;
    if (suspend) {
        MHD_suspend_connection(t->mhd);
        t->state = TICKET_SUSPENDED;
    }
    pthread_mutex_unlock(&t->lock);
    return suspend;
}

int ticket_take(struct conn *c, struct http_ticket *t, enum ticket_state next)
{
    struct http_server *s = c->server;

    pthread_mutex_lock(&s->lock);
    struct http_ticket *parked = STEAL(c->parked);
    watch_remove(c);
    pthread_mutex_unlock(&s->lock);
    http_ticket_release(parked);

    pthread_mutex_lock(&t->lock);
    int why = t->why;
    t->why = HTTP_WOKEN;
    t->state = next;
    pthread_mutex_unlock(&t->lock);
    return why;
}

bool park_suspend(struct http_req *req)
{
    return ticket_suspend(req->conn, req->ticket);
}

bool park_resume(struct http_req *req, enum http_result *ret)
{
    struct http_ticket *t = STEAL(req->ticket);
    int why = ticket_take(req->conn, t, TICKET_OVER);

    if (why == WHY_GONE)
        t->gone(t->arg);
    else
        *ret = t->then(req, (enum http_why)why, t->arg);
    http_ticket_release(t);
    return why != WHY_GONE;
}

void park_abandon(struct http_req *req)
{
    struct http_ticket *t = STEAL(req->ticket);

    ticket_take(req->conn, t, TICKET_OVER);
    t->gone(t->arg);
    http_ticket_release(t);
}
