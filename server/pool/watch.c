/* The watch thread: is the engine there and clean, is there room on the disks? While one of the two says no,
 * the queue is held. */
#include "pool/internal.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <utlist.h>

#define TICK_MS  1000
#define SWEEP_MS 60000
#define FIRST_MS 5000 /* after the start: by then the engine has made what the last run had asked for */

void watch_update_hold(struct pool *pool)
{
    queue_hold(pool->deps.queue, !pool->engine_ready || !pool->has_room);
}

void watch_set_engine(struct pool *pool, bool ready, const char *reason)
{
    pthread_mutex_lock(&pool->lock);
    bool changed = pool->engine_ready != ready || (!ready && strcmp(pool->engine_reason, reason) != 0);
    pool->engine_ready = ready;
    snprintf(pool->engine_reason, sizeof pool->engine_reason, "%s", reason);
    watch_update_hold(pool);
    pthread_mutex_unlock(&pool->lock);
    if (changed)
        log_line(ready ? LOG_INFO : LOG_ERROR, NULL, "engine: %s", ready ? "ready" : reason);
}

static const char *reason_of(const struct err *err)
{
    switch (err->code) {
    case ERR_ENGINE_AWAY:
        return "engine_unavailable: the engine does not answer";
    case ERR_IMAGE:
        return "image_missing: the worker image is not usable";
    case ERR_DISK_FULL:
        return "disk_full: there is no room for the folders of a turn";
    default:
        return "engine_error: the engine does not make containers as specified";
    }
}

void watch_engine_failed(struct pool *pool, const struct err *err)
{
    watch_set_engine(pool, false, reason_of(err));
}

/* Kept are containers whose slot is running, or lies in the graveyard: their removal is tried there, and may
 * hang for long. */
static bool keep_slot(const char *slot, const char *boot, void *arg)
{
    struct pool *pool = arg;
    struct active *a;
    struct slot *s;
    bool keep = false;

    (void)boot;
    pthread_mutex_lock(&pool->lock);
    DL_FOREACH(pool->active, a)
        keep = keep || strcmp(a->slot, slot) == 0;
    LL_FOREACH(pool->graveyard, s)
        keep = keep || strcmp(s->id, slot) == 0;
    pthread_mutex_unlock(&pool->lock);
    return keep;
}

/* Folders of run_root that belong to no living slot. */
static void sweep_folders(struct pool *pool)
{
    int fd = openat(pool->run_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    if (!dir) {
        if (fd >= 0)
            close(fd);
        return;
    }
    while ((entry = readdir(dir))) {
        struct err err;
        if (entry->d_name[0] == '.' || keep_slot(entry->d_name, pool->deps.boot, pool))
            continue;
        if (fs_remove_tree(pool->run_fd, entry->d_name, &err) < 0)
            log_line(LOG_WARN, entry->d_name, "leftover folder: %s", err.text);
    }
    closedir(dir);
}

/* A slot that is being buried right now may be swept as well: removal is idempotent. One container that
 * cannot be removed does not keep the others waiting: its channel, where it has one, is blocked. */
static int sweep(struct pool *pool, struct err *err)
{
    struct sandbox_swept swept;
    int rc = sandbox_sweep(pool->deps.sandbox, keep_slot, pool, &swept, err);

    if (swept.removed > 0)
        log_line(LOG_WARN, NULL, "sweep: %u leftover containers removed", swept.removed);
    if (swept.left > 0)
        log_line(LOG_ERROR, NULL, "sweep: %u leftover containers stay for now: %s", swept.left,
                 swept.why.text);
    return rc;
}

/* Full probe: the engine, the image, one container against the specification; then what earlier runs left. */
static int probe(struct pool *pool, struct err *err)
{
    CLEANUP(free_str) char *broker = NULL;
    CLEANUP(free_str) char *workspace = NULL;

    if (asprintf(&broker, "%s/probe-broker", pool->deps.run_root) < 0 ||
        asprintf(&workspace, "%s/probe-workspace", pool->deps.run_root) < 0)
        return err_no_memory(err);
    if ((mkdir(broker, 0700) < 0 && errno != EEXIST) || (mkdir(workspace, 0700) < 0 && errno != EEXIST))
        return err_errno(err, errno, "make the folders of the probe");
    int rc = sandbox_prepare(pool->deps.sandbox, broker, workspace, err);
    rmdir(broker);
    rmdir(workspace);
    if (rc < 0)
        return -1;
    sweep_folders(pool);
    return sweep(pool, err);
}

void pool_reload(struct pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->reload = true;
    pthread_mutex_unlock(&pool->lock);
}

static void watch_engine(struct pool *pool)
{
    struct err err;

    pthread_mutex_lock(&pool->lock);
    bool ready = pool->engine_ready, reload = pool->reload;
    pool->reload = false;
    pthread_mutex_unlock(&pool->lock);
    int rc = ready && !reload ? sandbox_ping(pool->deps.sandbox, &err) : probe(pool, &err);
    if (rc == 0 && reload)
        log_line(LOG_INFO, NULL, "reload: the image is resolved again");
    if (rc == 0) {
        if (!ready) /* a ping says nothing against what a turn has found out meanwhile */
            watch_set_engine(pool, true, "");
        return;
    }
    log_line(LOG_DEBUG, NULL, "engine: %s", err.text);
    if (ready)
        log_line(LOG_ERROR, NULL, "engine: %s", err.text);
    if (err.code == ERR_NO_MEMORY) { /* says nothing of the engine */
        if (reload)
            pool_reload(pool);
        return;
    }
    watch_engine_failed(pool, &err);
}

bool watch_rest(struct pool *pool)
{
    int64_t wake = clock_mono_ms() + TICK_MS;
    struct timespec until = {.tv_sec = wake / 1000, .tv_nsec = wake % 1000 * 1000000};

    pthread_mutex_lock(&pool->lock);
    while (!pool->stopping && clock_mono_ms() < wake)
        pthread_cond_timedwait(&pool->changed, &pool->lock, &until);
    bool stop = pool->stopping && !pool->active;
    if (pool->stopping && !stop) /* draining: go on watching */
        pthread_cond_timedwait(&pool->changed, &pool->lock, &until);
    pthread_mutex_unlock(&pool->lock);
    return !stop;
}

void *watch_main(void *arg)
{
    struct pool *pool = arg;
    int64_t next_sweep = clock_mono_ms() + FIRST_MS;

    do {
        struct err err;
        disk_watch(pool);
        watch_engine(pool);
        db_recheck(pool->deps.db);
        janitor_expire(pool);
        if (clock_mono_ms() >= next_sweep) {
            next_sweep = clock_mono_ms() + SWEEP_MS;
            janitor_prune(pool);
            sweep_folders(pool);
            if (sweep(pool, &err) < 0)
                log_line(LOG_WARN, NULL, "sweep: %s", err.text);
        }
    } while (watch_rest(pool));
    return NULL;
}
