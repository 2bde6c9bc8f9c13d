/* Where requests come in. The watch thread accepts, waits until the whole head is there (without taking it
 * out of the socket), and hands the connection to the library only when the head is sound: so a refusal is a
 * problem document and not the library's HTML, a client that dawdles costs one descriptor, and a full service
 * says 503 instead of leaving clients in the backlog.
 *
 * After the answer the connection comes back here (suspended in the library) for the next head, as long as
 * that begins where this thread looks: behind a chunked body, or with more bytes in the library's buffer than
 * the request had, the answer was the connection's last. So the library sees no head that was not checked,
 * and nothing that hides behind a request is ever taken for another one. */
#include "http/internal.h"

#include "base/clock.h"
#include "base/limits.h"
#include "http/rawhead.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define GATE_EVENTS     (EPOLLIN | EPOLLRDHUP | EPOLLET)
#define ACCEPT_AT_ONCE  64
#define ACCEPT_PAUSE_MS 100 /* when the process is out of descriptors or memory */

/* Back to the library; the connection may end before this returns. */
static void give_back(struct conn *c)
{
    watch_remove(c);
    c->idle = false;
    MHD_resume_connection(STEAL(c->between));
}

/* A connection that the library does not know (yet) is ours to close; one that it knows it closes itself,
 * when it finds the end of the stream. */
void gate_close(struct conn *c)
{
    int fd = c->fd;

    if (c->between) {
        c->refused = true; /* what lies in the socket is not looked at (intake_target) */
        shutdown(fd, SHUT_RDWR);
        give_back(c);
        return;
    }
    conn_free(c);
    close(fd);
}

static void gate_refuse(struct conn *c, enum err_code code, const char *why)
{
    struct err err;

    err_set(&err, code, "%s", why);
    conn_refuse(c, &err, NULL);
}

/* Reads and drops what comes, so that the answer is not lost to a reset, until the client is done. */
static void drop_input(struct conn *c)
{
    char bin[16384];
    ssize_t n;

    for (int i = 0; i < 16; i++) { /* a flood gets no more of this thread at once */
        n = recv(c->fd, bin, sizeof bin, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
            gate_close(c);
            return;
        }
        if (n < 0)
            return;
    }
    struct epoll_event again = {.events = GATE_EVENTS, .data.u64 = conn_token(c)};
    epoll_ctl(c->server->epoll_fd, EPOLL_CTL_MOD, c->fd, &again); /* fires again; the deadline is near */
}

/* A client that came earlier and has nothing under way makes room; if there is none, one that dawdles with
 * the head of its next request. */
static bool close_idle(struct http_server *s)
{
    struct conn *idle = NULL, *dawdling = NULL;

    for (struct conn *c = s->conns; c; c = c->next) { /* the oldest comes last */
        if (c->idle)
            idle = c;
        else if (c->between)
            dawdling = c;
    }
    if (idle || dawdling)
        gate_close(idle ? idle : dawdling);
    return idle || dawdling;
}

static bool has_place(struct http_server *s)
{
    unsigned served = s->connections - s->waiting;

    return served < s->config.max_connections ||
           (served < s->config.max_connections + LIMIT_HTTP_RESERVE && close_idle(s));
}

/* To the library, which owns the descriptor from now on and may be done with it before this returns. */
static void hand_over(struct conn *c, size_t head)
{
    struct http_server *s = c->server;
    struct sockaddr_storage sa = {0};
    socklen_t len = sizeof sa;
    int fd = c->fd;

    c->taken += head;
    if (c->between) {
        conn_deadline(c, s->config.head_ms);
        give_back(c);
        return;
    }
    if (getpeername(fd, (struct sockaddr *)&sa, &len) < 0) {
        gate_close(c);
        return;
    }
    watch_remove(c);
    s->waiting--;
    c->gated = false;
    c->deadline = HTTP_NEVER; /* set again when the library takes it up */
    /* The lock is held: the library only queues the connection, its own threads call back. */
    if (MHD_add_connection(s->daemon, fd, (struct sockaddr *)&sa, len) == MHD_NO)
        conn_free(c); /* it has closed the descriptor; no callback has run */
}

