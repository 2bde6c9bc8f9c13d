#include "http/internal.h"

#include "base/clock.h"
#include "base/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

#define BACKLOG 1024

static void set_option(int fd, int level, int option, int value)
{
    /* A refused option only makes a lost client be noticed later. */
    (void)setsockopt(fd, level, option, &value, sizeof value);
}

/* Accepted sockets inherit the keep-alive, which finds parked clients whose machine vanished. */
static int listen_tcp(const char *address, uint16_t port, int *ret, struct err *err)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
                             .ai_socktype = SOCK_STREAM};
    struct addrinfo *info = NULL;
    CLEANUP(close_fd) int fd = -1;
    char service[8];

    snprintf(service, sizeof service, "%u", port);
    if (getaddrinfo(address, service, &hints, &info) != 0)
        return err_set(err, ERR_CONFIG, "\"%s\" is not a numeric address", address);
    fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0) {
        set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
        set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
        set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 30);
        set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 10);
        set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
    }
    int rc = fd < 0 ? -1 : bind(fd, info->ai_addr, info->ai_addrlen);
    int errnum = errno;
    freeaddrinfo(info);
    if (rc < 0 || listen(fd, BACKLOG) < 0)
        return err_errno(err, rc < 0 ? errnum : errno, "listen on %s port %u", address, port);
    *ret = steal_fd(&fd);
    return 0;
}

static uint16_t bound_port(int fd)
{
    struct sockaddr_storage sa = {0};
    socklen_t len = sizeof sa;

    if (getsockname(fd, (struct sockaddr *)&sa, &len) < 0)
        return 0;
    if (sa.ss_family == AF_INET)
        return ntohs(((struct sockaddr_in *)&sa)->sin_port);
    if (sa.ss_family == AF_INET6)
        return ntohs(((struct sockaddr_in6 *)&sa)->sin6_port);
    return 0;
}

static int init_locks(struct http_server *s, struct err *err)
{
    pthread_condattr_t attr;
    int rc = pthread_mutex_init(&s->lock, NULL);

    if (rc == 0)
        rc = pthread_condattr_init(&attr);
    if (rc != 0)
        return err_errno(err, rc, "make a lock");
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    rc = pthread_cond_init(&s->idle, &attr);
    pthread_condattr_destroy(&attr);
    return rc == 0 ? 0 : err_errno(err, rc, "make a lock");
}

/* No more clients than the process has descriptors for. */
static void fit_descriptors(struct http_server *s)
{
    struct rlimit limit = {0};
    unsigned *max = &s->config.max_connections;

    s->max_waiting = LIMIT_HTTP_WAITING;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 ||
        limit.rlim_cur > *max + LIMIT_HTTP_RESERVE + s->max_waiting + LIMIT_HTTP_OTHER_FDS)
        return;
    unsigned left = limit.rlim_cur > 2 * LIMIT_HTTP_OTHER_FDS
                        ? (unsigned)limit.rlim_cur - LIMIT_HTTP_OTHER_FDS
                        : LIMIT_HTTP_OTHER_FDS;
    *max = *max < left / 2 ? *max : left / 2;
    s->max_waiting = left / 4;
}

static void defaults(struct http_config *c)
{
    c->max_connections = c->max_connections ? c->max_connections : LIMIT_HTTP_CONNECTIONS;
    c->head_ms = c->head_ms ? c->head_ms : LIMIT_HTTP_HEAD_MS;
    c->body_ms = c->body_ms ? c->body_ms : LIMIT_HTTP_BODY_MS;
    c->reply_ms = c->reply_ms ? c->reply_ms : LIMIT_HTTP_REPLY_MS;
    c->idle_ms = c->idle_ms ? c->idle_ms : LIMIT_HTTP_IDLE_MS;
    c->beat_ms = c->beat_ms ? c->beat_ms : LIMIT_HTTP_BEAT_MS;
}

static struct MHD_Daemon *start_daemon(struct http_server *s)
{
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC |
                     MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ERROR_LOG;
    unsigned limit = s->config.max_connections + LIMIT_HTTP_RESERVE;
    struct MHD_OptionItem options[] = {
        {MHD_OPTION_CONNECTION_LIMIT, limit, NULL},
        {MHD_OPTION_CONNECTION_MEMORY_LIMIT, LIMIT_HTTP_MEMORY, NULL},
        {MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, NULL},
        {MHD_OPTION_THREAD_POOL_SIZE, s->config.threads, NULL},
        {MHD_OPTION_END, 0, NULL},
    };
    if (s->config.threads < 2)
        options[3] = (struct MHD_OptionItem){MHD_OPTION_END, 0, NULL};

