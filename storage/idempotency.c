#include "storage/idempotency.h"

#include "base/secret.h"
#include "storage/store.h"

#include <stdio.h>

int idempotency_find(struct store *st, const char *key_id, const char *name, const unsigned char hash[32],
                     char turn_id[TURN_ID_SIZE], struct err *err)
{
    CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;

    if (stmt_get(st,
                 "SELECT i.hash, t.id FROM idempotency i JOIN turns t ON t.seq = i.turn WHERE i.key_id = ? "
                 "AND i.name = ?",
                 &stmt, err) < 0 ||
        stmt_bind(st, stmt, err, "ss", key_id, name) < 0)
        return -1;
    int rc = stmt_step(st, stmt, err);
    if (rc < 0)
        return -1;
    if (rc == 0)
        return err_set(err, ERR_NOT_FOUND, "this idempotency key is new");
    const void *known = sqlite3_column_blob(stmt, 0);
    const unsigned char *id = sqlite3_column_text(stmt, 1);
    if (!known || sqlite3_column_bytes(stmt, 0) != 32 || !id)
        return err_set(err, ERR_DATABASE, "a stored idempotency key is damaged");
    if (!secret_equal(known, hash, 32))
        return err_set(err, ERR_INVALID, "this Idempotency-Key was used for another body");
    snprintf(turn_id, TURN_ID_SIZE, "%s", (const char *)id);
    return 0;
}

int idempotency_put(struct store *st, const char *key_id, const char *name, const unsigned char hash[32],
                    const char *turn_id, int64_t now_ms, struct err *err)
{
    CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;

    if (stmt_get(st,
                 "INSERT INTO idempotency (key_id, name, hash, turn, created_ms) "
                 "SELECT ?1, ?2, ?3, seq, ?5 FROM turns WHERE id = ?4",
                 &stmt, err) < 0 ||
        stmt_bind(st, stmt, err, "ssbsi", key_id, name, hash, (size_t)32, turn_id, now_ms) < 0)
        return -1;
    return stmt_run(st, stmt, err);
}
