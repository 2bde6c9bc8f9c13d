#include "storage/store.h"
#include "storage/turns.h"

#include <stdio.h>
#include <string.h>

int events_append(struct store *st, const char *turn_id, const char *type, const json_t *data, int64_t now_ms,
                  struct err *err)
{
    CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;

    if (stmt_get(
            st,
            "INSERT INTO events (turn, n, type, at_ms, data) "
            "SELECT t.seq, coalesce((SELECT max(n) FROM events e WHERE e.turn = t.seq), 0) + 1, ?2, ?3, ?4 "
            "FROM turns t WHERE t.id = ?1",
            &stmt, err) < 0 ||
        stmt_bind(st, stmt, err, "ssij", turn_id, type, now_ms, data) < 0 || stmt_run(st, stmt, err) < 0)
        return -1;
    return sqlite3_changes(st->sqlite) ? 0 : err_set(err, ERR_NOT_FOUND, "there is no such turn");
}

int events_each(struct store *st, int64_t turn_seq, int64_t after,
                int (*each)(const struct event *, void *, struct err *), void *arg, struct err *err)
{
    CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;
    int rc;

    if (stmt_get(st, "SELECT n, type, at_ms, data FROM events WHERE turn = ? AND n > ? ORDER BY n", &stmt,
                 err) < 0 ||
        stmt_bind(st, stmt, err, "ii", turn_seq, after) < 0)
        return -1;
    while ((rc = stmt_step(st, stmt, err)) == 1) {
        CLEANUP(json_free) json_t *data = NULL;
        if (column_json(stmt, 3, &data, err) < 0)
            return -1;
        struct event event = {.n = sqlite3_column_int64(stmt, 0),
                              .type = (const char *)sqlite3_column_text(stmt, 1),
                              .at_ms = sqlite3_column_int64(stmt, 2),
                              .data = data};
        if (!event.type)
            return err_no_memory(err);
        rc = each(&event, arg, err);
        if (rc != 0)
            return rc < 0 ? -1 : 0;
    }
    return rc;
}

int slots_remove(struct store *st, const char *slot, struct err *err)
{
    CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;

    if (stmt_get(st, "DELETE FROM slots WHERE slot = ?", &stmt, err) < 0 ||
        stmt_bind(st, stmt, err, "s", slot) < 0)
        return -1;
    return stmt_run(st, stmt, err);
}

int slots_prune(struct store *st, struct err *err)
{
    return store_exec(st, "DELETE FROM slots WHERE turn_id NOT IN (SELECT id FROM turns)", err);
}

int slots_each(struct store *st,
               int (*each)(const char *slot, const char *turn_id, const char *channel, void *arg,
                           struct err *err),
               void *arg, struct err *err)
{
    CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;
    int rc;

    if (stmt_get(st, "SELECT s.slot, t.id, t.channel FROM slots s JOIN turns t ON t.id = s.turn_id", &stmt,
                 err) < 0)
        return -1;
    while ((rc = stmt_step(st, stmt, err)) == 1) {
        const char *slot = (const char *)sqlite3_column_text(stmt, 0);
        const char *turn_id = (const char *)sqlite3_column_text(stmt, 1);
        const char *channel = (const char *)sqlite3_column_text(stmt, 2);
        if (!slot || !turn_id || !channel)
            return err_no_memory(err);
        if (each(slot, turn_id, channel, arg, err) < 0)
            return -1;
    }
    return rc;
}

int meta_installation(struct store *st, char out[33], struct err *err)
{
    CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;

    if (stmt_get(st, "SELECT value FROM meta WHERE name = 'installation'", &stmt, err) < 0)
        return -1;
    int rc = stmt_step(st, stmt, err);
    if (rc < 0)
        return -1;
    const char *value = rc == 1 ? (const char *)sqlite3_column_text(stmt, 0) : NULL;
    if (!value || strlen(value) != 32)
        return err_set(err, ERR_DATABASE, "the state has no installation id");
    memcpy(out, value, 33);
    return 0;
}

int meta_first_start(struct store *st, bool *first, struct err *err)
{
    if (store_exec(st, "UPDATE meta SET value = '1' WHERE name = 'started' AND value = '0'", err) < 0)
        return -1;
    *first = sqlite3_changes(st->sqlite) > 0;
    return 0;
}
