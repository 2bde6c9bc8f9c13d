#include "storage/turns.h"

#include "storage/channels.h"
#include "storage/store.h"

#include <stdio.h>
#include <string.h>

#define COLUMNS                                                                                              \
    "id, seq, channel, key_id, status, request, reply, error_code, error_detail, metrics, stderr, "          \
    "created_ms, "                                                                                           \
    "started_ms, finished_ms, traceparent"

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
    free(t->stderr_text);
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
    CLEANUP(turn_free_p)
    struct turn *t = calloc(1, sizeof *t);

    if (!t)
        return err_no_memory(err);
    const unsigned char *id = sqlite3_column_text(stmt, 0);
    snprintf(t->id, sizeof t->id, "%s", id ? (const char *)id : "");
    t->seq = sqlite3_column_int64(stmt, 1);
    if (column_text(stmt, 2, &t->channel, err) < 0 || column_text(stmt, 3, &t->key_id, err) < 0 ||
        status_from((const char *)sqlite3_column_text(stmt, 4), &t->status, err) < 0 ||
        column_json(stmt, 5, &t->request, err) < 0 || column_json(stmt, 6, &t->reply, err) < 0 ||
        column_text(stmt, 7, &t->error_code, err) < 0 || column_text(stmt, 8, &t->error_detail, err) < 0 ||
        column_json(stmt, 9, &t->metrics, err) < 0 || column_text(stmt, 10, &t->stderr_text, err) < 0)
        return -1;
    t->created_ms = sqlite3_column_int64(stmt, 11);
    t->started_ms = sqlite3_column_int64(stmt, 12);
    t->finished_ms = sqlite3_column_int64(stmt, 13);
    const unsigned char *trace = sqlite3_column_text(stmt, 14);
    snprintf(t->traceparent, sizeof t->traceparent, "%s", trace ? (const char *)trace : "");
    *ret = STEAL(t);
    return 0;
}

int turns_get(struct store *st, const char *id, struct turn **ret, struct err *err)
{
    CLEANUP(stmt_done)
    sqlite3_stmt *stmt = NULL;

    if (stmt_get(st, "SELECT " COLUMNS " FROM turns WHERE id = ?", &stmt, err) < 0 ||
        stmt_bind(st, stmt, err, "s", id) < 0)
        return -1;
    int rc = stmt_step(st, stmt, err);
    if (rc == 0)
        return err_set(err, ERR_NOT_FOUND, "there is no such turn");
    return rc < 0 ? -1 : from_row(stmt, ret, err);
}

static int channel_enabled(struct store *st, const char *key, struct channel **ret, struct err *err)
{
    if (channels_get(st, key, ret, err) < 0)
        return err->code == ERR_NOT_FOUND ? err_set(err, ERR_CHANNEL_DISABLED, "the channel is not enabled")
                                          : -1;
    return (*ret)->enabled ? 0 : err_set(err, ERR_CHANNEL_DISABLED, "the channel is not enabled");
}

