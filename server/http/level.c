/* In a file of its own, since <linux/tcp.h> and <netinet/tcp.h> exclude each other. */
#include "http/internal.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define CLOSE_WAIT 8 /* TCP_CLOSE_WAIT of the other header: the client's end of the stream has come */
#define TRIES      8

/* All bytes that ever came in order, read or not. False for a Unix socket, or on an old kernel. */
static bool bytes_received(int fd, uint64_t *ret)
{
    struct tcp_info info;
    socklen_t len = sizeof info;

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0 ||
        len < offsetof(struct tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received)
        return false;
    *ret = info.tcpi_bytes_received - (info.tcpi_state == CLOSE_WAIT); /* that end counts as one */
    return true;
}

bool conn_bytes_read(int fd, bool upper, uint64_t *ret)
{
    uint64_t before, after;
    int unread;

    /* More may come between the calls; nobody reads meanwhile. */
    if (!bytes_received(fd, &before) || ioctl(fd, SIOCINQ, &unread) < 0 || !bytes_received(fd, &after))
        return false;
    *ret = (upper ? after : before) - (uint64_t)unread;
    return true;
}

/* The library reads whatever is there into its buffer and tells nobody how much; the kernel does. */
bool conn_is_level(int fd, uint64_t taken)
{
    uint64_t before, after;
    int unread;

    for (int i = 0; i < TRIES; i++) {
        if (!bytes_received(fd, &before) || ioctl(fd, SIOCINQ, &unread) < 0)
            return false;
        if (unread == 0 && before == taken)
            return true; /* what comes now is not taken */
        if (!bytes_received(fd, &after))
            return false;
        if (before == after) /* nothing came meanwhile: the figures fit together */
            return before - (uint64_t)unread == taken;
    }
    return false;
}
