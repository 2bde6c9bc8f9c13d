/* pool/run.h: one turn under way, as the files that carry it out see it. Used by its pool thread; the
 * broker's threads come in through run_on_call only. */
#pragma once

#include "pool/internal.h"

struct run {
    struct pool *pool;
    const struct queue_item *item;
    struct turn *turn;
    struct slot *slot;
    struct active active;
    bool reset;
    int64_t reset_seen;
    int timeout_ms;  /* of this turn */
    int64_t started; /* monotonic */
    struct box_result result;
    int64_t opened_ms; /* wall: its container runs; 0: it never did */
    int64_t ended_ms;  /* wall: box_run returned; 0: it did not */
    bool late;         /* the result came at the deadline or after it */
    struct broker_stats stats;
    enum ending ending;
    json_t *reply;
    json_t *spans;   /* array; NULL: they are switched off, or out of memory. The broker's while it is open: a
                      * guest may call before box_start returns */
    struct buf said; /* stderr that no event tells yet */
    int64_t said_at; /* the last `log` event, monotonic */
    unsigned said_events;
};

/* events.c: the events of a turn that runs, written behind its back in order. */
/* broker_turn.on_call: `model_call`. On a broker's thread. */
void run_on_call(void *arg, const struct broker_call *call);
/* box_run_limits.on_stderr: `log`, a few pieces a second and RUN_LOG_EVENTS in all; the rest is in the turn's
 * logs. */
void run_on_stderr(void *arg, const char *data, size_t len);
/* What is still pending. */
void run_flush_log(struct run *r);

/* report.c */
/* Notes a part of the turn's way, unless spans are switched off; wall time. */
void run_span(struct run *r, const char *name, int64_t started_ms, int64_t duration_ms);
/* Final state and last events in one transaction, then the waiters: from r->result, r->stats, r->ending,
 * r->reply. */
void run_report(struct run *r);
/* Ends a turn that never ran. */
void run_end_unstarted(struct run *r, enum ending why);
/* Waits a little after a write that failed. False when the service stops: then the database stays as it is
 * and recovery decides at the next start. */
bool run_may_retry(struct pool *pool);