int turns_insert(struct store *st, const struct turn_new *t, struct err *err)
{
    CLEANUP(channel_free_p)
    struct channel *c = NULL;
    CLEANUP(stmt_done)
    sqlite3_stmt *stmt = NULL;

    if (channel_enabled(st, t->channel, &c, err) < 0)
        return -1;
    if (stmt_get(st,
                 "INSERT INTO turns (id, channel, key_id, status, request, created_ms, finished_ms, "
                 "traceparent) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                 &stmt, err) < 0 ||
        stmt_bind(st, stmt, err, "ssssjiis", t->id, t->channel, t->key_id,
                  turn_status_name(t->ignored ? TURN_IGNORED : TURN_QUEUED), t->request, t->now_ms,
                  t->ignored ? t->now_ms : (int64_t)0, t->traceparent ? t->traceparent : "") < 0 ||
        stmt_run(st, stmt, err) < 0)
        return -1;
    return events_append(st, t->id, t->ignored ? "ended" : "queued", NULL, t->now_ms, err);
}

/* Whether a turn of this channel begins afresh, and which resets its success will carry out. A reset in the
 * turn's own body counts as one asked for now, so that it outlives a failure. */
static int take_reset(struct store *st, const struct turn *t, int64_t now_ms, bool *reset, int64_t *seen,
                      struct err *err)
{
    CLEANUP(channel_free_p)
    struct channel *c = NULL;
    bool own = json_is_true(json_object_get(t->request, "reset"));

    if (own && channels_reset(st, t->channel, now_ms, err) < 0)
        return -1;
    if (channels_get(st, t->channel, &c, err) < 0)
        return -1;
    *reset = channel_reset_pending(c);
    *seen = c->reset_requested;
    return 0;
}

int turns_start(struct store *st, const char *id, const char *slot, const char *boot, int64_t now_ms,
                bool *reset, int64_t *reset_seen, struct err *err)
{
    CLEANUP(turn_free_p)
    struct turn *t = NULL;
    CLEANUP(channel_free_p)
    struct channel *c = NULL;
    CLEANUP(stmt_done)
    sqlite3_stmt *update = NULL;
    CLEANUP(stmt_done)
    sqlite3_stmt *bind = NULL;

    if (turns_get(st, id, &t, err) < 0)
        return -1;
    if (t->status != TURN_QUEUED)
        return err_set(err, ERR_CONFLICT, "the turn is %s, not queued", turn_status_name(t->status));
    if (channel_enabled(st, t->channel, &c, err) < 0 || take_reset(st, t, now_ms, reset, reset_seen, err) < 0)
        return -1;
    if (stmt_get(st, "UPDATE turns SET status = 'running', started_ms = ? WHERE id = ?", &update, err) < 0 ||
        stmt_bind(st, update, err, "is", now_ms, id) < 0 || stmt_run(st, update, err) < 0)
        return -1;
    if (stmt_get(st, "INSERT INTO slots (slot, boot, turn_id) VALUES (?, ?, ?)", &bind, err) < 0 ||
        stmt_bind(st, bind, err, "sss", slot, boot, id) < 0 || stmt_run(st, bind, err) < 0)
        return -1;
    return events_append(st, id, "started", NULL, now_ms, err);
}

static int apply_reset(struct store *st, const char *channel, int64_t seen, struct err *err)
{
    CLEANUP(stmt_done)
    sqlite3_stmt *stmt = NULL;

    if (stmt_get(st,
                 "UPDATE channels SET reset_applied = ?2, version = version + 1 WHERE key = ?1 AND "
                 "reset_applied < ?2",
                 &stmt, err) < 0 ||
        stmt_bind(st, stmt, err, "si", channel, seen) < 0)
        return -1;
    return stmt_run(st, stmt, err);
}

int turns_end(struct store *st, const struct turn_end *e, struct err *err)
{
    CLEANUP(turn_free_p)
    struct turn *t = NULL;
    CLEANUP(stmt_done)
    sqlite3_stmt *stmt = NULL;
    CLEANUP(json_free)
    json_t *data = NULL;
    enum turn_status status = turn_status_of(e->ending);
    bool bad = e->ending != END_NONE;

    if (turns_get(st, e->id, &t, err) < 0)
        return -1;
    if (turn_ended(t->status))
        return err_set(err, ERR_CONFLICT, "the turn has ended as %s", turn_status_name(t->status));
    if (stmt_get(st,
                 "UPDATE turns SET status = ?, reply = ?, error_code = ?, error_detail = ?, metrics = ?, "
                 "stderr = ?, "
                 "finished_ms = ? WHERE id = ?",
                 &stmt, err) < 0 ||
        stmt_bind(st, stmt, err, "sjssjsis", turn_status_name(status), e->reply,
                  bad ? ending_name(e->ending) : NULL, bad ? ending_detail(e->ending) : NULL, e->metrics,
                  e->stderr_text, e->now_ms, e->id) < 0 ||
        stmt_run(st, stmt, err) < 0)
        return -1;
    if (!bad && e->reset_seen >= 0 && apply_reset(st, t->channel, e->reset_seen, err) < 0)
        return -1;
    data = json_pack("{s:s, s:s*}", "status", turn_status_name(status), "code",
                     bad ? ending_name(e->ending) : NULL);
    if (!data)
        return err_no_memory(err);
    return events_append(st, e->id, "ended", data, e->now_ms, err);
}

int turns_set_metrics(struct store *st, const char *id, const json_t *metrics, struct err *err)
{
    CLEANUP(stmt_done)
    sqlite3_stmt *stmt = NULL;

    if (stmt_get(st, "UPDATE turns SET metrics = ? WHERE id = ?", &stmt, err) < 0 ||
        stmt_bind(st, stmt, err, "js", metrics, id) < 0)
        return -1;
    return stmt_run(st, stmt, err);
}

int turns_cancel_queued(struct store *st, const char *channel, enum ending why, int64_t now_ms,
                        void (*each)(const char *id, void *arg), void *arg, struct err *err)
{
    for (;;) {
        CLEANUP(stmt_done)
        sqlite3_stmt *stmt = NULL;
        char id[TURN_ID_SIZE];
        if (stmt_get(st, "SELECT id FROM turns WHERE channel = ? AND status = 'queued' ORDER BY seq LIMIT 1",
                     &stmt, err) < 0 ||
            stmt_bind(st, stmt, err, "s", channel) < 0)
            return -1;
        int rc = stmt_step(st, stmt, err);
        if (rc <= 0)
            return rc;
        snprintf(id, sizeof id, "%s", (const char *)sqlite3_column_text(stmt, 0));
        struct turn_end end = {.id = id, .ending = why, .reset_seen = -1, .now_ms = now_ms};
        if (turns_end(st, &end, err) < 0)
            return -1;
        each(id, arg);
    }
}

int turns_each(struct store *st, enum turn_status status,
               int (*each)(const struct turn *, void *, struct err *), void *arg, struct err *err)
{
    CLEANUP(stmt_done)
    sqlite3_stmt *stmt = NULL;
    int rc;

    if (stmt_get(st, "SELECT " COLUMNS " FROM turns WHERE status = ? ORDER BY seq", &stmt, err) < 0 ||
        stmt_bind(st, stmt, err, "s", turn_status_name(status)) < 0)
        return -1;
    while ((rc = stmt_step(st, stmt, err)) == 1) {
        CLEANUP(turn_free_p)
        struct turn *t = NULL;
        if (from_row(stmt, &t, err) < 0)
            return -1;
        rc = each(t, arg, err);
        if (rc != 0)
            return rc < 0 ? -1 : 0;
    }
    return rc;
}
