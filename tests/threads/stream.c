/* Streams under fire: news from several threads, signs of life, clients that read slowly, leave, reset or
 * close one half, and a stop in the middle. Every stream is freed once, and no reader misses a number or gets
 * one twice. */
#include "http/stream.h"
#include "base/clock.h"
#include "base/log.h"
#include "http/http.h"
#include "http/request.h"
#include "http/response.h"

#include "visitors.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#define SLOTS    256
#define CLIENTS  150 /* more than the 128 events of the library's batch */
#define WAKERS   2
#define ROUNDS   3
#define ROUND_MS 3000

struct reader {
    unsigned slot;
    int told, goal;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct http_ticket *slots[SLOTS]; /* under lock */
static atomic_int made;
static atomic_uint opened, freed, ended, beats, stopped, whole;

static enum http_flow next(void *arg, enum http_why why, struct buf *out)
{
    struct reader *r = arg;
    int now = made;
    struct err err;

    if (r->told == 0) { /* each begins with what is the newest then */
        r->told = now;
        r->goal = now + 40;
        CHECK(buf_addf(out, &err, "from %d\n", now) == 0);
        return HTTP_MORE;
    }
    while (r->told < now && r->told < r->goal && out->len < 100)
        CHECK(buf_addf(out, &err, "%d\n", ++r->told) == 0);
    if (r->told == r->goal) {
        ended++;
        return HTTP_END;
    }
    if (r->told < now)
        return HTTP_MORE;
    if (why == HTTP_STOPPING) {
        stopped++;
        return HTTP_END;
    }
    if (why == HTTP_DEADLINE) {
        beats++;
        CHECK(buf_adds(out, "\n", &err) == 0);
    }
    return HTTP_WAIT;
}

static void done(void *arg)
{
    struct reader *r = arg;

    pthread_mutex_lock(&lock);
    struct http_ticket *t = slots[r->slot];
    slots[r->slot] = NULL;
    pthread_mutex_unlock(&lock);
    http_ticket_release(t);
    free(r);
    freed++;
}

static const struct http_stream_ops ops = {next, done};

static enum http_result open_stream(struct http_req *req)
{
    struct reader *r = calloc(1, sizeof *r);
    struct err err;

    CHECK(r);
    pthread_mutex_lock(&lock);
    while (r->slot < SLOTS && slots[r->slot])
        r->slot++;
    CHECK(r->slot < SLOTS);
    slots[r->slot] = http_stream(req, "text/plain", &ops, r, &err);
    CHECK(slots[r->slot]);
    pthread_mutex_unlock(&lock);
    opened++;
    return HTTP_DONE;
}

static const struct http_route routes[] = {{"GET", "/numbers", 0, 0, NULL, open_stream}, {0}};

static int allow(struct http_req *req, const struct http_route *route, struct err *err)
{
    (void)req;
    (void)route;
    (void)err;
    return 0;
}

static void *tell(void *arg)
{
    (void)arg;
    while (!over) {
        made++;
        pthread_mutex_lock(&lock);
        for (unsigned i = 0; i < SLOTS; i++) {
            if (slots[i])
                http_wake(slots[i]);
        }
        pthread_mutex_unlock(&lock);
        clock_sleep_ms(made % 16 ? 1 : 30); /* now and then a silence */
    }
    return NULL;
}

/* Takes the lines out of an answer and holds them to their order; what is not whole yet stays in `text`. */
static void check_lines(char *text, size_t *len, int *expect)
{
    char *at = text, *end;

    while ((end = memchr(at, '\n', *len - (size_t)(at - text)))) {
        *end = '\0';
        int number;
        if (sscanf(at, "from %d", &number) == 1) {
            *expect = number + 1;
        } else if (*expect > 0 && *at && *at != '\r' && !strchr(at, '\r')) { /* the others frame the chunks */
            CHECK(sscanf(at, "%d", &number) == 1);
            CHECK(number == *expect);
            ++*expect;
        }
        at = end + 1;
    }
    *len -= (size_t)(at - text);
    memmove(text, at, *len);
}

/* One stream, which some give up. False when nothing came for too long. */
static bool visit(int fd, unsigned *seed)
{
    static const char request[] = "GET /numbers HTTP/1.1\r\nHost: a\r\n\r\n";
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    unsigned choice = (unsigned)rand_r(seed) % 8;
    int pieces = choice < 3 ? rand_r(seed) % 10 : 1000000, expect = 0;
    char text[4096];
    size_t len = 0;

    if (send(fd, request, sizeof request - 1, MSG_NOSIGNAL) < 0)
        return true; /* the server stops */
    if (choice == 3)
        shutdown(fd, SHUT_WR);
    for (int i = 0; i < pieces; i++) {
        ssize_t n = recv(fd, text + len, sizeof text - len, 0);
        if (n < 0)
            return errno != EAGAIN; /* a reset is one of the things that happen when the server stops */
        if (n == 0) {
            whole++;
            return true;
        }
        len += (size_t)n;
        check_lines(text, &len, &expect);
        if (choice == 4)
            clock_sleep_ms(5);
    }
    if (choice == 0)
        CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
    return true;
}

static void round_of_visits(void)
{
    struct http_config config = {.routes = routes,
                                 .authorize = allow,
                                 .address = "127.0.0.1",
                                 .listen_fd = -1,
                                 .threads = 2,
                                 .beat_ms = 10};
    pthread_t wakers[WAKERS], clients[CLIENTS];
    struct http_server *server = NULL;
    struct err err;

    over = false;
    log_set_level(LOG_WARN); /* not a line for each request */
    CHECK(http_server_start(&config, &server, &err) == 0);
    port = http_server_port(server);
    start_threads(wakers, WAKERS, tell, NULL);
    start_threads(clients, CLIENTS, visit_again, NULL);
    int64_t end = clock_mono_ms() + ROUND_MS;
    while (clock_mono_ms() < end)
        clock_sleep_ms(50);
    http_server_stop(server, 5000); /* under load */
    over = true;
    join_threads(clients, CLIENTS);
    join_threads(wakers, WAKERS);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    made = 1;
    for (int i = 0; i < ROUNDS; i++)
        round_of_visits();
    printf("%u streams of %d numbers: %u told all, %u stopped, %u read to the end, %u signs of life\n",
           opened, made, ended, stopped, whole, beats);
    CHECK(opened > 300 && ended > 0 && stopped > 0 && whole > 0 && beats > 0);
    CHECK(freed == opened);
    return 0;
}
