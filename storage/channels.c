#include "storage/channels.h"

#include "base/limits.h"
#include "base/utf8.h"
#include "storage/store.h"

#include <string.h>

#define COLUMNS "key, enabled, version, reset_requested, reset_applied, created_ms, updated_ms"

void channel_free(struct channel *c)
{
    if (!c)
        return;
    free(c->key);
    free(c);
}

int channel_key_check(const char *key, struct err *err)
{
    size_t len = strlen(key);
    const char *p = key;

    if (len > LIMIT_CHANNEL_KEY)
        return err_set(err, ERR_INVALID, "a channel key has at most %d bytes", LIMIT_CHANNEL_KEY);
    if (!utf8_valid(key, len))
        return err_set(err, ERR_INVALID, "a channel key is UTF-8");
    if (utf8_has_control(key, len))
        return err_set(err, ERR_INVALID, "a channel key holds no control characters");
    if (*p < 'a' || *p > 'z')
        return err_set(err, ERR_INVALID, "a channel key starts with a lower-case letter, as in web:lobby");
    while ((*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9') || *p == '_' || *p == '-')
        p++;
    if (p[0] != ':' || p[1] == '\0')
        return err_set(err, ERR_INVALID, "a channel key has a kind, a colon and a name, as in web:lobby");
    return 0;
}

static int from_row(sqlite3_stmt *stmt, struct channel **ret, struct err *err)
{
    struct channel *c = calloc(1, sizeof *c);

    if (!c)
        return err_no_memory(err);
    if (column_text(stmt, 0, &c->key, err) < 0) {
        channel_free(c);
        return -1;
    }
    c->enabled = sqlite3_column_int64(stmt, 1) != 0;
    c->version = sqlite3_column_int64(stmt, 2);
    c->reset_requested = sqlite3_column_int64(stmt, 3);
    c->reset_applied = sqlite3_column_int64(stmt, 4);
    c->created_ms = sqlite3_column_int64(stmt, 5);
    c->updated_ms = sqlite3_column_int64(stmt, 6);
    *ret = c;
    return 0;
}

int channels_get(struct store *st, const char *key, struct channel **ret, struct err *err)
{
    CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;

    if (stmt_get(st, "SELECT " COLUMNS " FROM channels WHERE key = ?", &stmt, err) < 0 ||
        stmt_bind(st, stmt, err, "s", key) < 0)
        return -1;
    int rc = stmt_step(st, stmt, err);
    if (rc == 0)
        return err_set(err, ERR_NOT_FOUND, "there is no such channel");
    return rc < 0 ? -1 : from_row(stmt, ret, err);
}

int channels_expect_enabled(struct store *st, const char *key, struct channel **ret, struct err *err)
{
    int rc = channels_get(st, key, ret, err);

    if (rc < 0 && err->code != ERR_NOT_FOUND)
        return -1;
    if (rc < 0 || !(*ret)->enabled)
        return err_set(err, ERR_CHANNEL_DISABLED, "turn the channel on first: PUT /v1/channels/{key}");
    return 0;
}

/* The channel's version, 0 when there is none. */
static int version_of(struct store *st, const char *key, int64_t *ret, struct err *err)
{
    CLEANUP(channel_free_p) struct channel *c = NULL;

    *ret = 0;
    if (channels_get(st, key, &c, err) < 0)
        return err->code == ERR_NOT_FOUND ? 0 : -1;
    *ret = c->version;
    return 0;
}

static int expect_version(struct store *st, const char *key, int64_t wanted, int64_t *have, struct err *err)
{
    if (version_of(st, key, have, err) < 0)
        return -1;
    if (wanted >= 0 && wanted != *have)
        return err_set(err, ERR_PRECONDITION, *have ? "the channel has changed" : "there is no such channel");
    return 0;
}

int channels_put(struct store *st, const char *key, bool enabled, int64_t if_version, int64_t now_ms,
                 struct err *err)
{
    CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;
    int64_t have = 0;

    if (channel_key_check(key, err) < 0 || expect_version(st, key, if_version, &have, err) < 0)
        return -1;
    if (stmt_get(
            st,
            "INSERT INTO channels (key, enabled, version, created_ms, updated_ms) VALUES (?1, ?2, 1, ?3, ?3) "
            "ON CONFLICT (key) DO UPDATE SET enabled = ?2, version = version + 1, updated_ms = ?3 "
            "WHERE enabled <> ?2",
            &stmt, err) < 0 ||
        stmt_bind(st, stmt, err, "sii", key, (int64_t)enabled, now_ms) < 0)
        return -1;
    return stmt_run(st, stmt, err);
}

int channels_delete(struct store *st, const char *key, int64_t if_version, struct err *err)
{
    CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;
    int64_t have = 0;

    if (expect_version(st, key, if_version, &have, err) < 0)
        return -1;
    if (have == 0)
        return err_set(err, ERR_NOT_FOUND, "there is no such channel");
    if (stmt_get(st, "DELETE FROM channels WHERE key = ?", &stmt, err) < 0 ||
        stmt_bind(st, stmt, err, "s", key) < 0)
        return -1;
    return stmt_run(st, stmt, err);
}

int channels_reset(struct store *st, const char *key, int64_t now_ms, struct err *err)
{
    CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;

    if (stmt_get(st,
                 "UPDATE channels SET reset_requested = reset_requested + 1, version = version + 1, "
                 "updated_ms = ?2 "
                 "WHERE key = ?1",
                 &stmt, err) < 0 ||
        stmt_bind(st, stmt, err, "si", key, now_ms) < 0 || stmt_run(st, stmt, err) < 0)
        return -1;
    return sqlite3_changes(st->sqlite) ? 0 : err_set(err, ERR_NOT_FOUND, "there is no such channel");
}

int channels_each(struct store *st, const char *after,
                  int (*each)(const struct channel *, void *, struct err *), void *arg, struct err *err)
{
    CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;
    int rc;

    if (stmt_get(st, "SELECT " COLUMNS " FROM channels WHERE key > ? ORDER BY key", &stmt, err) < 0 ||
        stmt_bind(st, stmt, err, "s", after) < 0)
        return -1;
    while ((rc = stmt_step(st, stmt, err)) == 1) {
        CLEANUP(channel_free_p) struct channel *c = NULL;
        if (from_row(stmt, &c, err) < 0)
            return -1;
        rc = each(c, arg, err);
        if (rc != 0)
            return rc < 0 ? -1 : 0;
    }
    return rc;
}
