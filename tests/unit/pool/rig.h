/* unit/pool/rig.h: a pool without threads and without an engine, on a state of its own. */
#pragma once

#include "pool/internal.h"

#include "../scratch.h"

struct rig {
    char *dir, *path, *run, *workspaces;
    struct pool pool;
    struct db *db;
    struct queue *queue;
    struct bus *bus;
};

struct call {
    const char *id, *channel;
    bool enabled;
    struct turn *turn;
};

struct rig *make_rig(void);
void free_rig(struct rig *r);
/* Must succeed; put_job, insert_job and start_job take what they need of the call. */
void write_db(struct rig *r, db_job job, struct call c);
int put_job(struct store *st, void *arg, struct err *err);
int insert_job(struct store *st, void *arg, struct err *err);
int start_job(struct store *st, void *arg, struct err *err);
/* An accepted turn of an enabled channel, in the database and in the queue. */
void push_turn(struct rig *r, const char *id, const char *channel);
void assert_status(struct rig *r, const char *id, enum turn_status want, const char *code);
/* It is the next in the queue, and is taken. */
void assert_pops(struct rig *r, const char *id, const char *channel);
