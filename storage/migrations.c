/* The schema, one step per version. A step that has been released is never changed. */
#include "storage/store.h"

#include <inttypes.h>
#include <stdio.h>

#define APPLICATION_ID 0x434c4f49 /* "CLOI" */

static const char *const steps[] = {
    /* 1 */
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;"
    "INSERT INTO meta VALUES ('installation', lower(hex(randomblob(16)))), ('started', '0');"
    "CREATE TABLE api_keys ("
    "  n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, name TEXT NOT NULL, hash BLOB NOT NULL CHECK "
    "(length(hash) = 32),"
    "  scopes INTEGER NOT NULL, globs TEXT NOT NULL, created_ms INTEGER NOT NULL, revoked_ms INTEGER NOT "
    "NULL DEFAULT 0"
    ") STRICT;"
    "CREATE TABLE channels ("
    "  key TEXT PRIMARY KEY, enabled INTEGER NOT NULL CHECK (enabled IN (0, 1)), version INTEGER NOT NULL,"
    "  reset_requested INTEGER NOT NULL DEFAULT 0, reset_applied INTEGER NOT NULL DEFAULT 0,"
    "  created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL"
    ") STRICT, WITHOUT ROWID;"
    /* What lists and retention look at comes first: behind logs and reply it would cost a walk of their
       pages. */
    "CREATE TABLE turns ("
    "  seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, channel TEXT NOT NULL, key_id TEXT "
    "NOT NULL,"
    "  status TEXT NOT NULL CHECK (status IN ('queued', 'running', 'succeeded', 'failed', 'timed_out', "
    "'canceled',"
    "    'interrupted', 'ignored')),"
    "  created_ms INTEGER NOT NULL, started_ms INTEGER NOT NULL DEFAULT 0, finished_ms INTEGER NOT NULL "
    "DEFAULT 0,"
    "  events_pruned INTEGER NOT NULL DEFAULT 0, attempts INTEGER NOT NULL DEFAULT 0,"
    "  accept_ms INTEGER NOT NULL, max_attempts INTEGER NOT NULL DEFAULT 1, cancel_requested_ms INTEGER NOT "
    "NULL DEFAULT 0,"
    "  speaker_id TEXT NOT NULL, traceparent TEXT NOT NULL, error_code TEXT, error_detail TEXT,"
    "  request TEXT NOT NULL, reply TEXT, metrics TEXT, logs TEXT, spans TEXT"
    ") STRICT;"
    "CREATE INDEX turns_open ON turns (status, seq) WHERE status IN ('queued', 'running');"
    /* With the key, so that a caller's own turns in a channel are told apart without reading the others. */
    "CREATE INDEX turns_channel ON turns (channel, seq, key_id);"
    "CREATE INDEX turns_key ON turns (key_id, seq);"
    "CREATE INDEX turns_finished ON turns (finished_ms) WHERE finished_ms > 0;"
    "CREATE INDEX turns_unpruned ON turns (finished_ms) WHERE finished_ms > 0 AND events_pruned = 0;"
    "CREATE TABLE idempotency ("
    "  key_id TEXT NOT NULL, name TEXT NOT NULL, hash BLOB NOT NULL CHECK (length(hash) = 32),"
    "  turn INTEGER NOT NULL REFERENCES turns (seq) ON DELETE CASCADE, created_ms INTEGER NOT NULL,"
    "  PRIMARY KEY (key_id, name)"
    ") STRICT, WITHOUT ROWID;"
    "CREATE INDEX idempotency_turn ON idempotency (turn);"
    "CREATE TABLE events ("
    "  turn INTEGER NOT NULL REFERENCES turns (seq) ON DELETE CASCADE, n INTEGER NOT NULL, type TEXT NOT "
    "NULL,"
    "  at_ms INTEGER NOT NULL, data TEXT, PRIMARY KEY (turn, n)"
    ") STRICT, WITHOUT ROWID;"
    "CREATE TABLE slots (slot TEXT PRIMARY KEY, boot TEXT NOT NULL, turn_id TEXT NOT NULL) STRICT, WITHOUT "
    "ROWID;",
};

static int read_pragma(struct store *st, const char *sql, int64_t *ret, struct err *err)
{
    sqlite3_stmt *stmt = NULL;

    if (sqlite3_prepare_v2(st->sqlite, sql, -1, &stmt, NULL) != SQLITE_OK)
        return store_fail(st, err, sql);
    int rc = stmt_step(st, stmt, err);
    if (rc == 1)
        *ret = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    return rc == 1 ? 0 : rc == 0 ? err_set(err, ERR_DATABASE, "%s gave nothing", sql) : -1;
}

static int read_version(struct store *st, int64_t *version, struct err *err)
{
    int64_t application = 0, tables = 0;

    if (read_pragma(st, "PRAGMA application_id", &application, err) < 0 ||
        read_pragma(st, "PRAGMA user_version", version, err) < 0 ||
        read_pragma(st, "SELECT count(*) FROM sqlite_schema", &tables, err) < 0)
        return -1;
    if (application != APPLICATION_ID && (application != 0 || tables != 0))
        return err_set(err, ERR_DATABASE, "the file is not a state database of cloister");
    if (*version < 0 || *version > (int64_t)ARRAY_LEN(steps))
        return err_set(err, ERR_DATABASE, "the state is of version %" PRId64 ", this build knows up to %zu",
                       *version, ARRAY_LEN(steps));
    return 0;
}

int store_expect_version(struct store *st, struct err *err)
{
    int64_t version = 0;

    if (read_version(st, &version, err) < 0)
        return -1;
    if (version != (int64_t)ARRAY_LEN(steps))
        return err_set(err, ERR_DATABASE,
                       "the state is of version %" PRId64 ", this build needs %zu; start the service once",
                       version, ARRAY_LEN(steps));
    return 0;
}

int store_migrate(struct store *st, struct err *err)
{
    int64_t version = 0;
    char pragma[96];

    if (read_version(st, &version, err) < 0)
        return -1;
    for (; version < (int64_t)ARRAY_LEN(steps); version++) {
        snprintf(pragma, sizeof pragma, "PRAGMA application_id = %d; PRAGMA user_version = %" PRId64,
                 APPLICATION_ID, version + 1);
        if (store_exec(st, "BEGIN IMMEDIATE", err) < 0)
            return -1;
        if (store_exec(st, steps[version], err) < 0 || store_exec(st, pragma, err) < 0 ||
            store_exec(st, "COMMIT", err) < 0) {
            sqlite3_exec(st->sqlite, "ROLLBACK", NULL, NULL, NULL);
            return err_wrap(err, "migrate to version %" PRId64, version + 1);
        }
    }
    return 0;
}
