#include "pool/internal.h"

#include "base/fs.h"
#include "base/id.h"
#include "base/log.h"
#include "base/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <utlist.h>

static int name_folder(struct pool *pool, struct slot *slot, struct err *err)
{
    if (asprintf(&slot->broker_dir, "%s/%s", pool->deps.run_root, slot->id) >= 0)
        return 0;
    slot->broker_dir = NULL;
    return err_no_memory(err);
}

int slot_open(struct pool *pool, struct slot *slot, struct err *err)
{
    if (name_folder(pool, slot, err) < 0)
        return -1;
    if (mkdirat(pool->run_fd, slot->id, 0700) < 0)
        return err_errno(err, errno, "make %s", slot->broker_dir);
    return broker_new(pool->deps.broker_env, slot->broker_dir, &slot->broker, err);
}

int slot_workspace(struct pool *pool, const char *channel, char **ret, struct err *err)
{
    char name[SHA256_HEX_SIZE];
    struct stat st;

    secret_sha256_hex(channel, strlen(channel), name);
    if (mkdirat(pool->workspace_fd, name, 0700) < 0 && errno != EEXIST)
        return err_errno(err, errno, "make the workspace %s", name);
    if (fstatat(pool->workspace_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_errno(err, errno, "workspace %s", name);
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid())
        return err_set(err, ERR_CONFLICT, "the workspace %s is not a plain folder of the service", name);
    /* A guest may have taken the mode away from its own folder; only the service can replace the name itself.
     */
    if ((st.st_mode & 07777) != 0700 && fchmodat(pool->workspace_fd, name, 0700, 0) < 0)
        return err_errno(err, errno, "mode of the workspace %s", name);
    if (asprintf(ret, "%s/%s", pool->deps.workspace_root, name) < 0) {
        *ret = NULL;
        return err_no_memory(err);
    }
    return 0;
}

struct forget {
    char slot[SLOT_SIZE];
};

static int forget_job(struct store *st, void *arg, struct err *err)
{
    return slots_remove(st, ((struct forget *)arg)->slot, err);
}

static void forget_done(void *arg, const struct err *result)
{
    struct forget *f = arg;

    if (result->code != ERR_NONE)
        log_line(LOG_WARN, f->slot, "the slot's row stays until the next start: %s", result->text);
    free(f);
}

int slot_bury(struct pool *pool, struct slot *slot, struct err *err)
{
    if (slot->box) {
        if (box_remove(slot->box, err) < 0)
            return -1;
        box_free(STEAL(slot->box));
    }
    broker_free(STEAL(slot->broker));
    if (slot->broker_dir && fs_remove_tree(pool->run_fd, slot->id, err) < 0)
        return -1;
    struct forget *f = calloc(1, sizeof *f);
    if (!f)
        return err_no_memory(err);
    memcpy(f->slot, slot->id, sizeof f->slot);
    if (db_submit(pool->deps.db, forget_job, forget_done, f, err) < 0) {
        free(f);
        return -1;
    }
    return 0;
}

static struct slot *slot_live(struct pool *pool, const char *turn_id, const char *channel)
{
    struct slot *slot = calloc(1, sizeof *slot);

    if (!slot || !(slot->channel = strdup(channel))) {
        free(slot);
        return NULL;
    }
    snprintf(slot->turn_id, sizeof slot->turn_id, "%s", turn_id);
    pthread_mutex_lock(&pool->lock);
    DL_APPEND2(pool->live, slot, prev_live, next_live);
    pthread_mutex_unlock(&pool->lock);
    return slot;
}

int slot_new(struct pool *pool, const struct queue_item *item, struct slot **ret, struct err *err)
{
    struct slot *slot = slot_live(pool, item->turn_id, item->channel);

    if (!slot)
        return err_no_memory(err);
    id_hex(slot->id, 16);
    *ret = slot;
    return 0;
}

static void to_graveyard(struct pool *pool, struct slot *slot)
{
    pthread_mutex_lock(&pool->lock);
    LL_PREPEND(pool->graveyard, slot);
    pthread_mutex_unlock(&pool->lock);
}

int slot_adopt(struct pool *pool, const char *id, const char *turn_id, const char *channel, struct err *err)
{
    struct slot *slot = slot_live(pool, turn_id, channel);

    if (!slot)
        return err_no_memory(err);
    snprintf(slot->id, sizeof slot->id, "%s", id);
    to_graveyard(pool, slot);
    if (box_adopt(pool->deps.sandbox, id, &slot->box, err) < 0 || name_folder(pool, slot, err) < 0)
        return err_wrap(err, "slot %s", id);
    return queue_block(pool->deps.queue, channel, err);
}

/* Nothing of it is left: who waits for the turn's death hears it. */
static void slot_free(struct pool *pool, struct slot *slot)
{
    pthread_mutex_lock(&pool->lock);
    DL_DELETE2(pool->live, slot, prev_live, next_live);
    pthread_mutex_unlock(&pool->lock);
    bus_publish(pool->deps.bus, slot->turn_id);
    free(slot->broker_dir);
    free(slot->channel);
    free(slot);
}

void slot_dispose(struct pool *pool, struct slot *slot)
{
    struct err err;

    if (slot_bury(pool, slot, &err) == 0) {
        queue_done(pool->deps.queue, slot->channel);
        slot_free(pool, slot);
        return;
    }
    log_line(LOG_ERROR, slot->id, "death is not proven, the channel waits: %s", err.text);
    to_graveyard(pool, slot);
}

static void tend(struct pool *pool)
{
    struct slot *todo, *s, *next;

    pthread_mutex_lock(&pool->lock);
    todo = pool->graveyard;
    pthread_mutex_unlock(&pool->lock);
    /* Only this thread takes slots out, others put theirs in front: what follows `todo` is ours to walk. */
    LL_FOREACH_SAFE(todo, s, next) {
        struct err err;
        pthread_mutex_lock(&pool->lock);
        bool leave =
            pool->stopping && !pool->active; /* each try may take long, and the next start finds them */
        pthread_mutex_unlock(&pool->lock);
        if (leave)
            return;
        if (slot_bury(pool, s, &err) < 0)
            continue;
        pthread_mutex_lock(&pool->lock);
        LL_DELETE(pool->graveyard, s);
        pthread_mutex_unlock(&pool->lock);
        bool waits = pool_blocked(pool, s->channel); /* an earlier run may have left more than one */
        log_line(LOG_INFO, s->id, waits ? "death is proven" : "death is proven, the channel goes on");
        if (!waits)
            queue_done(pool->deps.queue, s->channel);
        slot_free(pool, s);
    }
}

void *graveyard_main(void *arg)
{
    struct pool *pool = arg;

    do
        tend(pool);
    while (watch_rest(pool));
    return NULL;
}
