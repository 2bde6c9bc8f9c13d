#include "storage/retention.h"

#include "storage/store.h"

/* Both rules in one: turns go in the order in which they finished, up to and with this one. seq tells those
 * of one millisecond apart. */
struct bound {
    int64_t finished_ms, seq;
};

/* Every query here repeats the condition of the index that serves it: SQLite takes an index over some rows
 * for no other, and reads the whole table instead. */
static int find_bound(struct store *st, const struct retention *r, struct bound *ret, struct err *err)
{
    CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;

    *ret = (struct bound){.finished_ms = r->turns_before_ms - 1, .seq = INT64_MAX};
    if (r->turns_keep == 0)
        return 0;
    if (stmt_get(st,
                 "SELECT finished_ms, seq FROM turns WHERE finished_ms > 0"
                 " ORDER BY finished_ms DESC, seq DESC LIMIT 1 OFFSET ?",
                 &stmt, err) < 0 ||
        stmt_bind(st, stmt, err, "i", r->turns_keep) < 0)
        return -1;
    int rc = stmt_step(st, stmt, err);
    if (rc == 1 && sqlite3_column_int64(stmt, 0) > ret->finished_ms)
        *ret = (struct bound){sqlite3_column_int64(stmt, 0), sqlite3_column_int64(stmt, 1)};
    return rc < 0 ? -1 : 0;
}

static int prune_turns(struct store *st, const struct retention *r, int *removed, struct err *err)
{
    CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;
    struct bound last;

    if (find_bound(st, r, &last, err) < 0)
        return -1;
    /* Events and idempotency keys go with their turn (ON DELETE CASCADE). One with a slot stays: after a
     * restart nothing else tells which channel waits for that container's death. */
    if (stmt_get(st,
                 "DELETE FROM turns WHERE seq IN ("
                 "  SELECT t.seq FROM turns t LEFT JOIN idempotency i ON i.turn = t.seq"
                 "  WHERE t.finished_ms > 0 AND (t.finished_ms, t.seq) <= (?1, ?2)"
                 "    AND (i.turn IS NULL OR i.created_ms < ?3)"
                 "    AND t.id NOT IN (SELECT turn_id FROM slots)"
                 "  ORDER BY t.finished_ms, t.seq LIMIT ?4)",
                 &stmt, err) < 0 ||
        stmt_bind(st, stmt, err, "iiii", last.finished_ms, last.seq, r->names_before_ms, (int64_t)r->most) <
            0 ||
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
    if (stmt_get(
            st,
            "UPDATE turns SET events_pruned = 1 WHERE seq IN ("
            "  SELECT seq FROM turns WHERE finished_ms > 0 AND events_pruned = 0 AND finished_ms < ? LIMIT ?)"
            " RETURNING seq",
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
