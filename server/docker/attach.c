#include "docker/attach.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define HEAD_MAX 4096

/* Waits until `events` hold or the deadline passes. */
static int wait_for(int fd, short events, int64_t deadline, struct err *err)
{
    for (;;) {
        struct pollfd p = {.fd = fd, .events = events};
        int ready = poll(&p, 1, clock_left_ms(deadline));
        if (ready > 0)
            return 0;
        if (ready == 0)
            return err_set(err, ERR_ENGINE_AWAY, "attach: no answer in time");
        if (errno != EINTR)
            return err_errno(err, errno, "attach: poll");
    }
}

static int connect_engine(const char *path, int64_t deadline, int *ret, struct err *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    CLEANUP(close_fd) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return err_errno(err, errno, "attach: socket");
    memcpy(address.sun_path, path, strlen(path) + 1); /* engine_new has checked the length */
    /* A full backlog is EAGAIN on a Unix socket, and poll does not report when there is room again. */
    while (connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
        if ((errno != EAGAIN && errno != EINTR) || clock_left_ms(deadline) == 0)
            return err_set(err, ERR_ENGINE_AWAY, "attach: connect: %s", strerror(errno));
        clock_sleep_ms(5);
    }
    *ret = steal_fd(&fd);
    return 0;
}

static int send_all(int fd, const char *data, size_t len, int64_t deadline, struct err *err)
{
    while (len > 0) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n > 0) {
            data += n;
            len -= (size_t)n;
        } else if (errno == EAGAIN) {
            if (wait_for(fd, POLLOUT, deadline, err) < 0)
                return -1;
        } else if (errno != EINTR) {
            return err_set(err, ERR_ENGINE_AWAY, "attach: send: %s", strerror(errno));
        }
    }
    return 0;
}

static int read_head(int fd, int64_t deadline, char head[HEAD_MAX + 1], struct err *err)
{
    size_t len = 0;

    for (;;) {
        if (len == HEAD_MAX)
            return err_set(err, ERR_ENGINE, "attach: the answer's head is longer than %d bytes", HEAD_MAX);
        if (wait_for(fd, POLLIN, deadline, err) < 0)
            return -1;
        ssize_t n = recv(fd, head + len, HEAD_MAX - len, MSG_PEEK);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n <= 0)
            return err_set(err, ERR_ENGINE_AWAY, "attach: the engine closed the connection");
        const char *from = len > 3 ? head + len - 3 : head;
        const char *end = memmem(from, (size_t)(head + len + n - from), "\r\n\r\n", 4);
        size_t take = end ? (size_t)(end + 4 - (head + len)) : (size_t)n;
        if (recv(fd, head + len, take, 0) != (ssize_t)take)
            return err_set(err, ERR_ENGINE_AWAY, "attach: the engine closed the connection");
        len += take;
        head[len] = '\0';
        if (end)
            return strlen(head) == len ? 0 : err_set(err, ERR_ENGINE, "attach: a NUL in the answer's head");
    }
}

int attach_take_head(int fd, int64_t deadline, struct err *err)
{
    char head[HEAD_MAX + 1];

    if (read_head(fd, deadline, head, err) < 0)
        return -1;
    if (strncmp(head, "HTTP/1.1 101 ", 13) != 0)
        return err_set(err, ERR_ENGINE, "attach: the engine answered \"%.*s\"", (int)strcspn(head, "\r\n"),
                       head);
    return 0;
}

int attach_open(struct engine *engine, const char *container, int timeout_ms, int *ret, struct err *err)
{
    CLEANUP(close_fd) int fd = -1;
    CLEANUP(buf_free) struct buf request = BUF_INIT(HEAD_MAX);
    int64_t deadline = clock_mono_ms() + timeout_ms;

    if (buf_addf(&request, err, "POST /v1.%u/containers/", engine_api(engine)) < 0 ||
        engine_path_add(&request, container, err) < 0 ||
        buf_adds(&request,
                 "/attach?stream=1&stdin=1&stdout=1&stderr=1 HTTP/1.1\r\nHost: engine\r\n"
                 "Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n",
                 err) < 0)
        return -1;
    if (connect_engine(engine_socket(engine), deadline, &fd, err) < 0 ||
        send_all(fd, request.data, request.len, deadline, err) < 0 || attach_take_head(fd, deadline, err) < 0)
        return -1;
    *ret = steal_fd(&fd);
    return 0;
}
