/* storage/db.h: the state database: one writer thread with group commit, read-only readers. (http.md,
 * "SQLite")
 *
 * A job is a function that works on a `struct store` (a connection with its prepared statements). Write jobs
 * run on the writer thread in order of submission; many share one transaction and one fsync, each inside a
 * savepoint of its own, so that a job that fails undoes only itself. A job may run again after a failed
 * commit: it must not touch anything but the store and its argument. Thread-safe except db_open and db_close.
 */
#pragma once

#include "base/err.h"

#include <stdbool.h>

struct db;
struct store;

enum db_mode {
    DB_WRITE, /* make or migrate the file, start the writer thread; the caller holds the state lock */
    DB_READ,  /* an existing file of the current version, read-only; db_write fails */
};

typedef int (*db_job)(struct store *st, void *arg, struct err *err);
/* Called once, on the writer thread, after the commit (result->code == ERR_NONE) or the failure. Must be
 * quick. */
typedef void (*db_done)(void *arg, const struct err *result);

/* ERR_DATABASE: not ours, newer than this build, damaged. */
MUST_USE int db_open(const char *path, enum db_mode mode, struct db **ret, struct err *err);
/* Finishes all submitted jobs, then closes. No other call may be under way. Accepts NULL. */
void db_close(struct db *db);

/* Runs the job and waits until it is durable. Not from the writer thread. */
MUST_USE int db_write(struct db *db, db_job job, void *arg, struct err *err);
/* The same without waiting. -1 (and `done` is never called) only for ERR_NO_MEMORY or after db_close began.
 */
MUST_USE int db_submit(struct db *db, db_job job, db_done done, void *arg, struct err *err);
/* Runs the job now, on this thread, in a read transaction; keep it short. */
MUST_USE int db_read(struct db *db, db_job job, void *arg, struct err *err);

/* While the last write failed: tries another one, whose outcome db_healthy tells. Does not wait. */
void db_recheck(struct db *db);
/* A consistent copy of the whole state at `path`, which must not exist, while others read and write.
 * ERR_DATABASE. */
MUST_USE int db_backup(struct db *db, const char *path, struct err *err);

/* False after a write failed for want of space or an I/O error, until one succeeds again. */
bool db_healthy(const struct db *db);
/* The pages and foreign keys, and with `whole` every index against its table; ERR_DATABASE with the first
 * finding. (PRAGMA quick_check, integrity_check, foreign_key_check) */
MUST_USE int db_integrity(struct db *db, bool whole, struct err *err);
