/* What time does to turns: those that waited too long end, what finished long ago goes. On the watch thread.
 */
#include "pool/internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "storage/retention.h"

#include <string.h>

#define EXPIRE_MOST  200 /* turns that end in one look */
#define PRUNE_MOST   500 /* rows in one job */
#define PRUNE_ROUNDS 20  /* jobs in one look, so that a large backlog does not hold the watch up */
#define DAY_MS       86400000LL
#define NAMES_MS     DAY_MS /* an idempotency key lives at least so long (http.md) */

struct expiry {
    int64_t before_ms;
    char ids[EXPIRE_MOST][TURN_ID_SIZE];
    unsigned count;
};

/* In order of acceptance: the first that is young enough ends the walk. */
static int expire_one(const struct turn *t, void *arg, struct err *err)
{
    struct expiry *e = arg;

    (void)err;
    if (t->created_ms >= e->before_ms || e->count == EXPIRE_MOST)
        return 1;
    memcpy(e->ids[e->count++], t->id, TURN_ID_SIZE);
    return 0;
}

static int find_job(struct store *st, void *arg, struct err *err)
{
    struct expiry *e = arg;

    e->count = 0;
    return turns_each(st, TURN_QUEUED, expire_one, e, err);
}

/* One that has started meanwhile is left alone. */
static int end_job(struct store *st, void *arg, struct err *err)
{
    struct expiry *e = arg;

    for (unsigned i = 0; i < e->count; i++) {
        CLEANUP(turn_free_p) struct turn *t = NULL;
        struct turn_end end = {
            .id = e->ids[i], .ending = END_TIMEOUT, .reset_seen = -1, .now_ms = clock_wall_ms()};
        if (turns_get(st, e->ids[i], &t, err) < 0)
            return -1;
        if (t->status == TURN_QUEUED && turns_end(st, &end, err) < 0)
            return -1;
    }
    return 0;
}

/* What was accepted before this start, and could not run while the service was down, waits anew. */
void janitor_expire(struct pool *pool)
{
    struct err err;

    if (clock_mono_ms() - pool->began < pool->deps.config->queue.wait_ms)
        return;
    struct expiry *e = calloc(1, sizeof *e);

    if (!e)
        return; /* the next look does it */
    e->before_ms = clock_wall_ms() - pool->deps.config->queue.wait_ms;
    int rc = db_read(pool->deps.db, find_job, e, &err);
    if (rc == 0 && e->count > 0)
        rc = db_write(pool->deps.db, end_job, e, &err);
    if (rc < 0)
        log_line(LOG_WARN, NULL, "turns that waited too long: %s", err.text);
    for (unsigned i = 0; rc == 0 && i < e->count; i++) {
        queue_remove(pool->deps.queue, e->ids[i]);
        bus_publish(pool->deps.bus, e->ids[i]);
    }
    free(e);
}

struct pruning {
    struct retention rules;
    int removed;
};

static int prune_job(struct store *st, void *arg, struct err *err)
{
    struct pruning *p = arg;

    return retention_prune(st, &p->rules, &p->removed, err);
}

void janitor_prune(struct pool *pool)
{
    const struct config *c = pool->deps.config;
    int64_t now = clock_wall_ms();
    struct pruning p = {.rules = {.turns_before_ms = now - c->retention.turns_days * DAY_MS,
                                  .events_before_ms = now - c->retention.events_days * DAY_MS,
                                  .turns_keep = c->retention.turns_max,
                                  .names_before_ms = now - NAMES_MS,
                                  .most = PRUNE_MOST}};
    struct err err;

    for (int round = 0; round < PRUNE_ROUNDS; round++) {
        if (db_write(pool->deps.db, prune_job, &p, &err) < 0) {
            log_line(LOG_WARN, NULL, "retention: %s", err.text);
            return;
        }
        if (p.removed > 0)
            log_line(LOG_INFO, NULL, "retention: %d turns or histories removed", p.removed);
        if (p.removed < PRUNE_MOST)
            return;
    }
}
