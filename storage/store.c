#include "storage/store.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int store_fail(struct store *st, struct err *err, const char *what)
{
    int code = sqlite3_errcode(st->sqlite);

    st->last_failure = code & 0xFF;
    if (code == SQLITE_NOMEM)
        return err_no_memory(err);
    return err_set(err, ERR_DATABASE, "%s: %s", what, sqlite3_errmsg(st->sqlite));
}

int store_exec(struct store *st, const char *sql, struct err *err)
{
    if (sqlite3_exec(st->sqlite, sql, NULL, NULL, NULL) != SQLITE_OK)
        return store_fail(st, err, sql);
    return 0;
}

int store_open(const char *path, int flags, struct store **ret, struct err *err)
{
    struct store *st = calloc(1, sizeof *st);

    if (!st)
        return err_no_memory(err);
    if (sqlite3_open_v2(path, &st->sqlite, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW, NULL) !=
        SQLITE_OK) {
        if (st->sqlite)
            store_fail(st, err, path);
        else
            err_no_memory(err);
        store_close(st);
        return -1;
    }
    sqlite3_extended_result_codes(st->sqlite, 1);
    sqlite3_busy_timeout(st->sqlite, 5000);
    sqlite3_limit(st->sqlite, SQLITE_LIMIT_ATTACHED, 0);
    sqlite3_db_config(st->sqlite, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(st->sqlite, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    if (store_exec(st, "PRAGMA foreign_keys = ON", err) < 0) {
        store_close(st);
        return -1;
    }
    *ret = st;
    return 0;
}

void store_close(struct store *st)
{
    if (!st)
        return;
    for (size_t i = 0; i < STORE_STATEMENTS; i++)
        sqlite3_finalize(st->cache[i].stmt);
    sqlite3_close(st->sqlite);
    free(st);
}

int stmt_get(struct store *st, const char *sql, sqlite3_stmt **ret, struct err *err)
{
    size_t i = 0;

    while (i < STORE_STATEMENTS && st->cache[i].sql && st->cache[i].sql != sql)
        i++;
    if (i == STORE_STATEMENTS)
        return err_set(err, ERR_INTERNAL, "more than %d statements", STORE_STATEMENTS);
    if (!st->cache[i].sql) {
        if (sqlite3_prepare_v3(st->sqlite, sql, -1, SQLITE_PREPARE_PERSISTENT, &st->cache[i].stmt, NULL) !=
            SQLITE_OK)
            return store_fail(st, err, sql);
        st->cache[i].sql = sql;
    }
    *ret = st->cache[i].stmt;
    return 0;
}

int store_again(struct store *st, const char *sql, struct err *err)
{
    CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;

    if (stmt_get(st, sql, &stmt, err) < 0)
        return -1;
    return stmt_run(st, stmt, err);
}

void stmt_done(sqlite3_stmt **stmt)
{
    if (!*stmt)
        return;
    sqlite3_reset(*stmt);
    sqlite3_clear_bindings(*stmt);
}

static int bind_json(sqlite3_stmt *stmt, int i, const json_t *value)
{
    char *text = NULL;
    struct err err;

    if (!value)
        return sqlite3_bind_null(stmt, i);
    if (json_text(value, &text, &err) < 0)
        return SQLITE_NOMEM;
    return sqlite3_bind_text(stmt, i, text, -1, free);
}

int stmt_bind(struct store *st, sqlite3_stmt *stmt, struct err *err, const char *letters, ...)
{
    int rc = SQLITE_OK;
    va_list ap;

    va_start(ap, letters);
    for (int i = 1; *letters && rc == SQLITE_OK; letters++, i++) {
        if (*letters == 's') {
            rc = sqlite3_bind_text(stmt, i, va_arg(ap, const char *), -1, SQLITE_TRANSIENT);
        } else if (*letters == 'i') {
            rc = sqlite3_bind_int64(stmt, i, va_arg(ap, int64_t));
        } else if (*letters == 'j') {
            rc = bind_json(stmt, i, va_arg(ap, const json_t *));
        } else {
            const void *data = va_arg(ap, const void *);
            rc = sqlite3_bind_blob64(stmt, i, data, va_arg(ap, size_t), SQLITE_TRANSIENT);
        }
    }
    va_end(ap);
    if (rc == SQLITE_NOMEM)
        return err_no_memory(err);
    return rc == SQLITE_OK ? 0 : store_fail(st, err, "bind");
}

int stmt_step(struct store *st, sqlite3_stmt *stmt, struct err *err)
{
    int rc = sqlite3_step(stmt);

    if (rc == SQLITE_ROW)
        return 1;
    return rc == SQLITE_DONE ? 0 : store_fail(st, err, "step");
}

int stmt_run(struct store *st, sqlite3_stmt *stmt, struct err *err)
{
    int rc;

    while ((rc = stmt_step(st, stmt, err)) == 1)
        ;
    return rc;
}

int column_text(sqlite3_stmt *stmt, int i, char **ret, struct err *err)
{
    if (sqlite3_column_type(stmt, i) == SQLITE_NULL) {
        *ret = NULL;
        return 0;
    }
    const char *text = (const char *)sqlite3_column_text(stmt, i);
    char *copy = text ? strdup(text) : NULL;
    if (!copy)
        return err_no_memory(err);
    *ret = copy;
    return 0;
}

int column_json(sqlite3_stmt *stmt, int i, json_t **ret, struct err *err)
{
    if (sqlite3_column_type(stmt, i) == SQLITE_NULL) {
        *ret = NULL;
        return 0;
    }
    const char *text = (const char *)sqlite3_column_text(stmt, i);
    if (!text)
        return err_no_memory(err);
    if (json_parse(text, strlen(text), ret, err) == 0)
        return 0;
    return err->code == ERR_NO_MEMORY ? -1 : err_set(err, ERR_DATABASE, "a stored document is not JSON");
}
