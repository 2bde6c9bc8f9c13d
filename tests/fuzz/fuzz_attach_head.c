/* The engine's answer to an attach: the head is read up to its empty line, in whatever parts it comes, and
 * not a byte of what follows is lost. */
#include "support/fuzz.h"

#include "base/clock.h"
#include "docker/attach.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>

struct engine_side {
    int fd;
    const uint8_t *data;
    size_t size, part;
};

static void *send_in_parts(void *arg)
{
    struct engine_side *side = arg;

    for (size_t at = 0; at < side->size;) {
        size_t len = side->size - at < side->part ? side->size - at : side->part;
        ssize_t n = RETRY(send(side->fd, side->data + at, len, MSG_NOSIGNAL));
        if (n <= 0)
            break; /* refused before all was read */
        at += (size_t)n;
        sched_yield();
    }
    shutdown(side->fd, SHUT_WR);
    return NULL;
}

static void check_rest(int fd, const char *rest, size_t len)
{
    char byte[512];

    fcntl(fd, F_SETFL, 0);
    while (len > 0) {
        ssize_t n = RETRY(recv(fd, byte, sizeof byte < len ? sizeof byte : len, 0));
        PROPERTY(n > 0 && memcmp(byte, rest, (size_t)n) == 0, "the container's bytes are lost, %zu to come",
                 len);
        rest += n;
        len -= (size_t)n;
    }
    PROPERTY(RETRY(recv(fd, byte, 1, 0)) == 0, "more than was sent");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    uint8_t kind = fuzz_byte(&in);
    int fds[2];
    pthread_t writer;
    struct err err = {0};

    PROPERTY(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0, "socketpair");
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    CLEANUP(free_str) char *text = fuzz_text(in.data, in.size);
    struct engine_side side = {
        .fd = fds[1], .data = in.data, .size = in.size, .part = kind < 64 ? kind + 1u : in.size};
    PROPERTY(pthread_create(&writer, NULL, send_in_parts, &side) == 0, "no thread");
    const char *end = memmem(text, in.size, "\r\n\r\n", 4);
    bool sound = end && memmem(text, (size_t)(end - text), "\0", 1) == NULL && end - text + 4 <= 4096 &&
                 strncmp(text, "HTTP/1.1 101 ", 13) == 0;

    int rc = attach_take_head(fds[0], clock_mono_ms() + 5000, &err);
    PROPERTY((rc == 0) == sound, "%s, although it is %s: %s", rc ? "refused" : "taken",
             sound ? "sound" : "not sound", err.text);
    if (rc == 0) {
        check_rest(fds[0], end + 4, in.size - (size_t)(end + 4 - text));
    } else {
        fuzz_check_err(&err);
        PROPERTY(err.code == ERR_ENGINE || err.code == ERR_ENGINE_AWAY, "%s", err_name(err.code));
    }
    close(fds[0]);
    pthread_join(writer, NULL);
    close(fds[1]);
    return 0;
}
