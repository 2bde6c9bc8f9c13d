/* Answers that go on: every item once and in order, whoever else is slow, leaves or stops. */
#include "http/stream.h"
#include "peer.h"

#include "base/limits.h"
#include "base/log.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#define STREAMS 600
#define PIECE   (256 * 1024)

/* What all streams tell: "item 1" to "item `made`", and the end after `goal`. */
static struct {
    pthread_mutex_t lock;
    struct http_ticket *tickets[STREAMS]; /* under lock; of the streams that are open */
    atomic_int made, goal, opened, freed, beats, flood;
} feed = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct reader {
    int told, slot;
    bool broken;
};

static struct fixture f;

static enum http_flow next(void *arg, enum http_why why, struct buf *out)
{
    struct reader *r = arg;
    int made = feed.made, first = r->told;
    struct err err;

    if (first < 0) {
        r->told = 0;
        cr_assert_eq(buf_adds(out, "begin\n", &err), 0);
        return feed.made ? HTTP_MORE : HTTP_WAIT;
    }
    if (feed.flood) {
        static char noise[PIECE];
        memset(noise, '.', sizeof noise);
        cr_assert_eq(buf_add(out, noise, sizeof noise, &err), 0);
        return HTTP_MORE;
    }
    while (r->told < made)
        cr_assert_eq(buf_addf(out, &err, "item %d\n", ++r->told), 0);
    if (r->broken && r->told > 0)
        return HTTP_BREAK;
    if (why == HTTP_STOPPING || (feed.goal && r->told >= feed.goal)) {
        cr_assert_eq(buf_adds(out, why == HTTP_STOPPING ? "stopped\n" : "end\n", &err), 0);
        return HTTP_END;
    }
    if (why == HTTP_DEADLINE) {
        feed.beats++;
        cr_assert_eq(buf_adds(out, "beat\n", &err), 0);
    }
    return HTTP_WAIT;
}

static void done(void *arg)
{
    struct reader *r = arg;

    pthread_mutex_lock(&feed.lock);
    struct http_ticket *t = feed.tickets[r->slot];
    feed.tickets[r->slot] = NULL;
    pthread_mutex_unlock(&feed.lock);
    http_ticket_release(t);
    free(r);
    feed.freed++;
}

static const struct http_stream_ops ops = {next, done};

static enum http_result open_stream(struct http_req *req)
{
    struct reader *r = calloc(1, sizeof *r);
    const char *how = http_query(req, "how");
    struct err err;

    cr_assert(r);
    r->told = -1;
    r->broken = how && strcmp(how, "break") == 0;
    pthread_mutex_lock(&feed.lock);
    while (feed.tickets[r->slot])
        r->slot++;
    feed.tickets[r->slot] = http_stream(req, "text/x-feed", &ops, r, &err);
    cr_assert(feed.tickets[r->slot]);
    pthread_mutex_unlock(&feed.lock);
    feed.opened++;
    if (how && strcmp(how, "replaced") == 0) {
        err_set(&err, ERR_CONFLICT, "no stream after all");
        return http_problem(req, &err, NULL);
    }
    return HTTP_DONE;
}

static void tell(int items)
{
    feed.made += items;
    pthread_mutex_lock(&feed.lock);
    for (int i = 0; i < STREAMS; i++) {
        if (feed.tickets[i])
            http_wake(feed.tickets[i]);
    }
    pthread_mutex_unlock(&feed.lock);
}

static enum http_result hello(struct http_req *req)
{
    return http_reply_text(req, 200, "text/plain", "hello", 5);
}

static const struct http_route routes[] = {
    {"GET", "/feed", 0, 0, "how", open_stream},
    {"POST", "/feed", 0, 1024, "how", open_stream},
    {"GET", "/hello", 0, 0, NULL, hello},
    {0},
};

static int allow(struct http_req *req, const struct http_route *route, struct err *err)
{
    (void)req;
    (void)route;
    (void)err;
    return 0;
}

