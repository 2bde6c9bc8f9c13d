/* tests/unit/fake_upstream.h: a small scripted HTTP server on loopback, for the units of upstream and broker.
 * One thread per connection; it keeps the last request as it came. */
#pragma once

#include <criterion/criterion.h>

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum fake_mode {
    FAKE_ANSWER,  /* sends `response` as it is, keeps the connection */
    FAKE_HANG,    /* reads the request and says nothing */
    FAKE_DRIP,    /* sends one byte of a head every 20 ms */
    FAKE_ENDLESS, /* a body without end */
    FAKE_HEADS,   /* header lines without end */
    FAKE_REFLECT, /* answers with the request's own head as JSON content */
    FAKE_HANG_UP, /* closes after the request */
};

struct fake {
    pthread_mutex_t lock;
    int fd, port;
    bool stop;
    enum fake_mode mode;
    char *response; /* malloc */
    size_t response_len;
    char request[512 * 1024]; /* head and body of the last one */
    size_t request_len, head_len;
    unsigned requests, connections, live;
    pthread_t acceptor;
};

struct fake_connection {
    struct fake *fake;
    int fd;
};

static inline int64_t fake_now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static inline bool fake_send(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        data += n;
        len -= (size_t)n;
    }
    return true;
}

static inline bool fake_stopping(struct fake *f)
{
    pthread_mutex_lock(&f->lock);
    bool stop = f->stop;
    pthread_mutex_unlock(&f->lock);
    return stop;
}

/* Waits until the client is gone or the server stops. */
static inline void fake_wait_gone(struct fake *f, int fd)
{
    char byte;
    struct pollfd p = {.fd = fd, .events = POLLIN};

    while (!fake_stopping(f))
        if (poll(&p, 1, 20) > 0 && recv(fd, &byte, 1, 0) <= 0)
            return;
}

/* Reads one request into `in`; its length, 0 at EOF. */
static inline size_t fake_read(struct fake *f, int fd, char *in, size_t size, size_t *head_len)
{
    size_t len = 0, want = 0;
    struct pollfd p = {.fd = fd, .events = POLLIN};

    while (want == 0 || len < want) {
        if (fake_stopping(f))
            return 0;
        if (poll(&p, 1, 20) <= 0)
            continue;
        ssize_t n = recv(fd, in + len, size - 1 - len, 0);
        if (n <= 0)
            return 0;
        len += (size_t)n;
        in[len] = '\0';
        const char *end = strstr(in, "\r\n\r\n");
        if (want == 0 && end) {
            const char *cl = strcasestr(in, "content-length:");
            *head_len = (size_t)(end + 4 - in);
            want = *head_len + (cl && cl < end ? strtoul(cl + 15, NULL, 10) : 0);
        }
    }
    return len;
}

