/* pool/internal.h: what the files of this room share. */
#pragma once

#include "base/ending.h"
#include "base/json.h"
#include "pool/pool.h"
#include "storage/turns.h"

#include <pthread.h>

#define SLOT_SIZE 33 /* 32 hex digits */

/* The folder, socket and container of one turn; used once. */
struct slot {
    char id[SLOT_SIZE]; /* 128 random bits */
    char *broker_dir;   /* run_root/<id>; NULL until made */
    struct broker *broker;
    struct box *box;
    char turn_id[TURN_ID_SIZE];
    struct slot *prev_live, *next_live; /* in pool.live, from the beginning until it is buried */
    struct slot *next;                  /* in the graveyard */
    char *channel;                      /* while it lies there: the channel that waits for its death */
};

/* A running turn that others may abort. */
struct active {
    char turn_id[TURN_ID_SIZE];
    const char *channel;
    char slot[SLOT_SIZE];
    int abort_fd;       /* eventfd */
    enum ending why;    /* END_NONE: nobody asked; under the pool's lock */
    bool settled;       /* its ending is decided, an abort comes too late; under the pool's lock */
    int64_t disk_bytes; /* size of the workspace when the disk ran low, -1 unknown; watch thread only */
    struct active *prev, *next;
};

struct pool {
    struct pool_deps deps;
    int run_fd, workspace_fd; /* the roots */
    pthread_t *threads;
    unsigned thread_count;
    pthread_t watch, graves;
    bool watch_runs, graves_run;
    int64_t began; /* monotonic */

    pthread_mutex_t lock;
    pthread_cond_t changed; /* active, graveyard, stopping; monotonic */
    /* Under lock: */
    struct active *active;
    struct slot *graveyard, *live;
    bool stopping, engine_ready, has_room;
    bool reload; /* the watch's next round probes a ready engine too */
    char engine_reason[POOL_REASON_SIZE];
};

/* turn_run.c: one turn, from the queue to the proven death of its container. */
void turn_run(struct pool *pool, const struct queue_item *item);

/* slot.c */
/* A slot with a fresh id. From now on its turn counts as alive, until slot_dispose has proven its death. */
MUST_USE int slot_new(struct pool *pool, const struct queue_item *item, struct slot **ret, struct err *err);
/* One that an earlier run of the service left: into the graveyard, and its channel waits. Before any thread.
 */
MUST_USE int slot_adopt(struct pool *pool, const char *id, const char *turn_id, const char *channel,
                        struct err *err);
/* Makes the folder run_root/<id> and the broker in it. */
MUST_USE int slot_open(struct pool *pool, struct slot *slot, struct err *err);
/* The channel's folder below workspace_root (the SHA-256 of its key), made when absent; a canonical path,
 * caller frees. ERR_CONFLICT when it is not a plain folder of the service. */
MUST_USE int slot_workspace(struct pool *pool, const char *channel, char **ret, struct err *err);
/* Removes the container, proves its death, then the folder and the slot's row. 0; -1: not proven, call again.
 */
MUST_USE int slot_bury(struct pool *pool, struct slot *slot, struct err *err);
/* slot_bury; where it fails the slot goes to the graveyard, and the channel waits. Takes `slot` over. */
void slot_dispose(struct pool *pool, struct slot *slot);
/* Tries those in the graveyard again; what is proven dead frees its channel. A thread of its own, since each
 * try may take as long as the engine is let. */
void *graveyard_main(void *arg);

/* recover.c: slot_adopt for every row that the last run left. After pool_recover, before any thread. */
MUST_USE int recover_slots(struct pool *pool, struct err *err);

/* ending_of.c: what a box's result and the broker's account of the turn say about its end. Pure. `late`: the
 * result came at the deadline or after it. On END_NONE *reply is the caller's. */
enum ending ending_of(const struct box_result *result, const struct broker_stats *stats, enum ending asked,
                      bool late, json_t **reply);

/* watch.c */
void *watch_main(void *arg);
void watch_set_engine(struct pool *pool, bool ready, const char *reason);
/* Not ready for this reason: the queue is held until the watch's probe succeeds. */
void watch_engine_failed(struct pool *pool, const struct err *err);
void watch_update_hold(struct pool *pool); /* under the pool's lock */
/* Until the next look, or the stop. False: the service stops, and no turn runs any more. */
bool watch_rest(struct pool *pool);

/* janitor.c */
void janitor_expire(struct pool *pool);
void janitor_prune(struct pool *pool);

/* disk.c */
void disk_watch(struct pool *pool);

/* pool.c */
/* False while the service stops: the turn stays queued for the next start. */
bool active_add(struct pool *pool, struct active *a);
/* Why it was aborted, if it was; from now on nobody can. */
enum ending active_settle(struct pool *pool, struct active *a);
/* Takes it off the list, when its end is committed: a stop answers the waiting clients after that. */
void active_remove(struct pool *pool, struct active *a);
/* Aborts it; the first reason stays. Under the pool's lock. */
void active_abort(struct active *a, enum ending why);
