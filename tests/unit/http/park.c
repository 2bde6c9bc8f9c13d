/* Parked requests: woken once, by whatever comes first. */
#include "peer.h"

#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct fixture f;

static void start(void)
{
    fixture_start(&f, NULL);
}

TestSuite(park, .init = start, .timeout = 60);

#define WAIT "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n"

Test(park, woken_from_another_thread)
{
    int fd = peer_connect(&f);

    for (int i = 1; i <= 100; i++) {
        peer_send(fd, WAIT);
        cr_assert(wait_for(&f.parked, i));
        http_wake(f.ticket);
        cr_assert_eq(peer_status(peer_read(fd, "woken")), 200);
        http_wake(f.ticket); /* too late: nothing happens */
        cr_assert_eq(f.resumed, i);
    }
    close(fd);
    fixture_stop(&f);
    cr_assert_eq(f.gone, 0);
}

Test(park, woken_before_the_handler_returns)
{
    int fd = peer_connect(&f);

    for (int i = 1; i <= 100; i++) {
        peer_send(fd, "GET /at-once HTTP/1.1\r\nHost: a\r\n\r\n");
        cr_assert_eq(peer_status(peer_read(fd, "woken")), 200);
        cr_assert_eq(f.resumed, i);
    }
    close(fd);
    fixture_stop(&f);
}

Test(park, deadline)
{
    int fd = peer_connect(&f);
    int64_t began = clock_mono_ms();

    peer_send(fd, "GET /wait?ms=100 HTTP/1.1\r\nHost: a\r\n\r\n");
    cr_assert_eq(peer_status(peer_read(fd, "woken")), 200);
    int64_t took = clock_mono_ms() - began;
    cr_assert(took >= 99 && took < 1000, "%lld ms", (long long)took);
    cr_assert_eq(f.why, HTTP_DEADLINE);
    close(fd);
    fixture_stop(&f);
}

Test(park, client_that_leaves_is_noticed)
{
    int fd = peer_connect(&f);

    peer_send(fd, WAIT);
    cr_assert(wait_for(&f.parked, 1));
    close(fd);
    cr_assert(wait_for(&f.gone, 1));
    http_wake(f.ticket);
    fixture_stop(&f);
    cr_assert_eq(f.resumed, 0);
    cr_assert_eq(f.gone, 1);
}

Test(park, client_that_resets_is_noticed)
{
    int fd = peer_connect(&f);
    struct linger now = {.l_onoff = 1, .l_linger = 0};

    peer_send(fd, WAIT);
    cr_assert(wait_for(&f.parked, 1));
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(fd);
    cr_assert(wait_for(&f.gone, 1));
    fixture_stop(&f);
}

Test(park, half_close_is_no_departure)
{
    int fd = peer_connect(&f);

    peer_send(fd, WAIT);
    cr_assert(wait_for(&f.parked, 1));
    shutdown(fd, SHUT_WR);
    peer_read(fd, "100 Continue\r\n\r\n"); /* the server has looked, and stays */
    cr_assert_eq(f.gone, 0);
    http_wake(f.ticket);
    const char *answer = peer_read(fd, NULL);
    cr_assert(strstr(answer, "HTTP/1.1 200") && strstr(answer, "woken"), "%s", answer);
    close(fd);
    fixture_stop(&f);
}

Test(park, half_close_sent_with_the_request)
{
    int fd = peer_connect(&f);

    peer_send(fd, "POST /wait?ms=300 HTTP/1.1\r\nHost: a\r\nContent-Type: "
                  "application/json\r\nContent-Length: 2\r\n\r\n{}");
    shutdown(fd, SHUT_WR);
    const char *answer = peer_read(fd, NULL);
    cr_assert(strstr(answer, "HTTP/1.1 200") && strstr(answer, "woken"), "%s", answer);
    close(fd);
    fixture_stop(&f);
}

/* With others beside it the library looks at a resumed connection's socket before it asks for the answer. */
Test(park, half_close_beside_idle_clients)
{
    int idle[8];

    for (size_t i = 0; i < ARRAY_LEN(idle); i++) { /* some on each of the library's threads */
        idle[i] = peer_connect(&f);
        peer_send(idle[i], "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
        peer_read(idle[i], "hello");
    }
    for (int i = 0; i < 4; i++) {
        int fd = peer_connect(&f);
        peer_send(fd, "POST /wait?ms=50 HTTP/1.1\r\nHost: a\r\nContent-Type: "
                      "application/json\r\nContent-Length: 2\r\n\r\n{}");
        shutdown(fd, SHUT_WR);
        const char *answer = peer_read(fd, NULL);
        cr_assert(strstr(answer, "HTTP/1.1 200") && strstr(answer, "woken"), "%d: %s", i, answer);
        close(fd);
    }
    for (size_t i = 0; i < ARRAY_LEN(idle); i++)
        close(idle[i]);
    fixture_stop(&f);
}

#define MANY 500

Test(park, stop_answers_all_that_wait)
{
    static int fds[MANY];

    for (int i = 0; i < MANY; i++) {
        fds[i] = peer_connect(&f);
        peer_send(fds[i], WAIT);
    }
    cr_assert(wait_for(&f.parked, MANY));
    int64_t began = clock_mono_ms();
    fixture_stop(&f);
    cr_assert_lt(clock_mono_ms() - began, 4000);
    for (int i = 0; i < MANY; i++) {
        const char *answer = peer_read(fds[i], NULL);
        cr_assert_eq(peer_status(answer), 503, "%d: %s", i, answer);
        cr_assert(strstr(answer, "/problems/draining"));
        close(fds[i]);
    }
    cr_assert_eq(f.resumed, MANY);
}

Test(park, reads_go_on_beside_many_that_wait)
{
    static int fds[MANY];

    for (int i = 0; i < MANY; i++) {
        fds[i] = peer_connect(&f);
        peer_send(fds[i], WAIT);
    }
    cr_assert(wait_for(&f.parked, MANY));
    cr_assert_eq(peer_status(peer_ask(&f, "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")), 200);
    for (int i = 0; i < MANY; i++)
        close(fds[i]);
    cr_assert(wait_for(&f.gone, MANY));
    fixture_stop(&f);
}

Test(park, unix_socket_with_peer_and_departure)
{
    struct fixture u;
    char dir[] = "/tmp/http-unit-XXXXXX";
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    cr_assert(mkdtemp(dir));
    snprintf(sa.sun_path, sizeof sa.sun_path, "%s/s", dir);
    cr_assert_eq(bind(listener, (struct sockaddr *)&sa, sizeof sa), 0);
    cr_assert_eq(listen(listener, 16), 0);
    struct http_config config = {.listen_fd = listener};
    fixture_start(&u, &config);

    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(connect(fd, (struct sockaddr *)&sa, sizeof sa), 0);
    peer_send(fd, WAIT);
    cr_assert(wait_for(&u.parked, 1));
    shutdown(fd, SHUT_WR);
    http_wake(u.ticket);
    cr_assert_eq(peer_status(peer_read(fd, NULL)), 200);
    close(fd);

    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(connect(fd, (struct sockaddr *)&sa, sizeof sa), 0);
    peer_send(fd, WAIT);
    cr_assert(wait_for(&u.parked, 2));
    close(fd);
    cr_assert(wait_for(&u.gone, 1));
    fixture_stop(&u);
    unlink(sa.sun_path);
    rmdir(dir);
    fixture_stop(&f);
}
