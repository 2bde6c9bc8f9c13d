#include "handlers/turn_wait.h"

#include "base/clock.h"
#include "handlers/access.h"
#include "handlers/prefer.h"
#include "handlers/views.h"
#include "http/park.h"
#include "http/response.h"

#include <stdio.h>

struct wait {
    struct service *sv;
    char turn_id[TURN_ID_SIZE];
    char key_id[KEY_ID_SIZE];   /* "" for the local administrator */
    struct http_ticket *ticket; /* of the park under way */
    struct bus_sub *turn_sub, *key_sub;
    int64_t deadline;
    bool dead; /* wait for the proven death of its container as well */
};

static void wake(void *ticket)
{
    http_wake(ticket);
}

static void unsubscribe(struct wait *w)
{
    bus_unsubscribe(w->sv->bus, STEAL(w->turn_sub));
    bus_unsubscribe(w->sv->bus, STEAL(w->key_sub));
    http_ticket_release(STEAL(w->ticket));
}

static void wait_free(void *arg)
{
    struct wait *w = arg;

    unsubscribe(w);
    free(w);
}

struct look {
    const struct wait *wait;
    struct turn *turn;
    bool revoked;
};

static int look_job(struct store *st, void *arg, struct err *err)
{
    struct look *l = arg;
    CLEANUP(api_key_free_p) struct api_key *key = NULL;

    if (turns_get(st, l->wait->turn_id, &l->turn, err) < 0)
        return -1;
    if (l->wait->key_id[0] == '\0')
        return 0;
    if (keys_get(st, l->wait->key_id, &key, err) < 0)
        return -1;
    l->revoked = key->revoked_ms != 0;
    return 0;
}

void turn_answer(struct http_req *req, const struct turn *turn, bool ended)
{
    if (!ended) {
        http_header_add(req, "Location", "/v1/turns/%s", turn->id);
        http_header_add(req, "Retry-After", "%u", queue_retry_after(service_of(req)->queue));
    }
    http_reply_json(req, ended ? 200 : 202, turn_view(turn, auth_scope(caller_of(req), SCOPE_TURNS_READ)));
}

/* Answers when there is something to answer: an end, a revoked key, a failure, or (now) the state as it
 * is. True when it did. */
static bool try_answer(struct http_req *req, const struct wait *w, bool now)
{
    struct look l = {.wait = w};
    struct err err;
    int rc = db_read(w->sv->db, look_job, &l, &err);
    CLEANUP(turn_free_p) struct turn *turn = l.turn;

    if (rc == 0 && !auth_allows(caller_of(req), SCOPE_TURNS, SCOPE_TURNS_READ, turn->channel, turn->key_id))
        rc = err_set(&err, ERR_NOT_FOUND, "there is no such turn");
    if (rc == 0 && l.revoked)
        rc = err_set(&err, ERR_UNAUTHORIZED, "the key was revoked meanwhile");
    if (rc < 0) {
        if (err.code == ERR_UNAUTHORIZED)
            http_header_add(req, "WWW-Authenticate", "Bearer realm=\"cloister\"");
        http_problem(req, &err, NULL);
        return true;
    }
    /* Asked after the row: what has ended by then and is dead now stays so. */
    bool ended =
        turn_ended(turn->status) && !(w->dead && w->sv->host.turn_alive(w->sv->host.host, w->turn_id));
    if (!ended && !now)
        return false;
    turn_answer(req, turn, ended);
    return true;
}

static enum http_result woken(struct http_req *req, enum http_why why, void *arg);

/* Subscribes before it looks, so that no end falls between. Takes w over. */
static enum http_result wait_on(struct http_req *req, struct wait *w)
{
    struct err err;

    w->ticket = http_park(req, woken, wait_free, w, w->deadline, &err);
    if (!w->ticket) {
        if (err.code != ERR_DRAINING || !try_answer(req, w, true))
            http_problem(req, &err, NULL);
        wait_free(w);
        return HTTP_DONE;
    }
    if (bus_subscribe(w->sv->bus, w->turn_id, wake, w->ticket, &w->turn_sub, &err) < 0)
        return http_problem(req, &err, NULL); /* from here on the ticket's end frees w */
    if (w->key_id[0] && bus_subscribe(w->sv->bus, w->key_id, wake, w->ticket, &w->key_sub, &err) < 0)
        return http_problem(req, &err, NULL);
    return try_answer(req, w, false) ? HTTP_DONE : HTTP_PARK;
}

static enum http_result woken(struct http_req *req, enum http_why why, void *arg)
{
    struct wait *w = arg;

    unsubscribe(w);
    if (why == HTTP_WOKEN)
        return wait_on(req, w);
    try_answer(req, w, true);
    wait_free(w);
    return HTTP_DONE;
}

static enum http_result begin(struct http_req *req, const char *turn_id, int wait_s, bool dead)
{
    struct wait *w = calloc(1, sizeof *w);
    struct err err;

    if (!w) {
        err_no_memory(&err);
        return http_problem(req, &err, NULL);
    }
    w->sv = service_of(req);
    w->dead = dead;
    w->deadline = wait_s == PREFER_END ? HTTP_NO_DEADLINE : clock_mono_ms() + wait_s * 1000LL;
    snprintf(w->turn_id, sizeof w->turn_id, "%s", turn_id);
    snprintf(w->key_id, sizeof w->key_id, "%s", caller_of(req)->key_id);
    if (wait_s == 0) {
        try_answer(req, w, true);
        wait_free(w);
        return HTTP_DONE;
    }
    return wait_on(req, w);
}

enum http_result turn_wait(struct http_req *req, const char *turn_id, int wait_s)
{
    return begin(req, turn_id, wait_s, false);
}

enum http_result turn_wait_dead(struct http_req *req, const char *turn_id, int wait_s)
{
    return begin(req, turn_id, wait_s, true);
}