    /* The log comes first: what the options after it have to say goes there as well. */
    return MHD_start_daemon(flags, 0, NULL, NULL, intake_request, s, MHD_OPTION_EXTERNAL_LOGGER, chunks_log,
                            s, MHD_OPTION_ARRAY, options, MHD_OPTION_URI_LOG_CALLBACK, intake_target, s,
                            MHD_OPTION_NOTIFY_COMPLETED, intake_completed, s, MHD_OPTION_NOTIFY_CONNECTION,
                            conn_notify, s, MHD_OPTION_END);
}

/* After all threads have ended: closes what never got to the library. */
static void server_free(struct http_server *s)
{
    while (s->conns) {
        int fd = s->conns->gated ? s->conns->fd : -1; /* all others the library has closed */
        conn_free(s->conns);
        close_fd(&fd);
    }
    watch_close(s);
    if (s->config.listen_fd >= 0)
        close(s->config.listen_fd);
    pthread_cond_destroy(&s->idle);
    pthread_mutex_destroy(&s->lock);
    free(s->by_fd);
    free(s);
}

/* A blocking listener would hold the thread that accepts. */
static int take_listener(struct http_server *s, int fd, struct err *err)
{
    int flags = fcntl(fd, F_GETFL);

    s->config.listen_fd = fd;
    s->port = bound_port(fd);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return err_errno(err, errno, "listening socket");
    return 0;
}

static int start_threads(struct http_server *s, struct err *err)
{
    if (watch_open(s, err) < 0)
        return -1;
    s->daemon = start_daemon(s);
    if (!s->daemon)
        return err_errno(err, errno, "start the HTTP server");
    if (watch_start(s, err) == 0)
        return 0;
    MHD_stop_daemon(s->daemon);
    return -1;
}

int http_server_start(const struct http_config *config, struct http_server **ret, struct err *err)
{
    CLEANUP(close_fd) int fd = config->listen_fd;
    struct http_server *s = calloc(1, sizeof(*s));

    if (!s)
        return err_no_memory(err);
    if (init_locks(s, err) < 0) {
        free(s);
        return -1;
    }
    s->config = *config;
    s->config.listen_fd = -1;
    s->epoll_fd = s->event_fd = -1;
    defaults(&s->config);
    fit_descriptors(s);
    if ((config->address && listen_tcp(config->address, config->port, &fd, err) < 0) ||
        take_listener(s, steal_fd(&fd), err) < 0 || start_threads(s, err) < 0) {
        server_free(s);
        return -1;
    }
    *ret = s;
    return 0;
}

uint16_t http_server_port(const struct http_server *s)
{
    return s->port;
}

unsigned http_server_connections(struct http_server *s)
{
    return s->connections;
}

void http_server_quiesce(struct http_server *s)
{
    pthread_mutex_lock(&s->lock);
    s->quiesced = true;
    if (s->config.listen_fd >= 0)
        close(steal_fd(&s->config.listen_fd)); /* leaves the watch thread's set by itself */
    pthread_mutex_unlock(&s->lock);
}

/* Under the lock. Waits until no request is under way; false at the deadline. */
static bool wait_idle(struct http_server *s, int64_t deadline)
{
    struct timespec until = {.tv_sec = deadline / 1000, .tv_nsec = (deadline % 1000) * 1000000};

    while (s->requests > 0) {
        if (pthread_cond_timedwait(&s->idle, &s->lock, &until) == ETIMEDOUT)
            return s->requests == 0;
    }
    return true;
}

/* Under the lock. */
static void wake_parked(struct http_server *s, bool also_brief)
{
    for (struct conn *c = s->conns; c; c = c->next) {
        if (c->parked && (also_brief || !c->parked->brief))
            ticket_wake(c->parked, HTTP_STOPPING);
    }
}

void http_server_stop(struct http_server *s, int drain_ms)
{
    if (!s)
        return;
    http_server_quiesce(s);
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    wake_parked(s, false);
    if (!wait_idle(s, clock_mono_ms() + drain_ms)) {
        s->cutting = true;
        wake_parked(s, true);
        for (struct conn *c = s->conns; c; c = c->next)
            shutdown(c->fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&s->lock);
    watch_stop(s); /* hands over no more */
    pthread_mutex_lock(&s->lock);
    for (struct conn *c = s->conns; c; c = c->next) {
        if (c->between) /* stopping the library with a suspended connection would abort */
            gate_close(c);
    }
    pthread_mutex_unlock(&s->lock);
    /* Takes up what is resumed but not yet answered, closes what is left, joins the threads. */
    MHD_stop_daemon(s->daemon);
    server_free(s);
}
