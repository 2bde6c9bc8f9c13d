/* storage/turns.h: turns and their events. All run inside a db job. */
#pragma once

#include "base/ending.h"
#include "base/json.h"
#include "storage/db.h"

#include <stdbool.h>

#define TURN_ID_SIZE    40 /* "turn_" + 32 hex digits */
#define TURN_TRACE_SIZE 56 /* "00-<32>-<16>-<2>" */

#define TURN_STATUS_TABLE(X)                                                                                 \
    X(TURN_QUEUED, "queued")                                                                                 \
    X(TURN_RUNNING, "running")                                                                               \
    X(TURN_SUCCEEDED, "succeeded")                                                                           \
    X(TURN_FAILED, "failed")                                                                                 \
    X(TURN_TIMED_OUT, "timed_out")                                                                           \
    X(TURN_CANCELED, "canceled")                                                                             \
    X(TURN_INTERRUPTED, "interrupted")                                                                       \
    X(TURN_IGNORED, "ignored")

enum turn_status {
#define X(code, name) code,
    TURN_STATUS_TABLE(X)
#undef X
};
const char *turn_status_name(enum turn_status s);
static inline bool turn_ended(enum turn_status s)
{
    return s != TURN_QUEUED && s != TURN_RUNNING;
}
/* The status that goes with an ending: timeout → timed_out, canceled and channel_disabled → canceled,
 * server_restarted → interrupted, none → succeeded, any other → failed. */
enum turn_status turn_status_of(enum ending e);

struct turn {
    char id[TURN_ID_SIZE];
    int64_t seq; /* order of acceptance */
    char *channel;
    char *key_id; /* the owner; "" for the local administrator */
    enum turn_status status;
    json_t *request;    /* {speaker, text, reset?, metadata?, …} as accepted */
    json_t *reply;      /* {text, …} or NULL */
    char *error_code;   /* NULL when none */
    char *error_detail; /* our own sentence; NULL when none */
    /* Of its run; NULL when there was none, or where the operator keeps none (result.*). */
    json_t *metrics;
    json_t *spans;                     /* [{name, started_ms, duration_ms, …}] in order of their end */
    json_t *logs;                      /* {stderr, stdout?}: {text, bytes, truncated} */
    char traceparent[TURN_TRACE_SIZE]; /* W3C trace context of the request; "" when there is none */
    int attempts, max_attempts;        /* starts so far, and how many there may be */
    int64_t cancel_requested_ms;       /* wall; 0: nobody asked */
    bool events_pruned;                /* its early events are gone */
    int64_t created_ms, started_ms, finished_ms; /* wall; 0: not yet */
    int64_t accept_ms;                           /* from the request's arrival to created_ms */
};
void turn_free(struct turn *t); /* accepts NULL */
DEFINE_CLEANUP(struct turn *, turn_free)

struct turn_new {
    const char *id, *channel, *key_id;
    const json_t *request;   /* borrowed; its speaker.id is kept for lists */
    const char *traceparent; /* NULL: none */
    int max_attempts;        /* 1 and more; 0 counts as 1 */
    unsigned position;       /* how many of the channel are before it, for its first event */
    bool ignored;            /* stored as ended with status ignored; takes no place in the queue */
    int64_t now_ms;
    int64_t accept_ms; /* since the request arrived */
};
/* The turn and its first event. ERR_CHANNEL_DISABLED when the channel is not enabled at that moment. */
MUST_USE int turns_insert(struct store *st, const struct turn_new *t, struct err *err);
/* ERR_NOT_FOUND. */
MUST_USE int turns_get(struct store *st, const char *id, struct turn **ret, struct err *err);

/* queued → running: re-checks the channel (ERR_CHANNEL_DISABLED), writes the slot's row and the event
 * `started`. *reset tells whether this turn begins without history, *reset_seen what to hand to turns_end.
 * ERR_CONFLICT when the turn is not queued; the same call again, with the slot that it runs in, is fine. */
