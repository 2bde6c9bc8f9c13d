/* queue/queue.h: turns that wait, in memory; the truth is in the database (mission.md 4, house.md).
 *
 * Order of arrival within a channel, one turn of a channel at a time. Threads serve keys round-robin and,
 * within a key, the least recently served channel first. Thread-safe; one lock, never held over a call-out.
 */
#pragma once

#include "base/err.h"

#include <stdbool.h>

struct queue;
struct queue_limits {
    unsigned per_channel, per_key, total;
};
/* A place in the queue, taken before the turn is committed, so that a full queue refuses early. */
struct queue_place;

MUST_USE int queue_new(const struct queue_limits *limits, struct queue **ret, struct err *err);
void queue_free(struct queue *q); /* accepts NULL */

/* ERR_RATE (channel or key full), ERR_OVERLOADED (all full), ERR_DRAINING (closed). */
MUST_USE int queue_reserve(struct queue *q, const char *channel, const char *key_id, struct queue_place **ret,
                           struct err *err);
/* Without bounds, also when closed is not yet set: for turns found in the database at start. */
MUST_USE int queue_reserve_recovered(struct queue *q, const char *channel, const char *key_id,
                                     struct queue_place **ret, struct err *err);
/* How many turns of the channel were before this place when it was reserved, a running one among them. */
unsigned queue_ahead(const struct queue_place *place);
/* Gives the place back unused. Accepts NULL. */
void queue_release(struct queue *q, struct queue_place *place);
/* Puts a committed turn on its place (taken over). Cannot fail. */
void queue_push(struct queue *q, struct queue_place *place, const char *turn_id);

struct queue_item {
    char turn_id[40];
    char *channel; /* caller frees */
};
/* Waits for a turn whose channel is free and marks the channel busy. 0, or 1 when the queue is closed (turns
 * that still wait stay in the database), or 2 when nothing came within timeout_ms. */
MUST_USE int queue_pop(struct queue *q, int timeout_ms, struct queue_item *ret);
/* The channel's turn is over and its container proven dead: the next may go. */
void queue_done(struct queue *q, const char *channel);
/* Marks a channel busy without a turn, until queue_done: what an earlier run of the service left of it may
 * live. ERR_NO_MEMORY. */
MUST_USE int queue_block(struct queue *q, const char *channel, struct err *err);
/* Takes a waiting turn out. False when it does not wait (any more). */
bool queue_remove(struct queue *q, const char *turn_id);
/* Nobody gets a turn while held (engine away); popping threads wait. */
void queue_hold(struct queue *q, bool held);
void queue_close(struct queue *q);

struct queue_channel_info {
    unsigned queued;
    bool busy; /* a turn runs, or its container is not proven dead yet */
};
void queue_channel(struct queue *q, const char *channel, struct queue_channel_info *ret);
/* Seconds after which a refused caller may try again: from the observed rate, 1 to 60. */
unsigned queue_retry_after(struct queue *q);
unsigned queue_waiting(struct queue *q);
