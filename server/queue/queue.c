#include "queue/lines.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

int queue_new(const struct queue_limits *limits, struct queue **ret, struct err *err)
{
    struct queue *q = calloc(1, sizeof *q);
    pthread_condattr_t attr;

    if (!q)
        return err_no_memory(err);
    q->limits = *limits;
    pthread_mutex_init(&q->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&q->wake, &attr);
    pthread_condattr_destroy(&attr);
    *ret = q;
    return 0;
}

static int check_bounds(const struct queue *q, const struct channel_line *c, const struct key_line *k,
                        struct err *err)
{
    if (q->closed)
        return err_set(err, ERR_DRAINING, "the service is stopping and takes no more turns");
    if (q->reserved >= q->limits.total)
        return err_set(err, ERR_OVERLOADED, "%u turns are waiting in all", q->limits.total);
    if (k->reserved >= q->limits.per_key)
        return err_set(err, ERR_RATE, "%u turns of this key are waiting", q->limits.per_key);
    if (c->reserved >= q->limits.per_channel)
        return err_set(err, ERR_RATE, "%u turns of this channel are waiting", q->limits.per_channel);
    return 0;
}

static int reserve(struct queue *q, const char *channel, const char *key_id, bool bounded,
                   struct queue_place **ret, struct err *err)
{
    struct queue_place *p = calloc(1, sizeof *p);

    if (!p)
        return err_no_memory(err);
    pthread_mutex_lock(&q->lock);
    struct channel_line *c = line_get(q, channel);
    struct key_line *k = line_get_key(q, key_id);
    int rc = c && k ? 0 : err_no_memory(err);
    if (rc == 0 && bounded)
        rc = check_bounds(q, c, k, err);
    if (rc == 0) {
        *p = (struct queue_place){.channel = c, .key = k, .ahead = c->reserved + (c->busy ? 1 : 0)};
        c->reserved++;
        k->reserved++;
        q->reserved++;
        *ret = STEAL(p);
    } else {
        if (k)
            line_settle_key(q, k);
        if (c)
            line_settle(q, c);
    }
    pthread_mutex_unlock(&q->lock);
    free(p);
    return rc;
}

int queue_reserve(struct queue *q, const char *channel, const char *key_id, struct queue_place **ret,
                  struct err *err)
{
    return reserve(q, channel, key_id, true, ret, err);
}

int queue_reserve_recovered(struct queue *q, const char *channel, const char *key_id,
                            struct queue_place **ret, struct err *err)
{
    return reserve(q, channel, key_id, false, ret, err);
}

unsigned queue_ahead(const struct queue_place *place)
{
    return place->ahead;
}

void queue_release(struct queue *q, struct queue_place *place)
{
    if (!place)
        return;
    pthread_mutex_lock(&q->lock);
    line_free_place(q, place);
    pthread_mutex_unlock(&q->lock);
}

void queue_push(struct queue *q, struct queue_place *place, const char *turn_id)
{
    snprintf(place->turn_id, sizeof place->turn_id, "%s", turn_id);
    pthread_mutex_lock(&q->lock);
    HASH_ADD_STR(q->by_id, turn_id, place);
    q->unlisted += place->hh.tbl == NULL;
    DL_APPEND(place->channel->waiting, place);
    place->channel->queued++;
    q->queued++;
    line_update_ready(q, place->channel);
    pthread_mutex_unlock(&q->lock);
}

/* Takes a pushed place out of its line. */
static void unlink_place(struct queue *q, struct queue_place *p)
{
    if (p->hh.tbl)
        HASH_DEL(q->by_id, p);
    else
        q->unlisted--;
    DL_DELETE(p->channel->waiting, p);
    p->channel->queued--;
    q->queued--;
}

/* The next key in turn, and its channel that was served longest ago. */
static struct queue_place *choose(struct queue *q)
{
    struct key_line *k = q->rotation;
    struct channel_line *c, *best = NULL;

    if (!k || q->held)
        return NULL;
    DL_FOREACH2(k->ready, c, rnext) {
        if (!best || c->last_served < best->last_served)
            best = c;
    }
    if (!best)
        return NULL; /* a key in the rotation has something ready */
    DL_DELETE2(q->rotation, k, kprev, knext);
    DL_APPEND2(q->rotation, k, kprev, knext);
    return best->waiting;
}

static void deadline_in(int timeout_ms, struct timespec *ts)
{
    int64_t us = clock_mono_us() + (int64_t)timeout_ms * 1000;

    ts->tv_sec = us / 1000000;
    ts->tv_nsec = us % 1000000 * 1000;
}

