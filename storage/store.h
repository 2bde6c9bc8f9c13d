/* storage/store.h: a connection with its prepared statements; used by this room's files only.
 * A store is used by one thread at a time. */
#pragma once

#include "base/json.h"
#include "storage/db.h"

#include <sqlite3.h>

#define STORE_STATEMENTS 128

struct store {
    sqlite3 *sqlite;
    struct {
        const char *sql; /* the literal's address is the key */
        sqlite3_stmt *stmt;
    } cache[STORE_STATEMENTS];
    int last_failure; /* primary SQLite code of the last failed step, 0 when none */
};

MUST_USE int store_open(const char *path, int flags, struct store **ret, struct err *err);
void store_close(struct store *st); /* accepts NULL */
/* Brings the schema to this build's version; ERR_DATABASE when the file is not ours or newer. */
MUST_USE int store_migrate(struct store *st, struct err *err);
/* ERR_DATABASE unless the file is ours and of this build's version. */
MUST_USE int store_expect_version(struct store *st, struct err *err);

/* ERR_DATABASE with SQLite's text; remembers the code in last_failure. Returns -1. */
int store_fail(struct store *st, struct err *err, const char *what);
MUST_USE int store_exec(struct store *st, const char *sql, struct err *err);
/* The same for one statement without parameters that is run again and again (`sql` a literal): it is kept. */
MUST_USE int store_again(struct store *st, const char *sql, struct err *err);

/* Takes a statement from the cache (`sql` a literal), cleared. Give it back with CLEANUP(stmt_done). */
MUST_USE int stmt_get(struct store *st, const char *sql, sqlite3_stmt **ret, struct err *err);
void stmt_done(sqlite3_stmt **stmt);
/* Binds by letter: s text (NULL → null), i int64_t, j json_t* as text (NULL → null), b bytes and size_t. */
MUST_USE int stmt_bind(struct store *st, sqlite3_stmt *stmt, struct err *err, const char *letters, ...);
/* 1: a row, 0: none. -1: ERR_DATABASE. */
MUST_USE int stmt_step(struct store *st, sqlite3_stmt *stmt, struct err *err);
/* Runs to the end; 0 or -1. */
MUST_USE int stmt_run(struct store *st, sqlite3_stmt *stmt, struct err *err);
/* Column as fresh text (NULL for null) or JSON; -1 on ERR_NO_MEMORY or ERR_DATABASE (not JSON). */
MUST_USE int column_text(sqlite3_stmt *stmt, int i, char **ret, struct err *err);
MUST_USE int column_json(sqlite3_stmt *stmt, int i, json_t **ret, struct err *err);