static inline bool fake_reflect(int fd, const char *head, size_t head_len)
{
    char text[65536], out[66000];
    size_t o = 0;

    for (size_t i = 0; i < head_len && o < 60000; i++)
        if ((unsigned char)head[i] >= 0x20 && head[i] != '"' && head[i] != '\\')
            text[o++] = head[i];
    text[o] = '\0';
    int n = snprintf(out, sizeof out,
                     "{\"choices\":[{\"message\":{\"role\":\"assistant\",\"content\":\"%s\"}}]}", text);
    char line[128];
    int m = snprintf(line, sizeof line, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", n);
    return fake_send(fd, line, (size_t)m) && fake_send(fd, out, (size_t)n);
}

static inline bool fake_serve(struct fake *f, int fd, const char *in, size_t head_len)
{
    static const char endless[] = "HTTP/1.1 200 OK\r\n\r\n";
    char junk[4096];

    pthread_mutex_lock(&f->lock);
    enum fake_mode mode = f->mode;
    size_t len = f->response_len;
    char *copy = malloc(len + 1);
    if (len > 0)
        memcpy(copy, f->response, len);
    pthread_mutex_unlock(&f->lock);
    memset(junk, 'x', sizeof junk);
    bool go_on = false;
    switch (mode) {
    case FAKE_ANSWER:
        go_on = fake_send(fd, copy, len);
        break;
    case FAKE_HANG:
        fake_wait_gone(f, fd);
        break;
    case FAKE_DRIP:
        go_on = fake_send(fd, "HTTP/1.1 200 OK\r\nX: ", 20);
        while (go_on && !fake_stopping(f) && fake_send(fd, "y", 1))
            poll(NULL, 0, 20);
        go_on = false;
        break;
    case FAKE_ENDLESS:
        go_on = fake_send(fd, endless, sizeof endless - 1);
        while (go_on && !fake_stopping(f) && fake_send(fd, junk, sizeof junk))
            ;
        go_on = false;
        break;
    case FAKE_HEADS:
        go_on = fake_send(fd, "HTTP/1.1 200 OK\r\n", 17);
        memcpy(junk, "X-A: ", 5);
        memcpy(junk + 1022, "\r\n", 2);
        while (go_on && !fake_stopping(f) && fake_send(fd, junk, 1024))
            ;
        go_on = false;
        break;
    case FAKE_REFLECT:
        go_on = fake_reflect(fd, in, head_len);
        break;
    case FAKE_HANG_UP:
        break;
    }
    free(copy);
    return go_on;
}

static inline void *fake_connection_run(void *arg)
{
    struct fake_connection *c = arg;
    struct fake *f = c->fake;
    char *in = malloc(sizeof f->request);
    size_t head_len = 0, len;

    while ((len = fake_read(f, c->fd, in, sizeof f->request, &head_len)) > 0) {
        pthread_mutex_lock(&f->lock);
        memcpy(f->request, in, len + 1);
        f->request_len = len;
        f->head_len = head_len;
        f->requests++;
        pthread_mutex_unlock(&f->lock);
        if (!fake_serve(f, c->fd, in, head_len))
            break;
    }
    close(c->fd);
    free(in);
    free(c);
    pthread_mutex_lock(&f->lock);
    f->live--;
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

static inline void *fake_accept_run(void *arg)
{
    struct fake *f = arg;

    while (!fake_stopping(f)) {
        struct pollfd p = {.fd = f->fd, .events = POLLIN};
        if (poll(&p, 1, 20) <= 0)
            continue;
        int fd = accept4(f->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            continue;
        struct fake_connection *c = malloc(sizeof *c);
        *c = (struct fake_connection){f, fd};
        pthread_mutex_lock(&f->lock);
        f->connections++;
        f->live++;
        pthread_mutex_unlock(&f->lock);
        pthread_t t;
        if (pthread_create(&t, NULL, fake_connection_run, c) != 0)
            cr_assert_fail("no thread");
        pthread_detach(t);
    }
    return NULL;
}

static inline struct fake *fake_new(void)
{
    struct fake *f = calloc(1, sizeof *f);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof a;

    pthread_mutex_init(&f->lock, NULL);
    f->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(bind(f->fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(f->fd, 64) == 0);
    cr_assert(getsockname(f->fd, (struct sockaddr *)&a, &len) == 0);
    f->port = ntohs(a.sin_port);
    cr_assert(pthread_create(&f->acceptor, NULL, fake_accept_run, f) == 0);
    return f;
}

static inline void fake_set(struct fake *f, enum fake_mode mode, const void *response, size_t len)
{
    pthread_mutex_lock(&f->lock);
    f->mode = mode;
    free(f->response);
    f->response = malloc(len + 1);
    if (len > 0)
        memcpy(f->response, response, len);
    f->response_len = len;
    pthread_mutex_unlock(&f->lock);
}

/* A whole answer with this status line ("200 OK"), extra header lines and body. */
static inline void fake_answer(struct fake *f, const char *status, const char *headers, const char *body)
{
    size_t size = strlen(status) + strlen(headers) + strlen(body) + 128;
    char *out = malloc(size);

    int n = snprintf(out, size,
                     "HTTP/1.1 %s\r\nContent-Type: application/json\r\n%sContent-Length: %zu\r\n\r\n%s",
                     status, headers, strlen(body), body);
    fake_set(f, FAKE_ANSWER, out, (size_t)n);
    free(out);
}

static inline unsigned fake_requests(struct fake *f)
{
    pthread_mutex_lock(&f->lock);
    unsigned n = f->requests;
    pthread_mutex_unlock(&f->lock);
    return n;
}

/* Waits at most 5 s for the n-th request. */
static inline void fake_wait_requests(struct fake *f, unsigned n)
{
    int64_t end = fake_now_ms() + 5000;

    while (fake_requests(f) < n && fake_now_ms() < end)
        poll(NULL, 0, 2);
    cr_assert(fake_requests(f) >= n, "the request never came");
}

static inline unsigned fake_live(struct fake *f)
{
    pthread_mutex_lock(&f->lock);
    unsigned n = f->live;
    pthread_mutex_unlock(&f->lock);
    return n;
}

static inline void fake_free(struct fake *f)
{
    pthread_mutex_lock(&f->lock);
    f->stop = true;
    pthread_mutex_unlock(&f->lock);
    pthread_join(f->acceptor, NULL);
    int64_t end = fake_now_ms() + 5000;
    while (fake_live(f) > 0 && fake_now_ms() < end)
        poll(NULL, 0, 2);
    cr_assert(fake_live(f) == 0, "a connection of the fake upstream does not end");
    close(f->fd);
    free(f->response);
    pthread_mutex_destroy(&f->lock);
    free(f);
}