MUST_USE int turns_start(struct store *st, const char *id, const char *slot, const char *boot, int64_t now_ms,
                         bool *reset, int64_t *reset_seen, struct err *err);

struct turn_end {
    const char *id;
    enum ending ending;            /* END_NONE: succeeded */
    const json_t *reply, *metrics; /* borrowed; NULL: none */
    const json_t *logs, *spans;    /* NULL: none */
    int64_t reset_seen;            /* from turns_start; -1: none. Applied only on success */
    int64_t now_ms;
};
/* Final state, last event. ERR_CONFLICT when the turn has ended already (nothing is changed). */
MUST_USE int turns_end(struct store *st, const struct turn_end *e, struct err *err);
/* running → queued, at its old place in the order, when max_attempts allows another start: for recovery.
 * Otherwise it ends as interrupted. *again tells which. */
MUST_USE int turns_recover(struct store *st, const char *id, int64_t now_ms, bool *again, struct err *err);
/* Notes that the turn is to be canceled. A queued one ends as canceled at once (*ended true); an ended one
 * stays as it ended (*ended true), and the note is made only while its container is `alive`; a running one is
 * for the pool. ERR_NOT_FOUND. */
MUST_USE int turns_cancel(struct store *st, const char *id, bool alive, int64_t now_ms, bool *ended,
                          struct err *err);
/* Ends every queued turn of a channel as canceled; calls each(id) for those ended. */
MUST_USE int turns_cancel_queued(struct store *st, const char *channel, enum ending why, int64_t now_ms,
                                 void (*each)(const char *id, void *arg), void *arg, struct err *err);
/* Those of one status, in order of acceptance. */
MUST_USE int turns_each(struct store *st, enum turn_status status,
                        int (*each)(const struct turn *, void *, struct err *), void *arg, struct err *err);

/* Turns from the newest to the oldest, before `before` (a seq; 0: from the newest). NULL or 0 members do not
 * filter. Stops when each() returns 1. */
struct turn_filter {
    const char *channel, *speaker_id, *key_id;
    int status;                 /* enum turn_status; -1: any */
    int64_t since_ms, until_ms; /* created_ms >= since and < until */
    int64_t before;
};
MUST_USE int turns_list(struct store *st, const struct turn_filter *filter,
                        int (*each)(const struct turn *, void *, struct err *), void *arg, struct err *err);

/* Appends event `type` with the next number of its turn. `data` borrowed, may be NULL. */
MUST_USE int events_append(struct store *st, const char *turn_id, const char *type, const json_t *data,
                           int64_t now_ms, struct err *err);

struct event {
    int64_t n; /* 1 and up in its turn, without gaps */
    const char *type;
    int64_t at_ms;
    const json_t *data; /* NULL: none */
};
/* Events of a turn with n > after, in order, until each() returns 1. Borrowed for the call. */
MUST_USE int events_each(struct store *st, int64_t turn_seq, int64_t after,
                         int (*each)(const struct event *, void *, struct err *), void *arg, struct err *err);

/* Slots: which turn a container serves; the row is there before the container. */
MUST_USE int slots_remove(struct store *st, const char *slot, struct err *err);
/* Removes those whose turn is gone: nobody can tell their channel any more. */
MUST_USE int slots_prune(struct store *st, struct err *err);
/* Each with its turn and that one's channel; borrowed for the call. Stops when each() fails. */
MUST_USE int slots_each(struct store *st,
                        int (*each)(const char *slot, const char *turn_id, const char *channel, void *arg,
                                    struct err *err),
                        void *arg, struct err *err);

/* The installation's id, made with the database. out: 33 bytes. */
MUST_USE int meta_installation(struct store *st, char out[33], struct err *err);
/* True once, the first time it is asked after the database was made. (initial_channels) */
MUST_USE int meta_first_start(struct store *st, bool *first, struct err *err);
