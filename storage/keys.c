#include "storage/keys.h"

#include "base/id.h"
#include "base/limits.h"
#include "base/secret.h"
#include "base/utf8.h"
#include "storage/store.h"

#include <stdio.h>
#include <string.h>

#define COLUMNS "id, name, hash, scopes, globs, created_ms, revoked_ms"

static const struct {
    const char *name;
    unsigned bit;
} scopes_table[] = {
    {"turns", SCOPE_TURNS}, {"turns:read", SCOPE_TURNS_READ}, {"channels", SCOPE_CHANNELS},
    {"files", SCOPE_FILES}, {"admin", SCOPE_ADMIN},
};

void api_key_free(struct api_key *k)
{
    if (!k)
        return;
    free(k->name);
    json_decref(k->globs);
    free(k);
}

unsigned scope_parse(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(scopes_table); i++)
        if (strcmp(scopes_table[i].name, name) == 0)
            return scopes_table[i].bit;
    return 0;
}

json_t *scopes_json(unsigned scopes)
{
    json_t *list = json_array();

    for (size_t i = 0; list && i < ARRAY_LEN(scopes_table); i++)
        if ((scopes & scopes_table[i].bit) &&
            json_array_append_new(list, json_string(scopes_table[i].name)) < 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

int api_key_check(const char *name, unsigned scopes, const json_t *globs, struct err *err)
{
    size_t len = strlen(name), i;
    json_t *glob;

    if (!utf8_valid(name, len) || utf8_chars(name, len) < 1 || utf8_chars(name, len) > 64 ||
        utf8_has_control(name, len))
        return err_set(err, ERR_INVALID, "a key's name has 1 to 64 characters and no control characters");
    if (scopes == 0)
        return err_set(err, ERR_INVALID,
                       "a key needs at least one scope: turns, turns:read, channels, files, admin");
    if (json_array_size(globs) == 0)
        return err_set(err, ERR_INVALID, "a key needs at least one channel pattern, as in web:*");
    json_array_foreach(globs, i, glob) {
        len = json_string_length(glob);
        if (len < 1 || len > LIMIT_CHANNEL_KEY || utf8_has_control(json_string_value(glob), len))
            return err_set(err, ERR_INVALID, "a channel pattern has 1 to %d bytes and no control characters",
                           LIMIT_CHANNEL_KEY);
    }
    return 0;
}

int keys_create(struct store *st, const char *name, unsigned scopes, const json_t *globs, int64_t now_ms,
                char id[KEY_ID_SIZE], char token[KEY_TOKEN_SIZE], struct err *err)
{
    CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;
    unsigned char hash[32];
    char secret[65];

    if (api_key_check(name, scopes, globs, err) < 0)
        return -1;
    id_hex(id, 8);
    id_hex(secret, 32);
    snprintf(token, KEY_TOKEN_SIZE, "clo_%s_%s", id, secret);
    secret_wipe(secret, sizeof secret);
    secret_sha256(token, strlen(token), hash);
    if (stmt_get(st,
                 "INSERT INTO api_keys (id, name, hash, scopes, globs, created_ms) VALUES (?, ?, ?, ?, ?, ?)",
                 &stmt, err) < 0 ||
        stmt_bind(st, stmt, err, "ssbiji", id, name, hash, sizeof hash, (int64_t)scopes, globs, now_ms) < 0)
        return -1;
    return stmt_run(st, stmt, err);
}

static int from_row(sqlite3_stmt *stmt, struct api_key **ret, struct err *err)
{
    CLEANUP(api_key_free_p) struct api_key *k = calloc(1, sizeof *k);

    if (!k)
        return err_no_memory(err);
    const unsigned char *id = sqlite3_column_text(stmt, 0);
    const void *hash = sqlite3_column_blob(stmt, 2);
    if (!id || !hash || sqlite3_column_bytes(stmt, 2) != sizeof k->hash)
        return err_set(err, ERR_DATABASE, "a stored key is damaged");
    snprintf(k->id, sizeof k->id, "%s", (const char *)id);
    memcpy(k->hash, hash, sizeof k->hash);
    if (column_text(stmt, 1, &k->name, err) < 0 || column_json(stmt, 4, &k->globs, err) < 0)
        return -1;
    k->scopes = (unsigned)sqlite3_column_int64(stmt, 3);
    if (!k->name || api_key_check(k->name, k->scopes, k->globs, err) < 0)
        return err_set(err, ERR_DATABASE, "a stored key is damaged");
    k->created_ms = sqlite3_column_int64(stmt, 5);
    k->revoked_ms = sqlite3_column_int64(stmt, 6);
    *ret = STEAL(k);
    return 0;
}

int keys_get(struct store *st, const char *id, struct api_key **ret, struct err *err)
{
    CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;

    if (stmt_get(st, "SELECT " COLUMNS " FROM api_keys WHERE id = ?", &stmt, err) < 0 ||
        stmt_bind(st, stmt, err, "s", id) < 0)
        return -1;
    int rc = stmt_step(st, stmt, err);
    if (rc == 0)
        return err_set(err, ERR_NOT_FOUND, "there is no such key");
    return rc < 0 ? -1 : from_row(stmt, ret, err);
}

int keys_revoke(struct store *st, const char *id, int64_t now_ms, struct err *err)
{
    CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;

    if (stmt_get(st,
                 "UPDATE api_keys SET revoked_ms = CASE revoked_ms WHEN 0 THEN ?2 ELSE revoked_ms END WHERE "
                 "id = ?1",
                 &stmt, err) < 0 ||
        stmt_bind(st, stmt, err, "si", id, now_ms) < 0 || stmt_run(st, stmt, err) < 0)
        return -1;
    return sqlite3_changes(st->sqlite) ? 0 : err_set(err, ERR_NOT_FOUND, "there is no such key");
}

int keys_each(struct store *st, int (*each)(const struct api_key *, void *, struct err *), void *arg,
              struct err *err)
{
    CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;
    int rc;

    if (stmt_get(st, "SELECT " COLUMNS " FROM api_keys ORDER BY n", &stmt, err) < 0)
        return -1;
    while ((rc = stmt_step(st, stmt, err)) == 1) {
        CLEANUP(api_key_free_p) struct api_key *k = NULL;
        if (from_row(stmt, &k, err) < 0)
            return -1;
        rc = each(k, arg, err);
        if (rc != 0)
            return rc < 0 ? -1 : 0;
    }
    return rc;
}
