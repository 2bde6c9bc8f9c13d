#include "http/internal.h"

#include "base/clock.h"
#include "base/limits.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

/* Deadlines farther away than this need no wake-up: the thread looks at least that often. */
#define SCAN_MS 500

/* NULL when the connection has been closed since the event was queued. */
static struct conn *conn_by_token(struct http_server *s, uint64_t token)
{
    uint32_t fd = (uint32_t)token;
    struct conn *c = fd < s->by_fd_size ? s->by_fd[fd] : NULL;

    return c && conn_token(c) == token ? c : NULL;
}

void watch_add(struct conn *c)
{
    struct epoll_event e = {.events = (c->half_closed ? 0 : EPOLLRDHUP) | EPOLLONESHOT,
                            .data.u64 = conn_token(c)};

    /* Without the watch the client only waits longer than needed. */
    c->watched = epoll_ctl(c->server->epoll_fd, EPOLL_CTL_ADD, c->fd, &e) == 0;
    c->probe_at = HTTP_NEVER;
}

void watch_remove(struct conn *c)
{
    if (c->watched)
        epoll_ctl(c->server->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
    c->watched = false;
    c->probe_at = HTTP_NEVER;
}

void watch_wake_at(struct http_server *s, int64_t when)
{
    uint64_t one = 1;

    if (when >= s->next_scan || when >= clock_mono_ms() + SCAN_MS)
        return;
    s->rescan = true;
    if (write(s->event_fd, &one, sizeof one) < 0)
        return; /* the counter is full: it is readable anyway */
}

/* A client that closed its sending half may still read, and looks the same as one that left; an interim
 * answer makes the kernel of one that left send a reset. (RFC 9110 section 15.2: any number of 1xx is
 * allowed) */
static void probe(struct conn *c, int64_t now)
{
    static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";

    c->probe_at = HTTP_NEVER;
    if (!c->may_probe)
        return;
    if (send(c->fd, interim, sizeof interim - 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno != EAGAIN)
        ticket_wake(c->parked, WHY_GONE);
    else
        c->probe_at = now + LIMIT_HTTP_PROBE_MS;
}

static void departure(struct conn *c, uint32_t events, int64_t now)
{
    struct epoll_event rearm = {.events = EPOLLONESHOT, .data.u64 = conn_token(c)};

    if (!c->parked)
        return;
    if (events & (EPOLLERR | EPOLLHUP)) {
        ticket_wake(c->parked, WHY_GONE);
        return;
    }
    if (c->parked->stream) { /* what it sends next shows whether there is still a client */
        c->half_closed = true;
        ticket_wake(c->parked, HTTP_DEADLINE);
        return;
    }
    if (epoll_ctl(c->server->epoll_fd, EPOLL_CTL_MOD, c->fd, &rearm) < 0)
        return;
    probe(c, now);
}

/* What is due for one connection; returns when it wants to be looked at next. May free c. */
static int64_t scan_conn(struct conn *c, int64_t now)
{
    int64_t deadline = c->deadline, next = HTTP_NEVER;

    if (deadline <= now && (c->gated || c->between)) {
        gate_close(c);
        return HTTP_NEVER;
    }
    if (deadline <= now) {
        shutdown(c->fd, SHUT_RDWR); /* the library sees the end of the stream and cleans up */
        atomic_compare_exchange_strong(&c->deadline, &deadline, HTTP_NEVER);
    } else {
        next = deadline;
    }
    if (!c->parked)
        return next;
    if (c->parked->deadline <= now)
        ticket_wake(c->parked, HTTP_DEADLINE);
    else if (c->parked->deadline < next)
        next = c->parked->deadline;
    if (c->probe_at <= now)
        probe(c, now);
    return next;
}

static int64_t scan(struct http_server *s, int64_t now)
{
    int64_t next = now + SCAN_MS;
    struct conn *following;
    unsigned active = 0;

    if (s->accept_again <= now)
        gate_listen(s, true);
    for (struct conn *c = s->conns; c; c = following) {
        following = c->next;
        active += !c->gated && !c->between && !c->parked;
        int64_t want = scan_conn(c, now);
        next = want < next ? want : next;
    }
    if (active < KICK_CLIENTS)
        return next;
    kick_threads(s);
    return next < now + KICK_MS ? next : now + KICK_MS;
}

static void handle_event(struct http_server *s, const struct epoll_event *e, int64_t now)
{
    uint64_t count;

    if (e->data.u64 == WATCH_WAKE) {
        if (read(s->event_fd, &count, sizeof count) < 0)
            return; /* drained already */
    } else if (e->data.u64 == WATCH_LISTENER) {
        gate_accept(s, now);
    } else {
        struct conn *c = conn_by_token(s, e->data.u64);
        if (c && (c->gated || c->between))
            gate_event(c, e->events);
        else if (c)
            departure(c, e->events, now);
    }
}

static void *watch_main(void *arg)
{
    struct http_server *s = arg;
    struct epoll_event events[128];

    while (!s->watch_ends) {
        int n = epoll_wait(s->epoll_fd, events, ARRAY_LEN(events), clock_left_ms(s->next_scan));
        int64_t now = clock_mono_ms();
        pthread_mutex_lock(&s->lock);
        for (int i = 0; i < n; i++)
            handle_event(s, &events[i], now);
        if (now >= s->next_scan || s->rescan) {
            s->rescan = false;
            s->next_scan = HTTP_NEVER; /* whoever sets a near deadline from here on wakes us again */
            s->next_scan = scan(s, now);
        }
        pthread_mutex_unlock(&s->lock);
    }
    return NULL;
}

int watch_open(struct http_server *s, struct err *err)
{
    struct epoll_event wake = {.events = EPOLLIN, .data.u64 = WATCH_WAKE};

    s->accept_again = HTTP_NEVER;
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    s->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->epoll_fd < 0 || s->event_fd < 0 || epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, s->event_fd, &wake) < 0)
        return err_errno(err, errno, "watch connections");
    return 0;
}

int watch_start(struct http_server *s, struct err *err)
{
    struct epoll_event listener = {.events = EPOLLIN, .data.u64 = WATCH_LISTENER};

    if (epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, s->config.listen_fd, &listener) < 0)
        return err_errno(err, errno, "watch the listening socket");
    int rc = pthread_create(&s->watch, NULL, watch_main, s);
    if (rc != 0)
        return err_errno(err, rc, "start the watch thread");
    s->watch_runs = true;
    return 0;
}

void watch_stop(struct http_server *s)
{
    uint64_t one = 1;

    s->watch_ends = true;
    if (s->watch_runs && write(s->event_fd, &one, sizeof one) >= 0)
        pthread_join(s->watch, NULL);
    s->watch_runs = false;
}

void watch_close(struct http_server *s)
{
    if (s->epoll_fd >= 0)
        close(s->epoll_fd);
    if (s->event_fd >= 0)
        close(s->event_fd);
}
