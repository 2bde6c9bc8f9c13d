/* queue/lines.h: the lines of channels and keys, as the files of this room share them. All under the queue's
 * lock. */
#pragma once

#include "queue/queue.h"

#include <pthread.h>
#include <stdint.h>
/* Without memory an element is simply not in the table: its hh.tbl is NULL. */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>
#include <utlist.h>

#define KEY_SIZE 32

struct queue_place {
    char turn_id[40]; /* "" until pushed */
    struct channel_line *channel;
    struct key_line *key;
    unsigned ahead;                  /* see queue_ahead */
    struct queue_place *prev, *next; /* in the channel's line, in order of arrival */
    UT_hash_handle hh;               /* by turn_id, once pushed */
};

struct channel_line {
    char *name;
    struct queue_place *waiting; /* pushed places */
    unsigned reserved;           /* places that exist, pushed or not */
    unsigned queued;             /* pushed */
    bool busy;
    uint64_t last_served;               /* tick of the last pop; 0: never */
    struct key_line *ready_for;         /* in whose ready list this is: the key of the first waiting turn */
    struct channel_line *rprev, *rnext; /* in that list */
    UT_hash_handle hh;
};

struct key_line {
    char id[KEY_SIZE];
    unsigned reserved;
    struct channel_line *ready;
    struct key_line *kprev, *knext; /* in the rotation: keys with something ready */
    bool rotating;
    UT_hash_handle hh;
};

struct queue {
    struct queue_limits limits;
    pthread_mutex_t lock;
    pthread_cond_t wake; /* monotonic */
    struct channel_line *channels;
    struct key_line *keys, *rotation;
    struct queue_place *by_id;
    unsigned reserved, queued;
    unsigned unlisted; /* pushed without memory for by_id, so found by a walk */
    uint64_t tick;
    bool held, closed;
    int64_t done_ms[64]; /* times of the last ends, a ring */
    unsigned done_count;
};

/* Brings the channel to the list where it belongs: it is ready when it is free and a turn waits, and stands
 * with the key of that turn. */
void line_update_ready(struct queue *q, struct channel_line *c);
/* NULL when there is none. */
struct channel_line *line_find(struct queue *q, const char *channel);
/* Found or made; NULL: out of memory. */
struct channel_line *line_get(struct queue *q, const char *channel);
struct key_line *line_get_key(struct queue *q, const char *key_id);
/* Gives up what was made for nothing, or is not needed any more. */
void line_settle(struct queue *q, struct channel_line *c);
void line_settle_key(struct queue *q, struct key_line *k);
void line_drop(struct queue *q, struct channel_line *c);
/* The place is in no line any more. */
void line_free_place(struct queue *q, struct queue_place *p);
