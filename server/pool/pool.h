/* pool/pool.h: the threads that run turns, and the watch over engine and disk.
 *
 * A thread takes a turn from the queue, runs it in a container of its own, commits its end, and gives the
 * channel back when the container is proven dead. Where death cannot be proven (engine hung) another thread
 * goes on trying and that channel alone stays blocked. Lock order: the pool's lock, then the queue's.
 * (house.md) */
#pragma once

#include "base/err.h"
#include "broker/broker.h"
#include "config/config.h"
#include "events/bus.h"
#include "queue/queue.h"
#include "sandbox/sandbox.h"
#include "storage/db.h"

#include <stdbool.h>

struct pool;

/* All borrowed; they outlive the pool. */
struct pool_deps {
    const struct config *config;
    struct db *db;
    struct queue *queue;
    struct bus *bus;
    struct sandbox *sandbox;
    struct broker_env *broker_env;
    const char *boot;                                  /* label of this run of the service */
    const char *run_root, *workspace_root, *state_dir; /* canonical */
};

/* Before pool_new and before anything else writes: ends what was running as interrupted, puts what was queued
 * back into the queue in order of acceptance. Slots stay, for pool_new. */
MUST_USE int pool_recover(const struct pool_deps *deps, struct err *err);

/* Starts the threads. Nothing runs before the engine has been probed and cleared of what earlier runs left;
 * where one such container resists, its channel alone stays blocked. */
MUST_USE int pool_new(const struct pool_deps *deps, struct pool **ret, struct err *err);

/* Within about a second the image's tag is resolved again and the engine probed, while turns go on. A failure
 * makes it not ready. */
void pool_reload(struct pool *pool);

/* Aborts the running turn of a channel (canceled). False when none runs. */
bool pool_stop_channel(struct pool *pool, const char *channel);

/* Aborts a running turn (canceled). False when it does not run. */
bool pool_cancel_turn(struct pool *pool, const char *turn_id);
/* True while something of the turn may live: its container is not proven dead yet. */
bool pool_turn_alive(struct pool *pool, const char *turn_id);

/* True when turns can run; else `reason` says why not, in one word and a sentence. */
#define POOL_REASON_SIZE 160
bool pool_ready(struct pool *pool, char reason[POOL_REASON_SIZE]);
/* False while a disk is below its floor (mission.md 3): new turns are refused. */
bool pool_has_room(struct pool *pool);
/* The channel's last container is not proven dead yet. */
bool pool_blocked(struct pool *pool, const char *channel);

/* After queue_close: waits for running turns until the deadline (clock_mono_ms), then aborts them
 * (interrupted) and waits for their ends. *hurry, when it becomes true meanwhile, is an early deadline. */
void pool_drain(struct pool *pool, int64_t deadline, const _Atomic bool *hurry);
/* After pool_drain. Joins the threads. Accepts NULL. */
void pool_free(struct pool *pool);
