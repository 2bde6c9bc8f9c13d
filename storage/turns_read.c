/* Reading turns: one, those of a status, lists. */
#include "storage/turns.h"

#include "storage/store.h"

#include <stdio.h>
#include <string.h>

#define COLUMNS                                                                                              \
    "id, seq, channel, key_id, status, request, reply, error_code, error_detail, metrics, logs, "            \
    "created_ms, "                                                                                           \
    "started_ms, finished_ms, traceparent, attempts, max_attempts, cancel_requested_ms, events_pruned, "     \
    "spans, accept_ms"

static const char *const status_names[] = {
#define X(code, name) [code] = name,
    TURN_STATUS_TABLE(X)
#undef X
};

const char *turn_status_name(enum turn_status s)
{
    return status_names[s];
}

enum turn_status turn_status_of(enum ending e)
{
    switch (e) {
    case END_NONE:
        return TURN_SUCCEEDED;
    case END_TIMEOUT:
        return TURN_TIMED_OUT;
    case END_CANCELED:
    case END_CHANNEL_DISABLED:
        return TURN_CANCELED;
    case END_SERVER_RESTARTED:
        return TURN_INTERRUPTED;
    default:
        return TURN_FAILED;
    }
}

void turn_free(struct turn *t)
{
    if (!t)
        return;
    free(t->channel);
    free(t->key_id);
    json_decref(t->request);
    json_decref(t->reply);
    free(t->error_code);
    free(t->error_detail);
    json_decref(t->metrics);
    json_decref(t->logs);
    json_decref(t->spans);
    free(t);
}

static int status_from(const char *name, enum turn_status *ret, struct err *err)
{
    for (size_t i = 0; name && i < ARRAY_LEN(status_names); i++)
        if (strcmp(status_names[i], name) == 0) {
            *ret = (enum turn_status)i;
            return 0;
        }
    return err_set(err, ERR_DATABASE, "a stored turn has no known status");
}

static int from_row(sqlite3_stmt *stmt, struct turn **ret, struct err *err)
{
    CLEANUP(turn_free_p) struct turn *t = calloc(1, sizeof *t);

    if (!t)
        return err_no_memory(err);
    const unsigned char *id = sqlite3_column_text(stmt, 0);
    snprintf(t->id, sizeof t->id, "%s", id ? (const char *)id : "");
    t->seq = sqlite3_column_int64(stmt, 1);
    if (column_text(stmt, 2, &t->channel, err) < 0 || column_text(stmt, 3, &t->key_id, err) < 0 ||
        status_from((const char *)sqlite3_column_text(stmt, 4), &t->status, err) < 0 ||
        column_json(stmt, 5, &t->request, err) < 0 || column_json(stmt, 6, &t->reply, err) < 0 ||
        column_text(stmt, 7, &t->error_code, err) < 0 || column_text(stmt, 8, &t->error_detail, err) < 0 ||
        column_json(stmt, 9, &t->metrics, err) < 0 || column_json(stmt, 10, &t->logs, err) < 0 ||
        column_json(stmt, 19, &t->spans, err) < 0)
        return -1;
    t->created_ms = sqlite3_column_int64(stmt, 11);
    t->started_ms = sqlite3_column_int64(stmt, 12);
    t->finished_ms = sqlite3_column_int64(stmt, 13);
    const unsigned char *trace = sqlite3_column_text(stmt, 14);
    snprintf(t->traceparent, sizeof t->traceparent, "%s", trace ? (const char *)trace : "");
    t->attempts = sqlite3_column_int(stmt, 15);
    t->max_attempts = sqlite3_column_int(stmt, 16);
    t->cancel_requested_ms = sqlite3_column_int64(stmt, 17);
    t->accept_ms = sqlite3_column_int64(stmt, 20);
    t->events_pruned = sqlite3_column_int(stmt, 18) != 0;
    *ret = STEAL(t);
    return 0;
}

int turns_get(struct store *st, const char *id, struct turn **ret, struct err *err)
{
    CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;

    if (stmt_get(st, "SELECT " COLUMNS " FROM turns WHERE id = ?", &stmt, err) < 0 ||
        stmt_bind(st, stmt, err, "s", id) < 0)
        return -1;
    int rc = stmt_step(st, stmt, err);
    if (rc == 0)
        return err_set(err, ERR_NOT_FOUND, "there is no such turn");
    return rc < 0 ? -1 : from_row(stmt, ret, err);
}

/* Every row of a bound statement, until each() stops. */
static int walk(struct store *st, sqlite3_stmt *stmt, int (*each)(const struct turn *, void *, struct err *),
                void *arg, struct err *err)
{
    int rc;

    while ((rc = stmt_step(st, stmt, err)) == 1) {
        CLEANUP(turn_free_p) struct turn *t = NULL;
        if (from_row(stmt, &t, err) < 0)
            return -1;
        rc = each(t, arg, err);
        if (rc != 0)
            return rc < 0 ? -1 : 0;
    }
    return rc;
}

/* Of turns that are open. SQLite takes an index over some rows only for a query that repeats its condition.
 */
int turns_each(struct store *st, enum turn_status status,
               int (*each)(const struct turn *, void *, struct err *), void *arg, struct err *err)
{
    CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;

    if (stmt_get(st,
                 "SELECT " COLUMNS
                 " FROM turns WHERE status = ? AND status IN ('queued', 'running') ORDER BY seq",
                 &stmt, err) < 0 ||
        stmt_bind(st, stmt, err, "s", turn_status_name(status)) < 0)
        return -1;
    return walk(st, stmt, each, arg, err);
}

#define FILTERS                                                                                              \
    " AND (?2 IS NULL OR speaker_id = ?2) AND (?3 IS NULL OR key_id = ?3) AND (?4 IS NULL OR status = ?4)"   \
    " AND created_ms >= ?5 AND (?6 = 0 OR created_ms < ?6) AND seq < ?7 ORDER BY seq DESC"

/* Filters that are absent are bound as null or 0 and let everything pass. An index serves only what the query
 * itself compares: the channel's, else the key's, else the order of seq. */
static const char *list_query(const struct turn_filter *f)
{
    if (f->channel)
        return "SELECT " COLUMNS " FROM turns WHERE channel = ?1" FILTERS;
    if (f->key_id)
        return "SELECT " COLUMNS " FROM turns WHERE ?1 IS NULL AND key_id = ?3" FILTERS;
    return "SELECT " COLUMNS " FROM turns WHERE ?1 IS NULL" FILTERS;
}

int turns_list(struct store *st, const struct turn_filter *f,
               int (*each)(const struct turn *, void *, struct err *), void *arg, struct err *err)
{
    CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;

    if (stmt_get(st, list_query(f), &stmt, err) < 0 ||
        stmt_bind(st, stmt, err, "ssssiii", f->channel, f->speaker_id, f->key_id,
                  f->status < 0 ? NULL : turn_status_name((enum turn_status)f->status), f->since_ms,
                  f->until_ms, f->before ? f->before : INT64_MAX) < 0)
        return -1;
    return walk(st, stmt, each, arg, err);
}
