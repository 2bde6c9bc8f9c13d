#include "rig.h"

#include "base/fs.h"
#include "base/secret.h"
#include "storage/store.h"

struct making {
    const char *name;
    unsigned scopes;
    json_t *globs;
    char id[KEY_ID_SIZE], token[KEY_TOKEN_SIZE];
};

static int create_job(struct store *st, void *arg, struct err *err)
{
    struct making *m = arg;
    return keys_create(st, m->name, m->scopes, m->globs, 1000, m->id, m->token, err);
}

struct getting {
    const char *id;
    struct api_key *key;
};

static int get_job(struct store *st, void *arg, struct err *err)
{
    struct getting *g = arg;
    return keys_get(st, g->id, &g->key, err);
}

static int revoke_job(struct store *st, void *arg, struct err *err)
{
    static int64_t now = 5000;
    return keys_revoke(st, arg, now++, err);
}

Test(keys, keep_the_hash_and_never_the_token)
{
    struct rig r = rig_open();
    struct making m = {
        .name = "bot", .scopes = SCOPE_TURNS | SCOPE_FILES, .globs = rig_json("[\"web:*\",\"a:b\"]")};
    struct err err;
    unsigned char hash[32];

    cr_assert_eq(db_write(r.db, create_job, &m, &err), 0, "%s", err.text);
    cr_assert_eq(strlen(m.token), 4 + 16 + 1 + 64);
    cr_assert_eq(strncmp(m.token, "clo_", 4), 0);
    cr_assert_eq(strncmp(m.token + 4, m.id, 16), 0);
    struct getting g = {.id = m.id};
    cr_assert_eq(db_read(r.db, get_job, &g, &err), 0, "%s", err.text);
    secret_sha256(m.token, strlen(m.token), hash);
    cr_assert_eq(memcmp(hash, g.key->hash, 32), 0);
    cr_assert_str_eq(g.key->name, "bot");
    cr_assert_eq(g.key->scopes, SCOPE_TURNS | SCOPE_FILES);
    cr_assert(json_equal(g.key->globs, m.globs));
    cr_assert(g.key->created_ms == 1000 && g.key->revoked_ms == 0);
    api_key_free(g.key);
    db_close(STEAL(r.db));
    struct buf file = BUF_INIT(1 << 24);
    cr_assert_eq(fs_read(r.path, &file, &err), 0, "%s", err.text);
    cr_assert_not_null(memmem(file.data, file.len, m.id, 16), "the id is there");
    cr_assert_null(memmem(file.data, file.len, m.token + 21, 64), "the secret is not");
    cr_assert_null(memmem(file.data, file.len, m.token + 21, 16));
    buf_free(&file);
    json_decref(m.globs);
    rig_close(&r);
}

Test(keys, revocation_keeps_its_first_time)
{
    struct rig r = rig_open();
    struct making m = {.name = "bot", .scopes = SCOPE_ADMIN, .globs = rig_json("[\"*\"]")};
    struct err err;

    cr_assert_eq(db_write(r.db, create_job, &m, &err), 0, "%s", err.text);
    cr_assert_eq(db_write(r.db, revoke_job, m.id, &err), 0, "%s", err.text);
    cr_assert_eq(db_write(r.db, revoke_job, m.id, &err), 0, "%s", err.text);
    struct getting g = {.id = m.id};
    cr_assert_eq(db_read(r.db, get_job, &g, &err), 0);
    cr_assert_eq(g.key->revoked_ms, 5000);
    api_key_free(g.key);
    char nobody[] = "0000000000000000";
    cr_assert_eq(db_write(r.db, revoke_job, nobody, &err), -1);
    cr_assert_eq(err.code, ERR_NOT_FOUND);
    g = (struct getting){.id = nobody};
    cr_assert_eq(db_read(r.db, get_job, &g, &err), -1);
    cr_assert_eq(err.code, ERR_NOT_FOUND);
    json_decref(m.globs);
    rig_close(&r);
}

static int name_of(const struct api_key *k, void *arg, struct err *err)
{
    (void)err;
    strcat(strcat(arg, k->name), " ");
    return 0;
}

static int list_job(struct store *st, void *arg, struct err *err)
{
    return keys_each(st, name_of, arg, err);
}

