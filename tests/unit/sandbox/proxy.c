#include "proxy.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PAIRS_MAX 32
#define TICK_MS   10

struct pair {
    int client, engine; /* -1: free */
    bool client_done;   /* has closed its sending side */
};

static int dial(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static void hang_up(struct pair *pair)
{
    close(pair->client);
    close(pair->engine);
    *pair = (struct pair){-1, -1, false};
}

/* Blocking writes are fine: the sizes of the tests fit into the socket's buffer. */
static void forward(struct pair *pair, bool to_engine, bool deliver)
{
    char data[65536];
    int from = to_engine ? pair->client : pair->engine, to = to_engine ? pair->engine : pair->client;

    ssize_t n = recv(from, data, sizeof data, MSG_DONTWAIT);
    if (n > 0 && deliver)
        send(to, data, (size_t)n, MSG_NOSIGNAL);
    else if (n == 0 && to_engine) {
        pair->client_done = true;
        shutdown(to, SHUT_WR);
    }
    if (n == 0 && !to_engine)
        hang_up(pair);
}

static void take_new(struct proxy *p, struct pair pairs[PAIRS_MAX])
{
    int client = accept(p->listener, NULL, NULL);
    int engine = atomic_load(&p->mode) == PROXY_DEAD ? -1 : dial(p->engine);

    for (int i = 0; i < PAIRS_MAX && engine >= 0; i++)
        if (pairs[i].client < 0) {
            pairs[i] = (struct pair){client, engine, false};
            return;
        }
    close(client);
}

static void step(struct proxy *p, struct pair pairs[PAIRS_MAX])
{
    struct pollfd fds[2 + 2 * PAIRS_MAX] = {{.fd = p->listener, .events = POLLIN},
                                            {.fd = p->stop[0], .events = POLLIN}};

    for (int i = 0; i < PAIRS_MAX; i++) {
        if (atomic_load(&p->mode) == PROXY_DEAD && pairs[i].client >= 0)
            hang_up(&pairs[i]);
        fds[2 + 2 * i] = (struct pollfd){.fd = pairs[i].client, .events = pairs[i].client_done ? 0 : POLLIN};
        fds[3 + 2 * i] = (struct pollfd){.fd = pairs[i].engine, .events = POLLIN};
    }
    if (poll(fds, 2 + 2 * PAIRS_MAX, TICK_MS) <= 0)
        return;
    for (int i = 0; i < PAIRS_MAX; i++) {
        if (fds[2 + 2 * i].revents & POLLIN)
            forward(&pairs[i], true, true);
        else if (fds[2 + 2 * i].revents)
            hang_up(&pairs[i]);
        if (fds[3 + 2 * i].revents && pairs[i].engine >= 0)
            forward(&pairs[i], false, atomic_load(&p->mode) == PROXY_PASS);
    }
    if (fds[0].revents)
        take_new(p, pairs);
}

static void *run(void *arg)
{
    struct proxy *p = arg;
    struct pair pairs[PAIRS_MAX];
    struct pollfd end = {.fd = p->stop[0], .events = POLLIN};

    for (int i = 0; i < PAIRS_MAX; i++)
        pairs[i] = (struct pair){-1, -1, false};
    while (poll(&end, 1, 0) == 0)
        step(p, pairs);
    for (int i = 0; i < PAIRS_MAX; i++)
        if (pairs[i].client >= 0)
            hang_up(&pairs[i]);
    return NULL;
}

void proxy_start(struct proxy *p, const char *path, const char *engine)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    snprintf(p->path, sizeof p->path, "%s", path);
    snprintf(p->engine, sizeof p->engine, "%s", engine);
    atomic_init(&p->mode, PROXY_PASS);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    p->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(p->listener, (struct sockaddr *)&address, sizeof address), 0);
    cr_assert_eq(listen(p->listener, 16), 0);
    cr_assert_eq(pipe(p->stop), 0);
    cr_assert_eq(pthread_create(&p->thread, NULL, run, p), 0);
}

void proxy_set(struct proxy *p, enum proxy_mode mode)
{
    atomic_store(&p->mode, mode);
}

void proxy_stop(struct proxy *p)
{
    close(p->stop[1]);
    pthread_join(p->thread, NULL);
    close(p->stop[0]);
    close(p->listener);
    unlink(p->path);
}
