/* visitors.h: clients of one server that come again and again. Who includes it says what a visit is. */
#pragma once

#include "check.h"

#include <arpa/inet.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

static _Atomic uint16_t port; /* of the server */
static atomic_bool over;      /* no more visits; the server may be gone */

/* One connection; fd is the caller's. Whether all went as it should. */
static bool visit(int fd, unsigned *seed);

/* A thread. */
static void *visit_again(void *arg)
{
    static atomic_uint number;
    unsigned seed = ++number;

    (void)arg;
    while (!over) {
        struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(port)};
        struct timeval patience = {.tv_sec = 20};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        CHECK(fd >= 0);
        CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
        if (connect(fd, (struct sockaddr *)&sa, sizeof sa) == 0)
            CHECK(visit(fd, &seed) || over);
        close(fd);
    }
    return NULL;
}
