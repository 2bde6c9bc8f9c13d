/* Parked requests under fire: wakers, deadlines, clients that leave or close one half, and a stop in the
 * middle. Every park ends exactly once. */
#include "http/park.h"
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

static _Atomic(struct http_ticket *) slots[SLOTS];
static atomic_uint parks, woken, late, stopped, gone_away;
static atomic_bool stopping;

static enum http_result resumed(struct http_req *req, enum http_why why, void *arg)
{
    (void)arg;
    atomic_fetch_add(why == HTTP_WOKEN ? &woken : why == HTTP_DEADLINE ? &late : &stopped, 1);
    return http_reply_text(req, 200, "text/plain", "x", 1);
}

static void gone(void *arg)
{
    (void)arg;
    gone_away++;
}

static void wake_and_release(struct http_ticket *t)
{
    if (!t)
        return;
    http_wake(t);
    http_wake(t); /* the second does nothing */
    http_ticket_release(t);
}

static enum http_result park(struct http_req *req)
{
    int64_t deadline = http_query(req, "soon") ? clock_mono_ms() + 5 : HTTP_NO_DEADLINE;
    struct err err;
    struct http_ticket *t = http_park(req, resumed, gone, NULL, deadline, &err);

    if (!t)
        return http_problem(req, &err, NULL);
    wake_and_release(atomic_exchange(&slots[parks++ % SLOTS], t));
    return HTTP_PARK;
}

static const struct http_route routes[] = {{"GET", "/park", 0, 0, "soon", park}, {0}};

static int allow(struct http_req *req, const struct http_route *route, struct err *err)
{
    (void)req;
    (void)route;
    (void)err;
    return 0;
}

static void *wake_some(void *arg)
{
    (void)arg;
    for (unsigned i = 0; !over; i++) {
        wake_and_release(atomic_exchange(&slots[i % SLOTS], NULL));
        if (i % 64 == 0)
            clock_sleep_ms(1);
    }
    return NULL;
}

/* One connection: a few requests, some of them given up. False when the server did not answer in time. */
static bool visit(int fd, unsigned *seed)
{
    static const char *const requests[] = {"GET /park HTTP/1.1\r\nHost: a\r\n\r\n",
                                           "GET /park?soon=1 HTTP/1.1\r\nHost: a\r\n\r\n"};
    char answer[4096];

    for (int i = 0; i < 4 && !over; i++) {
        unsigned choice = (unsigned)rand_r(seed) % 8;
        const char *request = requests[choice == 1];
        if (send(fd, request, strlen(request), MSG_NOSIGNAL) < 0)
            return true; /* the server stops */
        if (choice == 2)
            shutdown(fd, SHUT_WR);
        if (choice == 3) {
            clock_sleep_ms(rand_r(seed) % 20);
            return true;
        }
        ssize_t n = recv(fd, answer, sizeof answer, 0);
        if (n < 0) /* a stop may cut off what a client has just begun to send */
            return over || (stopping && errno == ECONNRESET);
        if (n == 0)
            return true;
    }
    return true;
}

static void round_of_visits(void)
{
    struct http_config config = {
        .routes = routes, .authorize = allow, .address = "127.0.0.1", .listen_fd = -1, .threads = 2};
    pthread_t wakers[WAKERS], clients[CLIENTS];
    struct http_server *server = NULL;
    struct err err;

    over = stopping = false;
    log_set_level(LOG_WARN); /* not a line for each request */
    CHECK(http_server_start(&config, &server, &err) == 0);
    port = http_server_port(server);
    start_threads(wakers, WAKERS, wake_some, NULL);
    start_threads(clients, CLIENTS, visit_again, NULL);
    int64_t end = clock_mono_ms() + ROUND_MS;
    while (clock_mono_ms() < end)
        clock_sleep_ms(50);
    stopping = true;
    http_server_stop(server, 5000); /* under load */
    over = true;
    join_threads(clients, CLIENTS);
    join_threads(wakers, WAKERS);
    for (unsigned i = 0; i < SLOTS; i++)
        wake_and_release(atomic_exchange(&slots[i], NULL));
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < ROUNDS; i++)
        round_of_visits();
    printf("%u parks: %u woken, %u at their deadline, %u by the stop, %u gone\n", parks, woken, late, stopped,
           gone_away);
    CHECK(parks > 1000 && woken > 0 && late > 0 && gone_away > 0);
    CHECK(woken + late + stopped + gone_away == parks);
    return 0;
}
