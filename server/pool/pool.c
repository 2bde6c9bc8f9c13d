#include "pool/pool.h"

#include "base/clock.h"
#include "base/log.h"
#include "pool/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <utlist.h>

#define POP_MS 60000

static void *thread_main(void *arg)
{
    struct pool *pool = arg;

    for (;;) {
        struct queue_item item;
        int rc = queue_pop(pool->deps.queue, POP_MS, &item);
        if (rc == 1)
            return NULL;
        if (rc == 2)
            continue;
        turn_run(pool, &item);
        free(item.channel);
    }
}

static int open_root(const char *path, int *fd, struct err *err)
{
    *fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return *fd < 0 ? err_errno(err, errno, "open %s", path) : 0;
}

static int start_threads(struct pool *pool, struct err *err)
{
    unsigned want = pool->deps.config->pool_size;

    pool->threads = calloc(want, sizeof *pool->threads);
    if (!pool->threads)
        return err_no_memory(err);
    if (pthread_create(&pool->watch, NULL, watch_main, pool) != 0)
        return err_set(err, ERR_SYSTEM, "no thread for the watch");
    pool->watch_runs = true;
    if (pthread_create(&pool->graves, NULL, graveyard_main, pool) != 0)
        return err_set(err, ERR_SYSTEM, "no thread for the graveyard");
    pool->graves_run = true;
    for (; pool->thread_count < want; pool->thread_count++)
        if (pthread_create(&pool->threads[pool->thread_count], NULL, thread_main, pool) != 0)
            return err_set(err, ERR_SYSTEM, "no thread for the pool");
    return 0;
}

int pool_new(const struct pool_deps *deps, struct pool **ret, struct err *err)
{
    struct pool *pool = calloc(1, sizeof *pool);
    pthread_condattr_t attr;

    if (!pool)
        return err_no_memory(err);
    pool->deps = *deps;
    pool->run_fd = pool->workspace_fd = -1;
    pool->has_room = true;
    pool->began = clock_mono_ms();
    snprintf(pool->engine_reason, sizeof pool->engine_reason, "starting: the engine has not been probed yet");
    pthread_mutex_init(&pool->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&pool->changed, &attr);
    pthread_condattr_destroy(&attr);
    queue_hold(deps->queue, true);
    if (open_root(deps->run_root, &pool->run_fd, err) < 0 ||
        open_root(deps->workspace_root, &pool->workspace_fd, err) < 0 || recover_slots(pool, err) < 0 ||
        start_threads(pool, err) < 0) {
        queue_close(deps->queue);
        pool_free(pool);
        return -1;
    }
    *ret = pool;
    return 0;
}

bool active_add(struct pool *pool, struct active *a)
{
    pthread_mutex_lock(&pool->lock);
    bool open = !pool->stopping;
    if (open)
        DL_APPEND(pool->active, a);
    pthread_mutex_unlock(&pool->lock);
    return open;
}

enum ending active_settle(struct pool *pool, struct active *a)
{
    pthread_mutex_lock(&pool->lock);
    a->settled = true;
    enum ending why = a->why;
    pthread_mutex_unlock(&pool->lock);
    return why;
}

void active_remove(struct pool *pool, struct active *a)
{
    pthread_mutex_lock(&pool->lock);
    DL_DELETE(pool->active, a);
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
}

void active_abort(struct active *a, enum ending why)
{
    if (a->settled || a->why != END_NONE)
        return;
    a->why = why;
    eventfd_write(a->abort_fd, 1);
}

/* Aborts the running turns of a channel, or with that id. False: none runs. */
static bool abort_running(struct pool *pool, bool by_channel, const char *name)
{
    struct active *a;
    bool found = false;

    pthread_mutex_lock(&pool->lock);
    DL_FOREACH(pool->active, a) {
        if (a->settled || strcmp(by_channel ? a->channel : a->turn_id, name) != 0)
            continue;
        active_abort(a, END_CANCELED);
        found = true;
    }
    pthread_mutex_unlock(&pool->lock);
    return found;
}

bool pool_stop_channel(struct pool *pool, const char *channel)
{
    return abort_running(pool, true, channel);
}

bool pool_cancel_turn(struct pool *pool, const char *turn_id)
{
    return abort_running(pool, false, turn_id);
}

bool pool_turn_alive(struct pool *pool, const char *turn_id)
{
    struct slot *s;
    bool alive = false;

    pthread_mutex_lock(&pool->lock);
    DL_FOREACH2(pool->live, s, next_live) {
        alive = alive || strcmp(s->turn_id, turn_id) == 0;
    }
    pthread_mutex_unlock(&pool->lock);
    return alive;
}

bool pool_ready(struct pool *pool, char reason[POOL_REASON_SIZE])
{
    pthread_mutex_lock(&pool->lock);
    bool ready = false;
    if (pool->stopping)
        snprintf(reason, POOL_REASON_SIZE, "draining: the service is stopping");
    else if (!pool->engine_ready)
        snprintf(reason, POOL_REASON_SIZE, "%s", pool->engine_reason);
    else if (!pool->has_room)
        snprintf(reason, POOL_REASON_SIZE, "disk_full: the disk is below its floor");
    else
        ready = true;
    pthread_mutex_unlock(&pool->lock);
    if (ready && !db_healthy(pool->deps.db)) {
        snprintf(reason, POOL_REASON_SIZE, "database: the last write failed");
        ready = false;
    }
    return ready;
}

bool pool_has_room(struct pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    bool room = pool->has_room;
    pthread_mutex_unlock(&pool->lock);
    return room;
}

bool pool_blocked(struct pool *pool, const char *channel)
{
    struct slot *s;
    bool blocked = false;

    pthread_mutex_lock(&pool->lock);
    LL_FOREACH(pool->graveyard, s)
        blocked = blocked || strcmp(s->channel, channel) == 0;
    pthread_mutex_unlock(&pool->lock);
    return blocked;
}

void pool_drain(struct pool *pool, int64_t deadline, const _Atomic bool *hurry)
{
    struct active *a;
    bool told = false;

    pthread_mutex_lock(&pool->lock);
    pool->stopping = true;
    pthread_cond_broadcast(&pool->changed);
    while (pool->active) {
        struct timespec until;
        int64_t now = clock_mono_ms(), next = now + 100;
        if (!told && (now >= deadline || *hurry)) {
            told = true;
            DL_FOREACH(pool->active, a)
                active_abort(a, END_SERVER_RESTARTED);
        }
        until = (struct timespec){.tv_sec = next / 1000, .tv_nsec = next % 1000 * 1000000};
        pthread_cond_timedwait(&pool->changed, &pool->lock, &until);
    }
    pthread_mutex_unlock(&pool->lock);
}

void pool_free(struct pool *pool)
{
    struct slot *s, *next;

    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->stopping = true;
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
    while (pool->thread_count > 0)
        pthread_join(pool->threads[--pool->thread_count], NULL);
    if (pool->watch_runs)
        pthread_join(pool->watch, NULL);
    if (pool->graves_run)
        pthread_join(pool->graves, NULL);
    /* What could not be proven dead is found by its label at the next start. */
    LL_FOREACH_SAFE(pool->graveyard, s, next) {
        log_line(LOG_WARN, s->id, "the container of channel slot is left for the next start");
        broker_free(s->broker);
        box_free(s->box);
        free(s->broker_dir);
        free(s->channel);
        free(s);
    }
    close_fd(&pool->run_fd);
    close_fd(&pool->workspace_fd);
    free(pool->threads);
    pthread_cond_destroy(&pool->changed);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}
