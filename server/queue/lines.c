#include "queue/lines.h"

#include <stdio.h>
#include <string.h>

#define IDLE_CHANNELS 20000 /* channels whose last service is remembered without a turn */

/* A channel is ready when it is free and a turn waits; it stands in the list of that turn's key. */
void line_update_ready(struct queue *q, struct channel_line *c)
{
    struct key_line *want = c->busy || !c->waiting ? NULL : c->waiting->key;
    struct key_line *have = c->ready_for;

    if (want == have)
        return;
    if (have) {
        DL_DELETE2(have->ready, c, rprev, rnext);
        if (!have->ready) {
            DL_DELETE2(q->rotation, have, kprev, knext);
            have->rotating = false;
        }
    }
    c->ready_for = want;
    if (want) {
        DL_APPEND2(want->ready, c, rprev, rnext);
        if (!want->rotating) {
            DL_APPEND2(q->rotation, want, kprev, knext);
            want->rotating = true;
        }
        pthread_cond_signal(&q->wake);
    }
}

void line_drop(struct queue *q, struct channel_line *c)
{
    HASH_DEL(q->channels, c); // NOLINT(clang-analyzer-core.NullDereference): it is in the table
    free(c->name);
    free(c);
}

/* A channel without turns is kept for its last_served, so that leaving the queue wins nothing; when too many
 * are kept the ones that joined first go. */
void line_settle(struct queue *q, struct channel_line *c)
{
    struct channel_line *old, *next;

    if (c->reserved > 0 || c->busy)
        return;
    if (c->last_served == 0) {
        line_drop(q, c);
        return;
    }
    if (HASH_COUNT(q->channels) <= IDLE_CHANNELS)
        return;
    unsigned dropped = 0;
    HASH_ITER(hh, q->channels, old, next) {
        if (old->reserved == 0 && !old->busy) {
            line_drop(q, old);
            if (++dropped == IDLE_CHANNELS / 10)
                return;
        }
    }
}

void line_settle_key(struct queue *q, struct key_line *k)
{
    if (k->reserved > 0)
        return;
    HASH_DEL(q->keys, k);
    free(k);
}

void line_free_place(struct queue *q, struct queue_place *p)
{
    struct channel_line *c = p->channel;
    struct key_line *k = p->key;

    c->reserved--;
    q->reserved--;
    k->reserved--;
    line_settle_key(q, k);
    free(p);
    line_settle(q, c);
}

struct channel_line *line_find(struct queue *q, const char *name)
{
    struct channel_line *c = NULL;

    HASH_FIND_STR(q->channels, name, c);
    return c;
}

struct channel_line *line_get(struct queue *q, const char *name)
{
    struct channel_line *c = line_find(q, name);

    if (c || !(c = calloc(1, sizeof *c)))
        return c;
    if (!(c->name = strdup(name))) {
        free(c);
        return NULL;
    }
    HASH_ADD_KEYPTR(hh, q->channels, c->name, strlen(c->name), c);
    if (c->hh.tbl)
        return c;
    free(c->name);
    free(c);
    return NULL;
}

struct key_line *line_get_key(struct queue *q, const char *id)
{
    struct key_line *k = NULL;

    HASH_FIND_STR(q->keys, id, k);
    if (k || !(k = calloc(1, sizeof *k)))
        return k;
    snprintf(k->id, sizeof k->id, "%s", id);
    HASH_ADD_STR(q->keys, id, k);
    if (k->hh.tbl)
        return k;
    free(k);
    return NULL;
}