Test(keys, are_listed_in_order_of_creation)
{
    struct rig r = rig_open();
    struct making m = {.scopes = SCOPE_TURNS, .globs = rig_json("[\"*\"]")};
    static const char *const names[] = {"z", "a", "m"};
    char got[64] = "";
    struct err err;

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        m.name = names[i];
        cr_assert_eq(db_write(r.db, create_job, &m, &err), 0, "%s", err.text);
    }
    cr_assert_eq(db_read(r.db, list_job, got, &err), 0);
    cr_assert_str_eq(got, "z a m ");
    json_decref(m.globs);
    rig_close(&r);
}

Test(keys, have_an_error_for_each_rule)
{
    char long_name[66], long_glob[300];
    static const struct {
        const char *name;
        unsigned scopes;
        const char *globs, *part;
    } rows[] = {
        {"ok", SCOPE_TURNS, "[\"*\"]", NULL},
        {"", SCOPE_TURNS, "[\"*\"]", "name"},
        {"a\nb", SCOPE_TURNS, "[\"*\"]", "name"},
        {"a\xC2\x9B", SCOPE_TURNS, "[\"*\"]", "name"},
        {"\xFF", SCOPE_TURNS, "[\"*\"]", "name"},
        {"ok", 0, "[\"*\"]", "scope"},
        {"ok", SCOPE_TURNS, "[]", "pattern"},
        {"ok", SCOPE_TURNS, "{}", "pattern"},
        {"ok", SCOPE_TURNS, "[\"\"]", "pattern"},
        {"ok", SCOPE_TURNS, "[1]", "pattern"},
        {"ok", SCOPE_TURNS, "[\"web:\\u001b\"]", "pattern"},
    };
    struct err err;
    json_t *globs;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        globs = rig_json(rows[i].globs);
        int rc = api_key_check(rows[i].name, rows[i].scopes, globs, &err);
        cr_assert_eq(rc, rows[i].part ? -1 : 0, "row %zu", i);
        if (rc < 0)
            cr_assert(err.code == ERR_INVALID && strstr(err.text, rows[i].part), "row %zu: %s", i, err.text);
        json_decref(globs);
    }
    memset(long_name, 'n', 65);
    long_name[65] = '\0';
    globs = rig_json("[\"*\"]");
    cr_assert_eq(api_key_check(long_name, 1, globs, &err), -1);
    cr_assert_eq(api_key_check(long_name + 1, 1, globs, &err), 0);
    json_decref(globs);
    memset(long_glob, 'g', 201);
    long_glob[201] = '\0';
    globs = json_pack("[s]", long_glob);
    cr_assert_eq(api_key_check("ok", 1, globs, &err), -1);
    json_decref(globs);
    globs = json_pack("[s]", long_glob + 1);
    cr_assert_eq(api_key_check("ok", 1, globs, &err), 0);
    json_decref(globs);
}

Test(keys, scopes_have_names)
{
    static const char *const names[] = {"turns", "turns:read", "channels", "files", "admin"};
    json_t *all = scopes_json(SCOPE_TURNS | SCOPE_TURNS_READ | SCOPE_CHANNELS | SCOPE_FILES | SCOPE_ADMIN);

    cr_assert_eq(json_array_size(all), ARRAY_LEN(names));
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        json_t *one = scopes_json(scope_parse(names[i]));
        cr_assert_eq(json_array_size(one), 1);
        cr_assert_str_eq(json_string_value(json_array_get(one, 0)), names[i]);
        cr_assert_str_eq(json_string_value(json_array_get(all, i)), names[i]);
        json_decref(one);
    }
    cr_assert_eq(scope_parse("turn"), 0);
    cr_assert_eq(scope_parse(""), 0);
    cr_assert_eq(scope_parse("Turns"), 0);
    json_decref(all);
}

Test(keys, damaged_rows_fail_closed)
{
    struct rig r = rig_open();
    struct making m = {.name = "bot", .scopes = SCOPE_TURNS, .globs = rig_json("[\"web:*\"]")};
    static const char *const damage[] = {"[1]", "{}", "[]", "\"*\"", "[\"web:*\", null]", "no json"};
    struct err err;

    cr_assert_eq(db_write(r.db, create_job, &m, &err), 0, "%s", err.text);
    for (size_t i = 0; i < ARRAY_LEN(damage); i++) {
        char sql[128];
        snprintf(sql, sizeof sql, "UPDATE api_keys SET globs = '%s'", damage[i]);
        rig_sql(r.db, sql);
        struct getting g = {.id = m.id};
        cr_assert_eq(db_read(r.db, get_job, &g, &err), -1, "%s", damage[i]);
        cr_assert_eq(err.code, ERR_DATABASE, "%s: %s", damage[i], err.text);
    }
    json_decref(m.globs);
    rig_close(&r);
}
