#include "auth/auth.h"
#include "base/secret.h"

#include "../scratch.h"

#include <fnmatch.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

Test(glob, star_stands_for_any_run_and_all_else_for_itself)
{
    static const struct {
        const char *glob, *text;
        bool match;
    } rows[] = {
        {"web:*", "web:lobby", true},
        {"web:*", "web:", true},
        {"web:*", "webx:a", false},
        {"*", "", true},
        {"*", "a:b", true},
        {"", "", true},
        {"", "a", false},
        {"a*b*c", "a--b--c", true},
        {"a*b*c", "a--b--", false},
        {"*b", "ab b", true},
        {"a?c", "abc", false},
        {"a?c", "a?c", true},
        {"[a]", "a", false},
        {"[a]", "[a]", true},
        {"a\\*", "a\\xyz", true},
        {"**a**", "a", true},
        {"*aab", "aaaaaab", true},
        {"web:*", "WEB:a", false},
        {"a*", "*", false},
        {"*\xC3\xA9", "x\xC3\xA9", true},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        cr_assert_eq(auth_glob(rows[i].glob, rows[i].text), rows[i].match, "%s on %s", rows[i].glob,
                     rows[i].text);
}

Test(glob, agrees_with_fnmatch_where_only_stars_are_special)
{
    unsigned seed = 1;
    char glob[16], text[20];

    for (int round = 0; round < 200000; round++) {
        size_t g = 0, t = 0;
        seed = seed * 1664525u + 1013904223u;
        for (unsigned bits = seed >> 8, n = bits % 9; n > 0; n--, bits /= 3)
            glob[g++] = "ab*"[bits % 3];
        seed = seed * 1664525u + 1013904223u;
        for (unsigned bits = seed >> 8, n = bits % 12; n > 0; n--, bits /= 2)
            text[t++] = "ab"[bits % 2];
        glob[g] = text[t] = '\0';
        cr_assert_eq(auth_glob(glob, text), fnmatch(glob, text, 0) == 0, "%s on %s", glob, text);
    }
}

Test(glob, a_hostile_pattern_is_not_slow)
{
    char glob[201], text[201];

    memset(text, 'a', 200);
    for (int i = 0; i < 200; i++)
        glob[i] = i % 2 ? 'a' : '*';
    glob[199] = 'b';
    glob[200] = text[200] = '\0';
    for (int i = 0; i < 1000; i++)
        cr_assert_not(auth_glob(glob, text));
}

static struct principal *make(const char *id, unsigned scopes, const char *globs)
{
    struct principal *p = calloc(1, sizeof *p);
    struct err err;

    snprintf(p->key_id, sizeof p->key_id, "%s", id);
    p->scopes = scopes;
    if (globs)
        cr_assert_eq(json_parse(globs, strlen(globs), &p->globs, &err), 0, "%s", err.text);
    return p;
}

Test(allows, truth_table)
{
    /* Reading a turn: `turns` suffices for one's own, `turns:read` for anybody's. */
    static const struct {
        unsigned scopes;
        const char *globs, *channel, *owner;
        bool want;
    } rows[] = {
        {SCOPE_TURNS, "[\"web:*\"]", "web:a", "me", true},
        {SCOPE_TURNS, "[\"web:*\"]", "web:a", "other", false},
        {SCOPE_TURNS, "[\"web:*\"]", "api:a", "me", false},
        {SCOPE_TURNS, "[\"web:*\"]", "web:a", NULL, false},
        {SCOPE_TURNS_READ, "[\"web:*\"]", "web:a", "me", true},
        {SCOPE_TURNS_READ, "[\"web:*\"]", "web:a", "other", true},
        {SCOPE_TURNS_READ, "[\"web:*\"]", "web:a", "", true},
        {SCOPE_TURNS_READ, "[\"web:*\"]", "api:a", "other", false},
        {SCOPE_TURNS_READ, "[\"api:*\",\"web:a\"]", "web:a", "other", true},
        {SCOPE_TURNS_READ, "[\"api:*\",\"web:a\"]", "web:ab", "other", false},
        {SCOPE_CHANNELS | SCOPE_FILES, "[\"*\"]", "web:a", "me", false},
        {SCOPE_ADMIN, "[\"web:*\"]", "web:a", "other", true},
        {SCOPE_ADMIN, "[\"web:*\"]", "web:a", NULL, true},
        {SCOPE_ADMIN, "[\"web:*\"]", "api:a", "me", false},
        {SCOPE_ADMIN, "[]", "web:a", "me", false},
        {0, "[\"*\"]", "web:a", "me", false},
        {SCOPE_ADMIN, NULL, "web:a", "other", true},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct principal *p = make("me", rows[i].scopes, rows[i].globs);
        cr_assert_eq(auth_allows(p, SCOPE_TURNS, SCOPE_TURNS_READ, rows[i].channel, rows[i].owner),
                     rows[i].want, "row %zu", i);
        principal_free(p);
    }
}

Test(allows, scopes_alone)
{
    for (unsigned have = 0; have < 32; have++)
        for (unsigned want = 0; want < 32; want++) {
            struct principal *p = make("me", have, "[\"*\"]");
            cr_assert_eq(auth_scope(p, want), (have & want) || (have & SCOPE_ADMIN));
            principal_free(p);
        }
}

Test(allows, the_local_administrator_sees_every_channel)
{
    struct principal *p = NULL;
    struct err err;

    cr_assert_eq(principal_local(&p, &err), 0);
    cr_assert_str_eq(p->key_id, "");
    cr_assert(auth_allows(p, SCOPE_TURNS, SCOPE_TURNS_READ, "any:thing", "someone"));
    cr_assert(auth_allows(p, 0, SCOPE_CHANNELS, "any:thing", NULL));
    principal_free(p);
    principal_free(NULL);
}

struct making {
    json_t *globs;
    char id[KEY_ID_SIZE], token[KEY_TOKEN_SIZE];
};

static int create_job(struct store *st, void *arg, struct err *err)
{
    struct making *m = arg;
    return keys_create(st, "bot", SCOPE_TURNS | SCOPE_FILES, m->globs, 1, m->id, m->token, err);
}

static int revoke_job(struct store *st, void *arg, struct err *err)
{
    return keys_revoke(st, arg, 2, err);
}

static void refused(struct known *keys, const char *header)
{
    struct principal *p = NULL;
    struct err err = {0};

    cr_assert_eq(principal_from_header(keys, header, &p, &err), -1, "%s", header ? header : "none");
    cr_assert_null(p);
    cr_assert_eq(err.code, ERR_UNAUTHORIZED, "%s", err.text);
    cr_assert(err_status(err.code) == 401);
    cr_assert(!header || strlen(header) < 12 || !strstr(err.text, header + 8), "the answer repeats no token");
}

Test(header, only_a_key_in_force_is_somebody)
{
    char *dir = scratch_dir(), *path = scratch_path(dir, "state.db"), header[200];
    struct making m = {.globs = json_pack("[ss]", "web:*", "api:x")};
    struct principal *p = NULL;
    struct db *db = NULL;
    struct known *keys = NULL;
    struct err err;

    cr_assert_eq(secret_init(&err), 0);
    cr_assert_eq(db_open(path, DB_WRITE, &db, &err), 0, "%s", err.text);
    cr_assert_eq(known_new(db, &keys, &err), 0, "%s", err.text);
    cr_assert_eq(db_write(db, create_job, &m, &err), 0, "%s", err.text);
    static const char *const good[] = {"Bearer ", "bearer ", "BEARER ", "Bearer   "};
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        snprintf(header, sizeof header, "%s%s", good[i], m.token);
        cr_assert_eq(principal_from_header(keys, header, &p, &err), 0, "%s: %s", good[i], err.text);
        cr_assert_str_eq(p->key_id, m.id);
        cr_assert_eq(p->scopes, SCOPE_TURNS | SCOPE_FILES);
        cr_assert(json_equal(p->globs, m.globs));
        principal_free(STEAL(p));
    }

    refused(keys, NULL);
    static const char *const bad[] = {"",     "Bearer",     "Bearer ", "Bearer    ", "Basic dXNlcjpwYXNz",
                                      "clo_", "Bearer clo_"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        refused(keys, bad[i]);
    refused(keys, m.token); /* without the scheme */
    snprintf(header, sizeof header, "Bearer\t%s", m.token);
    refused(keys, header);
    snprintf(header, sizeof header, "Bearer %s ", m.token);
    refused(keys, header);
    snprintf(header, sizeof header, "Bearer %s,%s", m.token, m.token);
    refused(keys, header);
    snprintf(header, sizeof header, "Bearer %.84s", m.token);
    refused(keys, header);
    /* One digit of the secret, of the id; upper case; another separator. */
    snprintf(header, sizeof header, "Bearer %s", m.token);
    for (size_t i = 7; i < strlen(header); i++) {
        char changed[200];
        memcpy(changed, header, sizeof changed);
        changed[i] = changed[i] == '0' ? '1' : '0';
        refused(keys, changed);
    }
    snprintf(header, sizeof header, "Bearer CLO_%s", m.token + 4);
    refused(keys, header);

    cr_assert_eq(db_write(db, revoke_job, m.id, &err), 0);
    known_forget(keys);
    snprintf(header, sizeof header, "Bearer %s", m.token);
    refused(keys, header);
    refused(keys, header);
    known_free(keys);
    db_close(db);
    json_decref(m.globs);
    free(path);
    scratch_remove(dir);
}

struct reader {
    struct known *keys;
    const char *id;
    atomic_bool told, over;
};

/* What was told to be revoked is never found again, whatever a look that was under way has read. */
static void *read_on(void *arg)
{
    struct reader *r = arg;
    struct key_facts facts;
    struct err err;

    while (!r->over) {
        bool told = r->told;
        cr_assert_eq(known_find(r->keys, r->id, &facts, &err), 0, "%s", err.text);
        cr_assert(!told || !facts.globs, "found after its end");
        json_decref(facts.globs);
    }
    return NULL;
}

Test(known, forgets_what_was_revoked)
{
    char *dir = scratch_dir(), *path = scratch_path(dir, "state.db");
    struct making m = {.globs = json_pack("[s]", "*")};
    struct db *db = NULL;
    struct err err;

    cr_assert_eq(secret_init(&err), 0);
    cr_assert_eq(db_open(path, DB_WRITE, &db, &err), 0, "%s", err.text);
    for (int round = 0; round < 20; round++) {
        struct reader r = {.id = m.id};
        pthread_t threads[3];
        cr_assert_eq(known_new(db, &r.keys, &err), 0);
        cr_assert_eq(db_write(db, create_job, &m, &err), 0, "%s", err.text);
        for (size_t i = 0; i < ARRAY_LEN(threads); i++)
            cr_assert_eq(pthread_create(&threads[i], NULL, read_on, &r), 0);
        cr_assert_eq(db_write(db, revoke_job, m.id, &err), 0);
        known_forget(r.keys);
        r.told = true;
        usleep(2000);
        r.over = true;
        for (size_t i = 0; i < ARRAY_LEN(threads); i++)
            pthread_join(threads[i], NULL);
        known_free(r.keys);
    }
    db_close(db);
    json_decref(m.globs);
    free(path);
    scratch_remove(dir);
}
