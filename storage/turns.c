/* What happens to turns: accepted, started, ended, canceled, recovered. */
#include "storage/turns.h"

#include "base/buf.h"
#include "storage/channels.h"
#include "storage/store.h"

#include <stdio.h>
#include <string.h>

/* Right after the turn's row: its number is the last one given, and it has no event yet. */
static int append_first(struct store *st, const struct turn_new *t, struct err *err)
{
    CLEANUP(json_free)
    json_t *data = t->ignored ? json_pack("{s:s}", "status", turn_status_name(TURN_IGNORED))
                              : json_pack("{s:I}", "position", (json_int_t)t->position);

    CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;
    int64_t seq = sqlite3_last_insert_rowid(st->sqlite);

    if (!data)
        return err_no_memory(err);
    if (stmt_get(st, "INSERT INTO events (turn, n, type, at_ms, data) VALUES (?, 1, ?, ?, ?)", &stmt, err) <
            0 ||
        stmt_bind(st, stmt, err, "isij", seq, t->ignored ? "ended" : "queued", t->now_ms, data) < 0)
        return -1;
    return stmt_run(st, stmt, err);
}

int turns_insert(struct store *st, const struct turn_new *t, struct err *err)
{
    CLEANUP(channel_free_p) struct channel *c = NULL;
    CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;
    const char *speaker = json_str(json_object_get(t->request, "speaker"), "id");

    if (channels_expect_enabled(st, t->channel, &c, err) < 0)
        return -1;
    if (stmt_get(st,
                 "INSERT INTO turns (id, channel, key_id, status, request, created_ms, finished_ms, "
                 "traceparent, speaker_id, max_attempts, accept_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                 &stmt, err) < 0 ||
        stmt_bind(st, stmt, err, "ssssjiissii", t->id, t->channel, t->key_id,
                  turn_status_name(t->ignored ? TURN_IGNORED : TURN_QUEUED), t->request, t->now_ms,
                  t->ignored ? t->now_ms : (int64_t)0, t->traceparent ? t->traceparent : "",
                  speaker ? speaker : "", (int64_t)(t->max_attempts > 1 ? t->max_attempts : 1),
                  t->accept_ms) < 0 ||
        stmt_run(st, stmt, err) < 0)
        return -1;
    return append_first(st, t, err);
}

/* Whether a turn of this channel begins afresh, and which resets its success will carry out. */
static int read_reset(struct store *st, const struct turn *t, bool *reset, int64_t *seen, struct err *err)
{
    CLEANUP(channel_free_p) struct channel *c = NULL;

    if (channels_get(st, t->channel, &c, err) < 0)
        return -1;
    *reset = channel_reset_pending(c);
    *seen = c->reset_requested;
    return 0;
}

/* Running in this very slot: its start is tried again because nobody knew whether the first commit had
 * reached the disk. */
static int is_started(struct store *st, const struct turn *t, const char *slot, bool *ret, struct err *err)
{
    CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;

    if (stmt_get(st, "SELECT 1 FROM slots WHERE slot = ? AND turn_id = ?", &stmt, err) < 0 ||
        stmt_bind(st, stmt, err, "ss", slot, t->id) < 0)
        return -1;
    int rc = stmt_step(st, stmt, err);
    *ret = rc == 1 && t->status == TURN_RUNNING;
    return rc < 0 ? -1 : 0;
}

int turns_start(struct store *st, const char *id, const char *slot, const char *boot, int64_t now_ms,
                bool *reset, int64_t *reset_seen, struct err *err)
{
    CLEANUP(turn_free_p) struct turn *t = NULL;
    CLEANUP(channel_free_p) struct channel *c = NULL;
    CLEANUP(stmt_done) sqlite3_stmt *update = NULL;
    CLEANUP(stmt_done) sqlite3_stmt *bind = NULL;
    bool started = false;

    if (turns_get(st, id, &t, err) < 0)
        return -1;
    if (is_started(st, t, slot, &started, err) < 0)
        return -1;
    if (started)
        return read_reset(st, t, reset, reset_seen, err);
    if (t->status != TURN_QUEUED)
        return err_set(err, ERR_CONFLICT, "the turn is %s, not queued", turn_status_name(t->status));
    if (channels_expect_enabled(st, t->channel, &c, err) < 0)
        return -1;
    /* A reset in the turn's own body counts as one asked for now, so that it outlives a failure. */
    if (json_is_true(json_object_get(t->request, "reset")) && channels_reset(st, t->channel, now_ms, err) < 0)
        return -1;
    if (read_reset(st, t, reset, reset_seen, err) < 0)
        return -1;
    if (stmt_get(st,
                 "UPDATE turns SET status = 'running', started_ms = ?, attempts = attempts + 1 WHERE id = ?",
                 &update, err) < 0 ||
        stmt_bind(st, update, err, "is", now_ms, id) < 0 || stmt_run(st, update, err) < 0)
        return -1;
    if (stmt_get(st, "INSERT INTO slots (slot, boot, turn_id) VALUES (?, ?, ?)", &bind, err) < 0 ||
        stmt_bind(st, bind, err, "sss", slot, boot, id) < 0 || stmt_run(st, bind, err) < 0)
        return -1;
    return events_append(st, id, "started", NULL, now_ms, err);
}

static int apply_reset(struct store *st, const char *channel, int64_t seen, struct err *err)
{
    CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;

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
    CLEANUP(turn_free_p) struct turn *t = NULL;
    CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;
    CLEANUP(json_free) json_t *data = NULL;
    enum turn_status status = turn_status_of(e->ending);
    bool bad = e->ending != END_NONE;

    if (turns_get(st, e->id, &t, err) < 0)
        return -1;
    if (turn_ended(t->status))
        return err_set(err, ERR_CONFLICT, "the turn has ended as %s", turn_status_name(t->status));
    if (stmt_get(st,
                 "UPDATE turns SET status = ?, reply = ?, error_code = ?, error_detail = ?, metrics = ?, "
                 "logs = ?, spans = ?, finished_ms = ? WHERE id = ?",
                 &stmt, err) < 0 ||
        stmt_bind(st, stmt, err, "sjssjjjis", turn_status_name(status), e->reply,
                  bad ? ending_name(e->ending) : NULL, bad ? ending_detail(e->ending) : NULL, e->metrics,
                  e->logs, e->spans, e->now_ms, e->id) < 0 ||
        stmt_run(st, stmt, err) < 0)
        return -1;
    if (!bad && e->reset_seen >= 0 && apply_reset(st, t->channel, e->reset_seen, err) < 0)
        return -1;
    if (e->reply && events_append(st, e->id, "reply", e->reply, e->now_ms, err) < 0)
        return -1;
    data = json_pack("{s:s, s:s*}", "status", turn_status_name(status), "code",
                     bad ? ending_name(e->ending) : NULL);
    if (!data)
        return err_no_memory(err);
    return events_append(st, e->id, "ended", data, e->now_ms, err);
}

/* Their ids, each TURN_ID_SIZE bytes, since a walk must not change what it walks over. */
static int find_queued(struct store *st, const char *channel, struct buf *ids, struct err *err)
{
    CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;
    char id[TURN_ID_SIZE];
    int rc;

    if (stmt_get(st,
                 "SELECT id FROM turns WHERE status = 'queued' AND status IN ('queued', 'running') AND "
                 "channel = ? "
                 "ORDER BY seq",
                 &stmt, err) < 0 ||
        stmt_bind(st, stmt, err, "s", channel) < 0)
        return -1;
    while ((rc = stmt_step(st, stmt, err)) == 1) {
        const unsigned char *text = sqlite3_column_text(stmt, 0);
        if (!text)
            return err_no_memory(err);
        snprintf(id, sizeof id, "%s", (const char *)text);
        if (buf_add(ids, id, sizeof id, err) < 0)
            return -1;
    }
    return rc;
}

int turns_cancel_queued(struct store *st, const char *channel, enum ending why, int64_t now_ms,
                        void (*each)(const char *id, void *arg), void *arg, struct err *err)
{
    CLEANUP(buf_free) struct buf ids = BUF_INIT(SIZE_MAX / 2);

    if (find_queued(st, channel, &ids, err) < 0)
        return -1;
    for (size_t at = 0; at < ids.len; at += TURN_ID_SIZE) {
        struct turn_end end = {.id = ids.data + at, .ending = why, .reset_seen = -1, .now_ms = now_ms};
        if (turns_end(st, &end, err) < 0)
            return -1;
        each(end.id, arg);
    }
    return 0;
}

int turns_recover(struct store *st, const char *id, int64_t now_ms, bool *again, struct err *err)
{
    CLEANUP(turn_free_p) struct turn *t = NULL;
    CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;

    if (turns_get(st, id, &t, err) < 0)
        return -1;
    *again = t->status == TURN_RUNNING && t->attempts < t->max_attempts && t->cancel_requested_ms == 0;
    if (!*again) {
        struct turn_end end = {.id = id,
                               .ending = t->cancel_requested_ms ? END_CANCELED : END_SERVER_RESTARTED,
                               .reset_seen = -1,
                               .now_ms = now_ms};
        return turns_end(st, &end, err);
    }
    if (stmt_get(st, "UPDATE turns SET status = 'queued', started_ms = 0 WHERE id = ?", &stmt, err) < 0 ||
        stmt_bind(st, stmt, err, "s", id) < 0 || stmt_run(st, stmt, err) < 0)
        return -1;
    CLEANUP(json_free) json_t *data = json_pack("{s:i, s:i}", "position", 0, "attempts", t->attempts);
    return data ? events_append(st, id, "queued", data, now_ms, err) : err_no_memory(err);
}

int turns_cancel(struct store *st, const char *id, bool alive, int64_t now_ms, bool *ended, struct err *err)
{
    CLEANUP(turn_free_p) struct turn *t = NULL;
    CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;

    if (turns_get(st, id, &t, err) < 0)
        return -1;
    *ended = t->status != TURN_RUNNING;
    if (turn_ended(t->status) && !alive)
        return 0;
    if (stmt_get(st,
                 "UPDATE turns SET cancel_requested_ms = CASE cancel_requested_ms WHEN 0 THEN ?2 ELSE "
                 "cancel_requested_ms END WHERE id = ?1",
                 &stmt, err) < 0 ||
        stmt_bind(st, stmt, err, "si", id, now_ms) < 0 || stmt_run(st, stmt, err) < 0)
        return -1;
    if (t->status != TURN_QUEUED)
        return 0;
    struct turn_end end = {.id = id, .ending = END_CANCELED, .reset_seen = -1, .now_ms = now_ms};
    return turns_end(st, &end, err);
}