static void serve(unsigned beat_ms, unsigned reply_ms)
{
    struct http_config config = {.routes = routes,
                                 .authorize = allow,
                                 .address = "127.0.0.1",
                                 .listen_fd = -1,
                                 .threads = 2,
                                 .beat_ms = beat_ms,
                                 .reply_ms = reply_ms};
    struct err err;

    signal(SIGPIPE, SIG_IGN);
    feed.made = feed.goal = feed.opened = feed.freed = feed.beats = feed.flood = 0;
    log_set_level(LOG_WARN); /* not a line for each request */
    cr_assert_eq(http_server_start(&config, &f.server, &err), 0, "%s", err.text);
    f.port = http_server_port(f.server);
}

TestSuite(stream, .timeout = 60);

static void nobody_is_connected(void)
{
    int64_t deadline = clock_mono_ms() + 5000;

    while (http_server_connections(f.server) > 0 && clock_mono_ms() < deadline)
        clock_sleep_ms(1);
    cr_assert_eq(http_server_connections(f.server), 0u);
}

#define FEED "GET /feed HTTP/1.1\r\nHost: a\r\n\r\n"

static int begin(void)
{
    int fd = peer_connect(&f);

    peer_send(fd, FEED);
    const char *head = peer_read(fd, "begin\n");
    cr_assert_eq(peer_status(head), 200, "%s", head);
    cr_assert(strstr(head, "Content-Type: text/x-feed\r\n"), "%s", head);
    return fd;
}

/* What a client has read when it has taken the chunks apart; until the last chunk, the end of the connection,
 * or `until`. Static buffer. */
static const char *chunks(int fd, const char *until)
{
    static char text[128 * 1024];
    const char *raw = peer_read(fd, until ? until : "0\r\n\r\n");
    size_t len = 0;

    for (const char *at = raw; *at;) {
        char *end;
        size_t size = strtoul(at, &end, 16);
        if (end == at || strncmp(end, "\r\n", 2) != 0 || strlen(end) < size + 4)
            break;
        memcpy(text + len, end + 2, size);
        len += size;
        at = end + 2 + size + 2;
    }
    text[len] = '\0';
    return text;
}

Test(stream, tells_what_becomes_known)
{
    serve(0, 0);
    int fd = begin();
    char line[32];

    for (int i = 1; i <= 100; i++) {
        int64_t began = clock_mono_ms();
        tell(1);
        snprintf(line, sizeof line, "item %d\n", i);
        cr_assert_str_eq(chunks(fd, line), line);
        cr_assert_lt(clock_mono_ms() - began, 1000);
    }
    feed.goal = 101;
    tell(1);
    cr_assert_str_eq(chunks(fd, NULL), "item 101\nend\n");
    cr_assert(wait_for(&feed.freed, 1));
    cr_assert_str_empty(peer_read(fd, NULL)); /* and the server closes, */
    nobody_is_connected();                    /* whatever the client does */
    close(fd);
    http_server_stop(f.server, 5000);
}

/* Before anything is known the head must be there. */
Test(stream, begins_at_once)
{
    serve(0, 0);
    int64_t began = clock_mono_ms();
    for (int i = 0; i < 20; i++)
        close(begin());
    cr_assert_lt(clock_mono_ms() - began, 2000);
    cr_assert(wait_for(&feed.freed, 20));
    http_server_stop(f.server, 5000);
}

Test(stream, old_clients_read_until_the_close)
{
    serve(0, 0);
    feed.goal = 2;
    feed.made = 2;
    int fd = peer_connect(&f);
    peer_send(fd, "GET /feed HTTP/1.0\r\nHost: a\r\n\r\n");
    const char *answer = peer_read(fd, NULL);
    cr_assert(strstr(answer, "\r\n\r\nbegin\nitem 1\nitem 2\nend\n"), "%s", answer);
    cr_assert_not(strstr(answer, "chunked"));
    close(fd);
    http_server_stop(f.server, 5000);
}