int queue_pop(struct queue *q, int timeout_ms, struct queue_item *ret)
{
    struct queue_place *p = NULL;
    struct timespec until;
    int rc = 0;

    deadline_in(timeout_ms, &until);
    pthread_mutex_lock(&q->lock);
    while (!q->closed && !(p = choose(q)) && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&q->wake, &q->lock, &until);
    if (q->closed || !p) {
        rc = q->closed ? 1 : 2;
        pthread_mutex_unlock(&q->lock);
        return rc;
    }
    struct channel_line *c = p->channel;
    char *name = strdup(c->name);
    if (name) {
        memcpy(ret->turn_id, p->turn_id, sizeof ret->turn_id);
        ret->channel = name;
        unlink_place(q, p);
        c->busy = true;
        c->last_served = ++q->tick;
        line_update_ready(q, c);
        line_free_place(q, p);
    }
    pthread_mutex_unlock(&q->lock);
    return name ? 0 : 2; /* without memory the turn stays where it is */
}

void queue_done(struct queue *q, const char *channel)
{
    pthread_mutex_lock(&q->lock);
    struct channel_line *c = line_find(q, channel);
    q->done_ms[q->done_count++ % ARRAY_LEN(q->done_ms)] = clock_mono_ms();
    if (c && c->busy) {
        c->busy = false;
        line_update_ready(q, c);
        line_settle(q, c);
    }
    pthread_mutex_unlock(&q->lock);
}

int queue_block(struct queue *q, const char *channel, struct err *err)
{
    pthread_mutex_lock(&q->lock);
    struct channel_line *c = line_get(q, channel);
    if (c) {
        c->busy = true;
        line_update_ready(q, c);
    }
    pthread_mutex_unlock(&q->lock);
    return c ? 0 : err_no_memory(err);
}

static struct queue_place *find_place(struct queue *q, const char *turn_id)
{
    struct queue_place *p = NULL;

    HASH_FIND_STR(q->by_id, turn_id, p);
    if (p || q->unlisted == 0)
        return p;
    for (struct channel_line *c = q->channels; c; c = c->hh.next)
        DL_FOREACH(c->waiting, p)
            if (strcmp(p->turn_id, turn_id) == 0)
                return p;
    return NULL;
}

bool queue_remove(struct queue *q, const char *turn_id)
{
    pthread_mutex_lock(&q->lock);
    struct queue_place *p = find_place(q, turn_id);
    if (p) {
        struct channel_line *c = p->channel;
        unlink_place(q, p);
        line_update_ready(q, c);
        line_free_place(q, p);
    }
    pthread_mutex_unlock(&q->lock);
    return p != NULL;
}

void queue_hold(struct queue *q, bool held)
{
    pthread_mutex_lock(&q->lock);
    q->held = held;
    pthread_cond_broadcast(&q->wake);
    pthread_mutex_unlock(&q->lock);
}

void queue_close(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    pthread_cond_broadcast(&q->wake);
    pthread_mutex_unlock(&q->lock);
}

void queue_channel(struct queue *q, const char *channel, struct queue_channel_info *ret)
{
    pthread_mutex_lock(&q->lock);
    struct channel_line *c = line_find(q, channel);
    ret->queued = c ? c->queued : 0;
    ret->busy = c && c->busy;
    pthread_mutex_unlock(&q->lock);
}

unsigned queue_retry_after(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    unsigned n = q->done_count < ARRAY_LEN(q->done_ms) ? q->done_count : (unsigned)ARRAY_LEN(q->done_ms);
    int64_t wait = 60;
    if (n > 1) {
        int64_t oldest = q->done_ms[(q->done_count - n) % ARRAY_LEN(q->done_ms)];
        int64_t span = clock_mono_ms() - oldest;
        /* time for one tenth of those that wait, at the observed rate */
        wait = span * (int64_t)(q->queued / 10 + 1) / (int64_t)n / 1000;
    }
    pthread_mutex_unlock(&q->lock);
    return wait < 1 ? 1 : wait > 60 ? 60 : (unsigned)wait;
}

unsigned queue_waiting(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    unsigned n = q->queued;
    pthread_mutex_unlock(&q->lock);
    return n;
}

void queue_free(struct queue *q)
{
    struct queue_place *p, *next_place;
    struct channel_line *c, *next_channel;

    if (!q)
        return;
    HASH_ITER(hh, q->channels, c, next_channel) {
        c->reserved++; /* it stays until its places are gone */
        DL_FOREACH_SAFE(c->waiting, p, next_place) {
            unlink_place(q, p);
            line_update_ready(q, c);
            line_free_place(q, p);
        }
        line_drop(q, c);
    }
    pthread_cond_destroy(&q->wake);
    pthread_mutex_destroy(&q->lock);
    free(q);
}
