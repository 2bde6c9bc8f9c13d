#include "storage/retention.h"

#include "storage/store.h"

static int prune_turns(struct store *st, const struct retention *r, int *removed, struct err *err)
{
    CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;

    /* Events and idempotency keys go with their turn (ON DELETE CASCADE). */
    if (stmt_get(
            st,
            "DELETE FROM turns WHERE seq IN ("
            "  SELECT t.seq FROM turns t LEFT JOIN idempotency i ON i.turn = t.seq"
            "  WHERE t.finished_ms > 0 AND (i.turn IS NULL OR i.created_ms < ?3) AND (t.finished_ms < ?1 OR "
            "(?2 > 0 AND"
            "    t.seq <= (SELECT seq FROM turns WHERE finished_ms > 0 ORDER BY seq DESC LIMIT 1 OFFSET ?2)))"
            "  ORDER BY t.seq LIMIT ?4)",
            &stmt, err) < 0 ||
        stmt_bind(st, stmt, err, "iiii", r->turns_before_ms, r->turns_keep, r->names_before_ms,
                  (int64_t)r->most) < 0 ||
        stmt_run(st, stmt, err) < 0)
        return -1;
    *removed += sqlite3_changes(st->sqlite);
    return 0;
}

static int prune_events(struct store *st, const struct retention *r, int *removed, struct err *err)
{
    CLEANUP(stmt_done) sqlite3_stmt *mark = NULL;
    int rc;

    /* RETURNING gives its rows when all of them are marked, so that the histories can go one by one; a search
     * for marked turns would read the whole table. */
    if (stmt_get(st,
                 "UPDATE turns SET events_pruned = 1 WHERE seq IN (SELECT seq FROM turns WHERE finished_ms > "
                 "0 AND "
                 "finished_ms < ? AND events_pruned = 0 LIMIT ?) RETURNING seq",
                 &mark, err) < 0 ||
        stmt_bind(st, mark, err, "ii", r->events_before_ms, (int64_t)r->most) < 0)
        return -1;
    while ((rc = stmt_step(st, mark, err)) == 1) {
        CLEANUP(stmt_done) sqlite3_stmt *drop = NULL;
        if (stmt_get(st, "DELETE FROM events WHERE turn = ?", &drop, err) < 0 ||
            stmt_bind(st, drop, err, "i", (int64_t)sqlite3_column_int64(mark, 0)) < 0 ||
            stmt_run(st, drop, err) < 0)
            return -1;
        ++*removed;
    }
    return rc;
}

int retention_prune(struct store *st, const struct retention *r, int *removed, struct err *err)
{
    *removed = 0;
    if (prune_turns(st, r, removed, err) < 0)
        return -1;
    return prune_events(st, r, removed, err);
}