Test(stream, a_head_alone)
{
    serve(0, 0);
    int fd = peer_connect(&f);
    peer_send(fd, "HEAD /feed HTTP/1.1\r\nHost: a\r\n\r\n");
    const char *answer = peer_read(fd, NULL);
    cr_assert_eq(peer_status(answer), 200, "%s", answer);
    cr_assert(strstr(answer, "text/x-feed"));
    cr_assert_str_eq(strstr(answer, "\r\n\r\n"), "\r\n\r\n", "%s", answer);
    cr_assert(wait_for(&feed.freed, 1));
    nobody_is_connected();
    close(fd);
    http_server_stop(f.server, 5000);
}

Test(stream, another_answer_in_its_place)
{
    serve(0, 0);
    const char *answer = peer_ask(&f, "GET /feed?how=replaced HTTP/1.1\r\nHost: a\r\n\r\n");
    cr_assert_eq(peer_status(answer), 409, "%s", answer);
    cr_assert(wait_for(&feed.freed, 1));
    http_server_stop(f.server, 5000);
}

Test(stream, a_break_is_no_end)
{
    serve(0, 0);
    feed.made = 1;
    int fd = peer_connect(&f);
    peer_send(fd, "GET /feed?how=break HTTP/1.1\r\nHost: a\r\n\r\n");
    const char *answer = peer_read(fd, NULL);
    cr_assert(strstr(answer, "item 1") && !strstr(answer, "\r\n0\r\n"), "%s", answer);
    close(fd);
    http_server_stop(f.server, 5000);
}

Test(stream, says_that_it_lives)
{
    serve(100, 0);
    int fd = begin();
    int64_t began = clock_mono_ms();
    for (int i = 0; i < 3; i++)
        cr_assert_str_eq(chunks(fd, "beat\n"), "beat\n");
    int64_t took = clock_mono_ms() - began;
    cr_assert(took >= 290 && took < 2000, "%lld ms", (long long)took);
    close(fd);
    http_server_stop(f.server, 5000);
}

Test(stream, a_client_that_leaves_is_noticed)
{
    serve(0, 0);
    int fd = begin(), other = begin();
    struct linger now = {.l_onoff = 1, .l_linger = 0};

    close(fd); /* in order, or */
    cr_assert(wait_for(&feed.freed, 1));
    fd = begin();
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(fd); /* with a reset */
    cr_assert(wait_for(&feed.freed, 2));
    tell(1);
    cr_assert_str_eq(chunks(other, "item 1\n"), "item 1\n");
    close(other);
    http_server_stop(f.server, 5000);
}

Test(stream, half_close_is_no_departure)
{
    serve(0, 0);
    int fd = begin();

    shutdown(fd, SHUT_WR);
    cr_assert_str_eq(chunks(fd, "beat\n"), "beat\n"); /* the server has looked, and stays */
    for (int i = 0; i < 3; i++) {
        tell(1);
        peer_read(fd, "item");
    }
    cr_assert_eq(feed.freed, 0);
    cr_assert_eq(feed.beats, 1, "%d beats: it looks once", feed.beats);
    feed.goal = 4;
    tell(1);
    cr_assert(strstr(peer_read(fd, NULL), "end\n")); /* and then the connection is over */
    close(fd);
    http_server_stop(f.server, 5000);
}

Test(stream, half_close_with_the_request)
{
    serve(0, 0);
    int fd = peer_connect(&f);

    peer_send(fd, "POST /feed HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: "
                  "2\r\n\r\n{}");
    shutdown(fd, SHUT_WR);
    peer_read(fd, "begin\n");
    feed.goal = 1;
    tell(1);
    cr_assert(strstr(peer_read(fd, NULL), "end\n"));
    close(fd);
    http_server_stop(f.server, 5000);
}

