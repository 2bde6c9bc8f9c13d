#include "fake.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* True when `fd` has something to read, false when the fake is to stop. */
static bool ready(struct fake *f, int fd)
{
    struct pollfd p[] = {{.fd = fd, .events = POLLIN}, {.fd = f->stop[0], .events = POLLIN}};

    while (poll(p, 2, -1) < 0)
        ;
    return p[1].revents == 0;
}

static bool whole_request(const char *text)
{
    const char *end = strstr(text, "\r\n\r\n"), *length = strstr(text, "Content-Length: ");

    return end && (!length || length > end || strlen(end + 4) >= strtoul(length + 16, NULL, 10));
}

static void serve(struct fake *f, int fd)
{
    size_t len = 0;

    while (ready(f, fd)) {
        ssize_t n = recv(fd, f->request + len, sizeof f->request - 1 - len, 0);
        if (n <= 0)
            return;
        len += (size_t)n;
        f->request[len] = '\0';
        if (!whole_request(f->request))
            continue;
        f->requests++;
        len = 0;
        if (!f->answer)
            continue;
        if (f->answer[0] == '\0')
            return;
        send(fd, f->answer, strlen(f->answer), MSG_NOSIGNAL);
        for (unsigned i = 0; i < f->repeat / 64; i++)
            if (send(fd, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", 64,
                     MSG_NOSIGNAL) < 0)
                return;
    }
}

static void *run(void *arg)
{
    struct fake *f = arg;

    while (ready(f, f->listener)) {
        int fd = accept(f->listener, NULL, NULL);
        if (fd < 0)
            continue;
        serve(f, fd);
        close(fd);
    }
    return NULL;
}

void fake_start(struct fake *f, const char *answer, unsigned repeat)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    memset(f, 0, sizeof *f);
    f->answer = answer;
    f->repeat = repeat;
    strcpy(f->dir, "/tmp/cloister-fake-XXXXXX");
    cr_assert(mkdtemp(f->dir));
    snprintf(f->path, sizeof f->path, "%s/s", f->dir);
    strcpy(address.sun_path, f->path);
    f->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(f->listener, (struct sockaddr *)&address, sizeof address), 0);
    cr_assert_eq(listen(f->listener, 8), 0);
    cr_assert_eq(pipe(f->stop), 0);
    cr_assert_eq(pthread_create(&f->thread, NULL, run, f), 0);
}

void fake_stop(struct fake *f)
{
    close(f->stop[1]);
    pthread_join(f->thread, NULL);
    close(f->stop[0]);
    close(f->listener);
    unlink(f->path);
    rmdir(f->dir);
}
