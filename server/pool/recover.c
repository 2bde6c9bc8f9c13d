/* What a new start makes of what the last run left in the database. */
#include "pool/internal.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>
#include <utlist.h>

struct found {
    char turn_id[TURN_ID_SIZE];
    char *channel, *key_id;
};

struct recovery {
    struct found *list;
    size_t count, room;
    unsigned interrupted;
};

static int note(struct recovery *r, const struct turn *t, struct err *err)
{
    if (r->count == r->room) {
        size_t room = r->room ? r->room * 2 : 64;
        struct found *list = realloc(r->list, room * sizeof *list);
        if (!list)
            return err_no_memory(err);
        r->list = list;
        r->room = room;
    }
    struct found *f = &r->list[r->count];
    *f = (struct found){.channel = strdup(t->channel), .key_id = strdup(t->key_id)};
    memcpy(f->turn_id, t->id, sizeof f->turn_id);
    r->count++;
    return f->channel && f->key_id ? 0 : err_no_memory(err);
}

static int note_each(const struct turn *t, void *arg, struct err *err)
{
    return note(arg, t, err);
}

static void forget(struct recovery *r)
{
    for (size_t i = 0; i < r->count; i++) {
        free(r->list[i].channel);
        free(r->list[i].key_id);
    }
    free(r->list);
    *r = (struct recovery){0};
}

/* Ends what was running, or queues it again where the caller allowed that; then lists what is queued. */
static int recover_job(struct store *st, void *arg, struct err *err)
{
    struct recovery *r = arg;

    forget(r);
    if (turns_each(st, TURN_RUNNING, note_each, r, err) < 0)
        return -1;
    size_t interrupted = r->count;
    for (size_t i = 0; i < r->count; i++) {
        bool again = false;
        if (turns_recover(st, r->list[i].turn_id, clock_wall_ms(), &again, err) < 0)
            return -1;
        interrupted -= again;
    }
    forget(r);
    r->interrupted = (unsigned)interrupted;
    if (slots_prune(st, err) < 0)
        return -1;
    return turns_each(st, TURN_QUEUED, note_each, r, err);
}

static int adopt_each(const char *slot, const char *turn_id, const char *channel, void *arg, struct err *err)
{
    return slot_adopt(arg, slot, turn_id, channel, err);
}

static int adopt_job(struct store *st, void *arg, struct err *err)
{
    return slots_each(st, adopt_each, arg, err);
}

int recover_slots(struct pool *pool, struct err *err)
{
    struct slot *s;
    unsigned count = 0;

    if (db_read(pool->deps.db, adopt_job, pool, err) < 0)
        return err_wrap(err, "recover");
    LL_COUNT(pool->graveyard, s, count);
    if (count > 0)
        log_line(LOG_INFO, NULL, "recovered: %u slots of the last run, their channels wait for their death",
                 count);
    return 0;
}

int pool_recover(const struct pool_deps *deps, struct err *err)
{
    struct recovery r = {0};
    int rc = db_write(deps->db, recover_job, &r, err);

    for (size_t i = 0; rc == 0 && i < r.count; i++) {
        struct queue_place *place = NULL;
        rc = queue_reserve_recovered(deps->queue, r.list[i].channel, r.list[i].key_id, &place, err);
        if (rc == 0)
            queue_push(deps->queue, place, r.list[i].turn_id);
    }
    if (rc == 0 && (r.count || r.interrupted))
        log_line(LOG_INFO, NULL, "recovered: %zu turns queued again, %u ended as interrupted", r.count,
                 r.interrupted);
    forget(&r);
    return rc < 0 ? err_wrap(err, "recover") : 0;
}
