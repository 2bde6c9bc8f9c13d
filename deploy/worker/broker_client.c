#include "broker_client.h"

#include "base/clock.h"
#include "base/limits.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>

#define HEAD_MAX (16 * 1024)

/* Waits until the socket allows `events`; the stop descriptor and the deadline come first. */
static int wait_for(const struct broker_link *link, int fd, short events, struct err *err)
{
    for (;;) {
        struct pollfd p[2] = {{.fd = link->stop_fd, .events = POLLIN}, {.fd = fd, .events = events}};
        int left = clock_left_ms(link->deadline_mono_ms);
        if (left == 0)
            return err_set(err, ERR_TIMEOUT, "the deadline passed during a call of the broker");
        int n = poll(p, 2, left);
        if (n < 0 && errno != EINTR)
            return err_errno(err, errno, "poll");
        if (n > 0 && p[0].revents)
            return err_set(err, ERR_CANCELED, "told to stop during a call of the broker");
        if (n > 0 && p[1].revents)
            return 0;
    }
}

/* A Unix socket connects at once, or not at all; only a full backlog (EAGAIN) is worth another try. */
static int dial(const struct broker_link *link, struct err *err)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};

    if (strlen(link->socket_path) >= sizeof to.sun_path)
        return err_set(err, ERR_UPSTREAM, "the socket's path is too long");
    memcpy(to.sun_path, link->socket_path, strlen(link->socket_path) + 1);
    CLEANUP(close_fd) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_errno(err, errno, "socket");
    while (connect(fd, (struct sockaddr *)&to, sizeof to) < 0) {
        struct pollfd stop = {.fd = link->stop_fd, .events = POLLIN};
        if (errno != EAGAIN && errno != EINTR)
            return err_set(err, ERR_UPSTREAM, "connect to the broker: errno %d", errno);
        if (clock_left_ms(link->deadline_mono_ms) == 0)
            return err_set(err, ERR_TIMEOUT, "the deadline passed before the broker took the call");
        if (poll(&stop, 1, 10) > 0)
            return err_set(err, ERR_CANCELED, "told to stop before the broker took the call");
    }
    return steal_fd(&fd);
}

/* A broker that answers without reading all (413, 410) closes its side: then the answer is what counts, so a
 * broken pipe is not an error here. */
static int send_all(const struct broker_link *link, int fd, const char *data, size_t len, struct err *err)
{
    while (len > 0) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n > 0) {
            data += n;
            len -= (size_t)n;
            continue;
        }
        if (errno == EPIPE || errno == ECONNRESET)
            return 0;
        if (errno != EAGAIN && errno != EINTR)
            return err_set(err, ERR_UPSTREAM, "send to the broker: errno %d", errno);
        if (wait_for(link, fd, POLLOUT, err) < 0)
            return -1;
    }
    return 0;
}

