/* libmicrohttpd 0.9.75 reads events in batches of 128 and, after a full batch, waits for the next one without
 * end before it serves the first: when exactly 128 events (or a multiple) were pending on one of its threads,
 * these clients hang until anything else happens there. (daemon.c, MHD_epoll; seen with 500 clients that came
 * at once.) So while that many clients are active, something else happens: a connection that ends at once. */
#include "http/internal.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

/* The library gives a connection to thread number fd % threads. Takes fd over; -1 when no descriptor is left.
 */
static int fd_for_thread(int fd, unsigned thread, unsigned threads)
{
    while (fd >= 0 && (unsigned)fd % threads != thread) {
        int next = fcntl(fd, F_DUPFD_CLOEXEC, fd + 1);
        close(fd);
        fd = next;
    }
    return fd;
}

void kick_threads(struct http_server *s)
{
    struct sockaddr_un nobody = {.sun_family = AF_UNIX};
    unsigned threads = s->config.threads > 1 ? s->config.threads : 1;

    for (unsigned i = 0; i < threads; i++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
            return; /* the next scan tries again */
        close(pair[1]);
        int fd = fd_for_thread(pair[0], i, threads);
        if (fd >= 0) /* the library owns and closes it, also on failure */
            (void)MHD_add_connection(s->daemon, fd, (struct sockaddr *)&nobody, sizeof nobody.sun_family);
    }
}