/* Who does not read is cut off; others do not notice. */
Test(stream, a_reader_that_does_not_read)
{
    serve(0, 500);
    int fd = begin();

    feed.flood = 1; /* after it has waited: then a new time begins */
    tell(1);
    int64_t began = clock_mono_ms();
    cr_assert_eq(peer_status(peer_ask(&f, "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")), 200);
    cr_assert_lt(clock_mono_ms() - began, 400);
    cr_assert(wait_for(&feed.freed, 1));
    cr_assert_lt(clock_mono_ms() - began, 5000);
    close(fd);
    http_server_stop(f.server, 5000);
}

/* One that reads slowly gets all of a piece that is larger than every buffer between. */
Test(stream, pieces_larger_than_the_buffers)
{
    serve(0, 0);
    feed.flood = 1;
    feed.made = 1;
    int fd = begin();
    size_t got = 0;
    char part[8192];

    while (got < 5 * PIECE) {
        ssize_t n = recv(fd, part, sizeof part, 0);
        cr_assert_gt(n, 0);
        got += (size_t)n;
    }
    feed.goal = 1;
    feed.flood = 0;
    int64_t deadline = clock_mono_ms() + 10000;
    char tail[16] = "";
    while (!strstr(tail, "0\r\n\r\n") && clock_mono_ms() < deadline) {
        ssize_t n = recv(fd, part, sizeof part, 0);
        cr_assert_gt(n, 0);
        snprintf(tail, sizeof tail, "%.*s", (int)(n < 10 ? n : 10), part + (n < 10 ? 0 : n - 10));
    }
    close(fd);
    http_server_stop(f.server, 5000);
}

#define MANY  500
#define ITEMS 50

/* Wakes come from another thread while others are being served. */
static void *tell_all(void *arg)
{
    (void)arg;
    for (int i = 0; i < ITEMS; i++) {
        tell(1);
        if (i % 8 == 0)
            clock_sleep_ms(1);
    }
    return NULL;
}

Test(stream, many_see_every_item_once)
{
    static int fds[MANY];
    char expected[ITEMS * 16] = "";
    pthread_t teller;

    for (int i = 1; i <= ITEMS; i++)
        snprintf(expected + strlen(expected), 16, "item %d\n", i);
    strcat(expected, "end\n");
    serve(0, 0);
    feed.goal = ITEMS;
    for (int i = 0; i < MANY; i++)
        fds[i] = begin();
    int64_t began = clock_mono_ms();
    cr_assert_eq(pthread_create(&teller, NULL, tell_all, NULL), 0);
    for (int i = 0; i < MANY; i++) {
        cr_assert_str_eq(chunks(fds[i], NULL), expected, "%d", i);
        close(fds[i]);
    }
    cr_log_info("%d streams, %d items: %lld ms", MANY, ITEMS, (long long)(clock_mono_ms() - began));
    pthread_join(teller, NULL);
    cr_assert(wait_for(&feed.freed, MANY));
    http_server_stop(f.server, 5000);
}

Test(stream, stop_ends_all)
{
    static int fds[MANY];

    serve(0, 0);
    for (int i = 0; i < MANY; i++)
        fds[i] = begin();
    int64_t began = clock_mono_ms();
    http_server_stop(f.server, 5000);
    cr_assert_lt(clock_mono_ms() - began, 3000);
    for (int i = 0; i < MANY; i++) {
        cr_assert_str_eq(chunks(fds[i], NULL), "stopped\n");
        close(fds[i]);
    }
    cr_assert_eq(feed.freed, MANY);
}

Test(stream, stop_beside_one_that_does_not_read)
{
    serve(0, 0);
    int fd = peer_connect(&f);

    feed.flood = 1;
    feed.made = 1;
    peer_send(fd, FEED);
    cr_assert(wait_for(&feed.opened, 1));
    int64_t began = clock_mono_ms();
    http_server_stop(f.server, 500);
    cr_assert_lt(clock_mono_ms() - began, 3000);
    cr_assert_eq(feed.freed, 1);
    close(fd);
}