/* Reads some bytes into b: their number, 0 at the end, -1. */
static ssize_t receive(const struct broker_link *link, int fd, struct buf *b, size_t most, struct err *err)
{
    size_t want = most < 16384 ? most : 16384;

    if (want == 0)
        return 0;
    if (buf_reserve(b, want, err) < 0)
        return -1;
    for (;;) {
        if (wait_for(link, fd, POLLIN, err) < 0)
            return -1;
        ssize_t n = recv(fd, b->data + b->len, want, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (n < 0)
            return err_set(err, ERR_UPSTREAM, "receive from the broker: errno %d", errno);
        b->len += (size_t)n;
        b->data[b->len] = '\0';
        return n;
    }
}

static int bad_answer(struct err *err, const char *what)
{
    return err_set(err, ERR_UPSTREAM, "the broker's answer: %s", what);
}

/* One to seven digits and nothing else. */
static int parse_length(const char *value, size_t *ret)
{
    size_t len = strspn(value, "0123456789");

    if (len < 1 || len > 7 || value[len] != '\0')
        return -1;
    *ret = (size_t)strtoul(value, NULL, 10);
    return 0;
}

/* `head` holds the status line and the fields, each with its CRLF; it is taken apart in place. */
static int parse_head(char *head, int *status, size_t *length, struct err *err)
{
    char *end = strstr(head, "\r\n");
    bool has_length = false;

    if (strncmp(head, "HTTP/1.1 ", 9) != 0 || strspn(head + 9, "0123456789") != 3 ||
        (head[12] != ' ' && head[12] != '\r'))
        return bad_answer(err, "no status line");
    *status = atoi(head + 9);
    if (*status < 200 || *status > 599)
        return bad_answer(err, "unexpected status");
    for (char *line = end + 2; *line; line = end + 2) {
        end = strstr(line, "\r\n");
        if (!end)
            return bad_answer(err, "a field without its end");
        *end = '\0';
        char *colon = strchr(line, ':');
        if (!colon || colon == line || line[0] == ' ' || line[0] == '\t')
            return bad_answer(err, "a field without a name");
        *colon = '\0';
        char *value = colon + 1 + strspn(colon + 1, " \t");
        for (char *last = end; last > value && (last[-1] == ' ' || last[-1] == '\t');)
            *--last = '\0';
        if (strcasecmp(line, "transfer-encoding") == 0)
            return bad_answer(err, "a transfer coding");
        if (strcasecmp(line, "content-length") != 0)
            continue;
        if (has_length || parse_length(value, length) < 0)
            return bad_answer(err, "a bad length");
        has_length = true;
    }
    if (!has_length)
        return bad_answer(err, "no length");
    return 0;
}

static int read_answer(const struct broker_link *link, int fd, struct broker_answer *ret, struct err *err)
{
    CLEANUP(buf_free) struct buf head = BUF_INIT(HEAD_MAX);
    CLEANUP(buf_free) struct buf body = BUF_INIT(LIMIT_UPSTREAM_ANSWER);
    size_t length = 0;
    int status = 0;
    char *end;

    do {
        ssize_t n = receive(link, fd, &head, HEAD_MAX - head.len, err);
        if (n < 0)
            return err->code == ERR_TOO_LARGE ? bad_answer(err, "its head is too large") : -1;
        if (n == 0)
            return bad_answer(err, head.len == HEAD_MAX ? "its head is too large" : "it ends in its head");
        end = memmem(head.data, head.len, "\r\n\r\n", 4);
    } while (!end);
    size_t head_len = (size_t)(end + 4 - head.data);
    end[2] = '\0';
    if (strlen(head.data) != (size_t)(end + 2 - head.data))
        return bad_answer(err, "a NUL in its head");
    if (parse_head(head.data, &status, &length, err) < 0)
        return -1;
    if (length > LIMIT_UPSTREAM_ANSWER)
        return err_set(err, ERR_TOO_LARGE, "the broker's answer: %zu bytes are too many", length);
    if (head.len - head_len > length)
        return bad_answer(err, "it is longer than it says");
    if (buf_add(&body, head.data + head_len, head.len - head_len, err) < 0)
        return -1;
    while (body.len < length) {
        ssize_t n = receive(link, fd, &body, length - body.len, err);
        if (n < 0)
            return -1;
        if (n == 0)
            return bad_answer(err, "it is shorter than it says");
    }
    ret->status = status;
    ret->body = body;
    body = BUF_INIT(0);
    return 0;
}

int broker_post(const struct broker_link *link, const char *path, const char *body, size_t len,
                struct broker_answer *ret, struct err *err)
{
    char head[512];

    int n = snprintf(head, sizeof head,
                     "POST %s HTTP/1.1\r\nHost: broker\r\nContent-Type: application/json\r\n"
                     "Accept: application/json\r\nAuthorization: Bearer " DUMMY_KEY
                     "\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n",
                     path, len);
    if (n < 0 || (size_t)n >= sizeof head)
        return err_set(err, ERR_INTERNAL, "the path is too long");
    if (len > LIMIT_BROKER_BODY)
        return err_set(err, ERR_TOO_LARGE, "the body is larger than %d KiB", LIMIT_BROKER_BODY / 1024);
    CLEANUP(close_fd) int fd = dial(link, err);
    if (fd < 0)
        return -1;
    if (send_all(link, fd, head, (size_t)n, err) < 0 || send_all(link, fd, body, len, err) < 0)
        return -1;
    return read_answer(link, fd, ret, err);
}