void gate_take_back(struct conn *c, struct MHD_Connection *mhd)
{
    struct http_server *s = c->server;
    struct epoll_event e = {.events = GATE_EVENTS, .data.u64 = conn_token(c)};

    /* Is it level still? The library reads on while some answers are under way. */
    if (s->stopping || !conn_is_level(c->fd, c->taken) ||
        epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, c->fd, &e) < 0) {
        c->refused = true;
        shutdown(c->fd, SHUT_RDWR);
        return;
    }
    c->watched = c->idle = true;
    c->between = mhd;
    conn_deadline(c, s->config.idle_ms);
    MHD_suspend_connection(mhd);
}

void gate_event(struct conn *c, uint32_t events)
{
    char head[LIMIT_HTTP_HEAD + 1];
    struct err err;

    if (events & (EPOLLERR | EPOLLHUP)) {
        gate_close(c);
        return;
    }
    if (c->refused) {
        drop_input(c);
        return;
    }
    ssize_t n = recv(c->fd, head, sizeof head, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        gate_close(c);
        return;
    }
    if (c->idle)
        conn_deadline(c, c->server->config.head_ms);
    c->idle = false;
    size_t len = rawhead_length(head, (size_t)n);
    if (len > 0 && rawhead_check(head, len, &err) < 0) {
        conn_refuse(c, &err, NULL);
        drop_input(c);
    } else if (len > 0 && (c->between || has_place(c->server))) {
        hand_over(c, len);
    } else if (len > 0) {
        gate_refuse(c, ERR_OVERLOADED, "too many clients are connected");
        drop_input(c);
    } else if ((size_t)n == sizeof head) {
        gate_refuse(c, ERR_HEAD_TOO_LARGE, "the request head is larger than 16384 bytes");
        drop_input(c);
    } else if (events & EPOLLRDHUP) {
        gate_refuse(c, ERR_BAD_REQUEST, "the request ends in the middle of its head");
        drop_input(c);
    }
}

static void close_oldest_waiting(struct http_server *s)
{
    struct conn *oldest = NULL;

    for (struct conn *c = s->conns; c; c = c->next) {
        if (c->gated)
            oldest = c;
    }
    if (oldest)
        gate_close(oldest);
}

static void admit(struct http_server *s, int fd)
{
    struct conn *c = conn_new(s, fd);
    struct epoll_event e = {.events = GATE_EVENTS};

    if (!c) {
        close(fd);
        return;
    }
    e.data.u64 = conn_token(c);
    if (epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &e) < 0) {
        gate_close(c);
        return;
    }
    c->watched = true;
    conn_deadline(c, s->config.head_ms);
    if (s->waiting > s->max_waiting)
        close_oldest_waiting(s);
}

void gate_accept(struct http_server *s, int64_t now)
{
    for (int i = 0; i < ACCEPT_AT_ONCE && s->config.listen_fd >= 0; i++) {
        int fd = accept4(s->config.listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            admit(s, fd);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            gate_listen(s, false); /* else the thread would spin */
            s->accept_again = now + ACCEPT_PAUSE_MS;
            return;
        } else if (errno == EAGAIN) {
            return;
        }
    }
}

void gate_listen(struct http_server *s, bool on)
{
    struct epoll_event e = {.events = on ? EPOLLIN : 0, .data.u64 = WATCH_LISTENER};

    s->accept_again = HTTP_NEVER;
    if (s->config.listen_fd >= 0 && epoll_ctl(s->epoll_fd, EPOLL_CTL_MOD, s->config.listen_fd, &e) < 0)
        s->accept_again = clock_mono_ms() + ACCEPT_PAUSE_MS;
}
