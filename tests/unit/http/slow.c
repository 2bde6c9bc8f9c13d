/* Slow and too many clients. */
#include "peer.h"

#include <sys/resource.h>
#include <sys/socket.h>

TestSuite(slow, .timeout = 60);

static void start(struct fixture *f)
{
    struct http_config config = {.head_ms = 300, .body_ms = 400, .reply_ms = 700, .idle_ms = 500};
    fixture_start(f, &config);
}

/* Sends a piece every 50 ms until the server ends it; returns after how many milliseconds it did. */
static int64_t drip(int fd, const char *piece)
{
    int64_t began = clock_mono_ms();
    char byte;

    while (clock_mono_ms() - began < 10000) {
        if (send(fd, piece, strlen(piece), MSG_NOSIGNAL) < 0 || recv(fd, &byte, 1, MSG_DONTWAIT) == 0)
            break;
        clock_sleep_ms(50);
    }
    return clock_mono_ms() - began;
}

Test(slow, head_a_line_at_a_time)
{
    struct fixture f;
    start(&f);
    int fd = peer_connect(&f);
    peer_send(fd, "GET /hello HTTP/1.1\r\n");
    int64_t took = drip(fd, "X: y\r\n");
    cr_assert(took >= 200 && took < 2000, "%lld", (long long)took);
    close(fd);
    fixture_stop(&f);
}

Test(slow, request_line_a_byte_at_a_time)
{
    struct fixture f;
    start(&f);
    int fd = peer_connect(&f);
    int64_t took = drip(fd, "G");
    cr_assert(took >= 200 && took < 2000, "%lld", (long long)took);
    close(fd);
    fixture_stop(&f);
}

Test(slow, body_a_byte_at_a_time)
{
    struct fixture f;
    start(&f);
    int fd = peer_connect(&f);
    peer_send(
        fd,
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 60000\r\n\r\n");
    int64_t took = drip(fd, " ");
    cr_assert(took >= 300 && took < 2000, "%lld", (long long)took);
    close(fd);
    fixture_stop(&f);
}

Test(slow, reader)
{
    struct fixture f;
    start(&f);
    int fd = peer_connect(&f), small = 4096, total = 0;
    char byte[64];

    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    peer_send(fd, "GET /big HTTP/1.1\r\nHost: a\r\n\r\n");
    int64_t began = clock_mono_ms();
    while (clock_mono_ms() - began < 10000 && http_server_connections(f.server) > 0) {
        ssize_t n = recv(fd, byte, sizeof byte, MSG_DONTWAIT);
        total += n > 0 ? (int)n : 0;
        clock_sleep_ms(20);
    }
    cr_assert_lt(clock_mono_ms() - began, 5000);
    cr_assert_lt(total, 8 * 1024 * 1024);
    close(fd);
    fixture_stop(&f);
}

Test(slow, idle_connection_ends)
{
    struct fixture f;
    start(&f);
    int fd = peer_connect(&f);
    peer_send(fd, "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
    peer_read(fd, "hello");
    int64_t began = clock_mono_ms();
    peer_read(fd, NULL);
    int64_t took = clock_mono_ms() - began;
    cr_assert(took >= 300 && took < 3000, "%lld", (long long)took);
    close(fd);
    fixture_stop(&f);
}

Test(slow, parked_clients_are_not_slow)
{
    struct fixture f;
    start(&f);
    int fd = peer_connect(&f);
    peer_send(fd, "GET /wait?ms=1500 HTTP/1.1\r\nHost: a\r\n\r\n");
    cr_assert_eq(peer_status(peer_read(fd, "woken")), 200);
    close(fd);
    fixture_stop(&f);
}

#define CAP 20

Test(slow, more_clients_than_allowed_are_told_so)
{
    struct fixture f;
    struct http_config config = {.max_connections = CAP};
    int fds[CAP], fd;

    fixture_start(&f, &config);
    for (int i = 0; i < CAP; i++) {
        fds[i] = peer_connect(&f);
        peer_send(fds[i], "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    cr_assert(wait_for(&f.parked, CAP));
    for (int i = 0; i < 3; i++) {
        fd = peer_connect(&f);
        peer_send(fd, "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
        const char *answer = peer_read(fd, NULL);
        cr_assert_eq(peer_status(answer), 503, "%s", answer);
        cr_assert(strstr(answer, "/problems/overloaded") && strstr(answer, "Retry-After: 1\r\n"));
        close(fd);
    }
    for (int i = 0; i < CAP; i++)
        close(fds[i]);
    cr_assert(wait_for(&f.gone, CAP));
    int64_t deadline = clock_mono_ms() + 10000;
    int status = 0;
    while (status != 200 && clock_mono_ms() < deadline)
        status = peer_status(peer_ask(&f, "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n"));
    cr_assert_eq(status, 200);
    fixture_stop(&f);
}

Test(slow, idle_clients_give_way_to_new_ones)
{
    struct fixture f;
    struct http_config config = {.max_connections = CAP};
    int fds[3 * CAP];

    fixture_start(&f, &config);
    for (int i = 0; i < 3 * CAP; i++) { /* each stays, idle, after its answer */
        fds[i] = peer_connect(&f);
        peer_send(fds[i], "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
        cr_assert_eq(peer_status(peer_read(fds[i], "hello")), 200, "%d", i);
    }
    cr_assert_str_eq(peer_read(fds[0], NULL), ""); /* the first had to go */
    for (int i = 0; i < 3 * CAP; i++)
        close(fds[i]);
    fixture_stop(&f);
}

Test(slow, clients_that_dawdle_with_a_later_head_give_way_as_well)
{
    struct fixture f;
    struct http_config config = {.max_connections = CAP};
    int fds[3 * CAP];

    fixture_start(&f, &config);
    for (int i = 0; i < 3 * CAP; i++) {
        fds[i] = peer_connect(&f);
        peer_send(fds[i], "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
        cr_assert_eq(peer_status(peer_read(fds[i], "hello")), 200, "%d", i);
        peer_send(fds[i], "GET /hello HTTP/1.1\r\nX: ");
    }
    for (int i = 0; i < 3 * CAP; i++)
        close(fds[i]);
    fixture_stop(&f);
}

#define SILENT 3000

Test(slow, silent_clients_do_not_keep_others_out)
{
    struct rlimit limit;
    struct fixture f;
    static int fds[SILENT];

    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max < 9000 ? limit.rlim_max : 9000; /* both ends are in this process */
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    fixture_start(&f, NULL);
    for (int i = 0; i < SILENT; i++) {
        fds[i] = peer_connect(&f);
        peer_send(fds[i], "GET /hello HTTP/1.1\r\nX: ");
    }
    cr_assert_eq(peer_status(peer_ask(&f, "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")), 200);
    cr_assert_leq(http_server_connections(f.server), 2100u);
    for (int i = 0; i < SILENT; i++)
        close(fds[i]);
    fixture_stop(&f);
}
