#include "http/internal.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* Room for fd in the table that finds a connection by its descriptor. Under the lock. */
static bool table_fits(struct http_server *s, int fd)
{
    size_t size = s->by_fd_size ? s->by_fd_size : 64;

    if ((size_t)fd < s->by_fd_size)
        return true;
    while (size <= (size_t)fd)
        size *= 2;
    struct conn **grown = realloc(s->by_fd, size * sizeof(*grown));
    if (!grown)
        return false;
    memset(grown + s->by_fd_size, 0, (size - s->by_fd_size) * sizeof(*grown));
    s->by_fd = grown;
    s->by_fd_size = size;
    return true;
}

struct conn *conn_new(struct http_server *s, int fd)
{
    struct conn *c = calloc(1, sizeof(*c));

    if (!c || !table_fits(s, fd)) {
        free(c);
        return NULL;
    }
    if (s->by_fd[fd])
        conn_free(s->by_fd[fd]); /* the library had no memory for it and closed it without a word */
    c->server = s;
    c->fd = fd;
    c->deadline = HTTP_NEVER;
    c->probe_at = HTTP_NEVER;
    c->gated = true;
    c->serial = ++s->serial;
    s->by_fd[fd] = c;
    c->next = s->conns;
    if (c->next)
        c->next->prev = c;
    s->conns = c;
    s->connections++;
    s->waiting++;
    return c;
}

void conn_free(struct conn *c)
{
    struct http_server *s = c->server;

    watch_remove(c);
    s->by_fd[c->fd] = NULL;
    if (c->prev)
        c->prev->next = c->next;
    else
        s->conns = c->next;
    if (c->next)
        c->next->prev = c->prev;
    s->connections--;
    s->waiting -= c->gated;
    free(c);
}

/* The library tells of its connections: it closes the descriptor only after CLOSED, so that the watch thread
 * never sees a foreign one. */
void conn_notify(void *cls, struct MHD_Connection *mhd, void **ptr, enum MHD_ConnectionNotificationCode code)
{
    struct http_server *s = cls;
    int fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;

    pthread_mutex_lock(&s->lock);
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        struct conn *c = (size_t)fd < s->by_fd_size ? s->by_fd[fd] : NULL;
        *ptr = c;
        if (c) /* else one of kick.c */
            conn_deadline(c, s->config.head_ms);
    } else if (*ptr) {
        conn_free(STEAL(*ptr));
    }
    pthread_mutex_unlock(&s->lock);
}

struct conn *conn_of(struct MHD_Connection *mhd)
{
    return MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

void conn_deadline(struct conn *c, unsigned ms)
{
    int64_t when = ms > 0 ? clock_mono_ms() + ms : HTTP_NEVER;

    c->deadline = when;
    watch_wake_at(c->server, when);
}

bool conn_sends_no_more(int fd)
{
    char byte;

    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

void conn_refuse(struct conn *c, const struct err *err, const char *id)
{
    CLEANUP(free_str) char *body = problem_text(err, NULL);
    char head[512], made[REQUEST_ID_SIZE];
    int status = err_status(err->code);

    if (!id)
        request_id_accept(NULL, made);
    c->refused = true;
    conn_deadline(c, LIMIT_HTTP_LINGER_MS);
    /* A request that has an id gets its line when it is completed; these words may hold some of its own. */
    log_line(id ? LOG_DEBUG : LOG_INFO, id ? id : made, "refused with %d: %s", status, err->text);
    if (body) {
        snprintf(head, sizeof head,
                 "HTTP/1.1 %d %s\r\nContent-Type: application/problem+json\r\nContent-Length: %zu\r\n"
                 "X-Request-Id: %s\r\n%sCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
                 "Connection: close\r\n\r\n",
                 status, MHD_get_reason_phrase_for((unsigned)status), strlen(body), id ? id : made,
                 status == 503 ? "Retry-After: 1\r\n" : "");
        if (send(c->fd, head, strlen(head), MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE) < 0 ||
            send(c->fd, body, strlen(body), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
            shutdown(c->fd, SHUT_RDWR); /* nothing can be told to this client */
    }
    shutdown(c->fd, SHUT_WR);
}
