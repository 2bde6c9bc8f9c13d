/* rig.h: a database in a folder of the test's own, and calls of this room as single jobs. */
#pragma once

#include "storage/channels.h"
#include "storage/db.h"
#include "storage/keys.h"
#include "storage/turns.h"

#include "../scratch.h"

struct rig {
    char *dir, *path;
    struct db *db;
};

struct rig rig_open(void);
void rig_close(struct rig *r);
void rig_reopen(struct rig *r);

json_t *rig_json(const char *text);
/* One column of one row; "" when there is none. The static result is good until the next call. */
const char *rig_ask(struct db *db, const char *sql);
/* Runs SQL through the writer. */
void rig_sql(struct db *db, const char *sql);

int rig_put(struct db *db, const char *key, bool enabled, int64_t if_version, struct err *err);
int rig_insert(struct db *db, const char *id, const char *channel, const char *request, bool ignored,
               struct err *err);
int rig_start(struct db *db, const char *id, bool *reset, int64_t *seen, struct err *err);
int rig_end(struct db *db, const char *id, enum ending ending, int64_t seen, struct err *err);
int rig_reset(struct db *db, const char *key, struct err *err);
struct turn *rig_turn(struct db *db, const char *id);
struct channel *rig_channel(struct db *db, const char *key);
